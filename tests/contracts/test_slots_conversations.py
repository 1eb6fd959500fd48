"""Every recorded conversation with Ghoti's program, through real sockets, byte by byte.

`differs` marks those in which we answer better on purpose: where that program dies, loses a line or leaks an event.
"""

from __future__ import annotations

import pytest

from tests.support.slots_harness import DATA, Harness, slots_of, talk

PROTOCOL = {"telnet": "telnet"}
LEADER = {"follower": "node1", "leaderless": ""}


@pytest.mark.parametrize("conversation", DATA["tcp"], ids=[each["id"] for each in DATA["tcp"]])
def test_conversation(conversation: dict) -> None:
    profile = conversation["profile"]
    with Harness(slots_of(PROTOCOL.get(profile, "standard"))) as harness:
        if profile in LEADER:
            harness.call(lambda: harness.server.follow(LEADER[profile]))

        def wait(ms: int) -> None:
            harness.clock.ms += ms

        talk(conversation["steps"], harness.open, wait)


def test_there_are_all_of_them() -> None:
    assert len(DATA["tcp"]) == 71
    assert sum(each["differs"] for each in DATA["tcp"]) == 17
    assert {each["profile"] for each in DATA["tcp"]} == {"std", "telnet", "follower", "leaderless"}
