"""What must not change anything (F05, F06, F12, F14, F48, F55, F56), in the default profile and beside a canary.

Five real nodes in `lan`, with a switch between them. "Nothing changes" means: the same command goes on under the same
token, and no node's term has moved. Overlaps are judged as everywhere, and never excused.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primacy.election.messages import Heartbeat, Origin, VoteRequest
from primacy.settings.timing import PROFILES
from primacy.transport import seal as seals
from primacy.transport.layout import packed
from primacy.transport.seal import Seal, Sort
from tests.support import hostile_datagrams as hostile
from tests.support.canary import beside_a_canary
from tests.support.real_nodes import Crowd, Node, burning, crowd_in, tell_all, tree

pytestmark = pytest.mark.alone(order=160)

HEARTBEAT_MS = PROFILES["lan"].heartbeat_ms
FLOOD_S = 20 if os.environ.get("PRIMACY_SIZE") == "proof" else 5
BUSY_S = 3
LATE_S = PROFILES["lan"].spread_ms / 1_000 / 2
FORGED = 40
"""Of each kind."""


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    with crowd_in(tmp_path_factory.mktemp("lan"), "abcde", "lan", switched=True) as made:
        yield made
        made.one_at_a_time()


def terms(crowd: Crowd) -> dict[str, int]:
    return {name: node.document()["term"] for name, node in crowd.nodes.items()}


def nothing_changes(crowd: Crowd, what: Callable[[Node], object]) -> None:
    """Whatever is done to the node that acts, the same command goes on, and nobody's term has moved."""
    node = crowd.settle()
    before, lived = terms(crowd), crowd.one_now()
    try:
        what(node)
    finally:
        crowd.one_at_a_time()  # also if the canary will excuse what failed
    after = crowd.one_now()
    assert (after.token, after.run) == (lived.token, lived.run)
    assert terms(crowd) == before


@beside_a_canary(HEARTBEAT_MS)
def test_F14_the_leader_cut_from_one_follower(five: Crowd) -> None:
    """Longer than any follower's patience: the one that hears no leader asks, and is told that there is one."""

    def cut_one(node: Node) -> None:
        lonely = next(name for name in five.names if name != node.name)
        five.cut(node.name + lonely, lonely + node.name)
        time.sleep((five.timing.promise_ms + five.timing.spread_ms) / 1_000)
        five.cut()

    nothing_changes(five, cut_one)


@beside_a_canary(HEARTBEAT_MS)
def test_F05_an_agent_stopped_for_less_than_the_margin(five: Crowd) -> None:
    def nap(node: Node) -> None:
        tell_all(signal.SIGSTOP, [node.pid])
        time.sleep((five.timing.term_at_ms - 2 * HEARTBEAT_MS) / 1_000)
        tell_all(signal.SIGCONT, [node.pid])

    nothing_changes(five, nap)


@beside_a_canary(HEARTBEAT_MS)
def test_F06_a_command_that_is_stopped_keeps_its_role(five: Crowd) -> None:
    def stop_command(_: Node) -> None:
        tell_all(signal.SIGSTOP, five.commands())
        time.sleep((five.timing.hold_ms + HEARTBEAT_MS) / 1_000)
        tell_all(signal.SIGCONT, five.commands())

    nothing_changes(five, stop_command)


@beside_a_canary(HEARTBEAT_MS)
def test_F12_both_cores_busy(five: Crowd) -> None:
    def burn(_: Node) -> None:
        with burning(os.cpu_count() or 1):
            time.sleep(BUSY_S)

    nothing_changes(five, burn)


@beside_a_canary(HEARTBEAT_MS)
def test_F12_a_transfer_reaches_the_node_that_it_names_although_that_one_is_late(five: Crowd) -> None:
    """It stands still while the others hear the release, as on a busy machine; they leave the role to it (G6)."""
    node = five.settle()
    before = five.one_now()
    heir = next(other for name, other in sorted(five.nodes.items(), reverse=True) if name != node.name)
    five.order(node, "/v1/transfer", {"to": heir.name})
    tell_all(signal.SIGSTOP, [heir.pid])
    five.until(five.nobody, "the end of the old command")
    time.sleep(LATE_S)
    tell_all(signal.SIGCONT, [heir.pid])
    assert five.acting(before.token).node == heir.name
    five.one_now()


LOADS = """
import importlib.util, sys, threading
def told(event, args):
    if event == "import" and threading.current_thread() is threading.main_thread() and args[0] not in sys.modules:
        print("loads", args[0], file=sys.stderr, flush=True)
sys.addaudithook(told)
"""
"""Said before the program itself: what it loads in its one thread, line by line, among what it logs."""


def test_an_agent_loads_nothing_while_others_wait_for_its_heartbeats(tmp_path: Path) -> None:
    """Some milliseconds of loading are some hundred on a busy machine. At a first election all followers do it at once,
    and the new leader gets no majority."""
    with crowd_in(tmp_path, plant=LOADS) as crowd:
        crowd.settle()
        crowd.strike(lambda node: node.process.terminate())
        crowd.settle()
        for node in crowd.started:
            _, _, votes = node.text.partition("has recovered")
            assert not re.findall(r"^loads (\S+)", votes, re.MULTILINE), node.log.name


def all_heard(crowd: Crowd, before: dict[str, dict[str, int]], more: dict[str, int]) -> None:
    """Every node has counted so many more of each kind."""
    for name, node in crowd.nodes.items():
        wanted = {kind: before[name].get(kind, 0) + count for kind, count in more.items()}

        def counted(node: Node = node, wanted: dict[str, int] = wanted) -> bool:
            now = node.document()["counters"]
            return all(now.get(kind, 0) >= count for kind, count in wanted.items())

        crowd.until(counted, f"{wanted} at {name}, not {node.document()['counters']}")


def forged(to: str, boot: int, secret: bytes, crowd: Crowd) -> dict[str, list[bytes]]:
    """What a stranger, another cluster, a newer version and a traitor would send, by what it must be counted as."""
    pretended = "a" if to != "a" else "b"
    origin = Origin(pretended, 9, 9, "f" * 32, 1)
    chance = random.Random(3)
    payloads = [packed(VoteRequest(origin, 1_000, False)), packed(Heartbeat(origin, 1_000, 1, 1_000, True))] * (
        FORGED // 2
    )
    strangers = Seal("crowd", "main", "zz", 9, (secret,))
    wrong = Seal("crowd", "main", pretended, 9, (bytes(range(40)),))
    foreign = Seal("other", "main", pretended, 9, (secret,))
    traitor = Seal("crowd", "main", pretended, 9, (secret,))
    tomorrow = []
    usual = seals.LAYOUT  # type: ignore[attr-defined]
    try:
        seals.LAYOUT = 77  # type: ignore[attr-defined]
        newer = Seal("crowd", "main", pretended, 9, (secret,))
        tomorrow = [newer.sealed(Sort.MESSAGE, to, boot, each) for each in payloads]
    finally:
        seals.LAYOUT = usual  # type: ignore[attr-defined]
    return {
        "size": [chance.randbytes(size) for size in (1, 10, 44, 513, 1_400, 9_000, 60_000)] * 5,
        "foreign": [b"\x00" + chance.randbytes(chance.randrange(50, 500)) for _ in range(FORGED)],
        "seal": [
            *([b"\xb7" + chance.randbytes(chance.randrange(50, 500)) for _ in range(FORGED)]),
            *([wrong.sealed(Sort.MESSAGE, to, boot, each) for each in payloads]),
            *([foreign.sealed(Sort.MESSAGE, to, boot, each) for each in payloads]),
            *([traitor.sealed(Sort.MESSAGE, "nobody", boot, each) for each in payloads]),
        ],
        "stranger": [strangers.sealed(Sort.MESSAGE, to, boot, each) for each in payloads],
        "layout": tomorrow,
        "payload": [traitor.sealed(Sort.MESSAGE, to, boot, chance.randbytes(60)) for _ in range(FORGED)],
    }


@beside_a_canary(HEARTBEAT_MS)
def test_F55_A01_A02_A05_forged_flipped_oversized_and_foreign_datagrams_are_counted_by_kind(five: Crowd) -> None:
    secret = (five.folder / "secret").read_bytes().strip()

    def attack(_: Node) -> None:
        before = {name: node.document()["counters"] for name, node in five.nodes.items()}
        five.switch(recorded=str(five.folder / "recorded"))
        recorded = hostile.read_recorded(five.folder / "recorded")
        chance = random.Random(5)
        count: dict[str, int] = {}
        for name in five.names:
            mine = [data for to, data in recorded if to == name and not hostile.is_release(data)][-FORGED:]
            attacks = forged(name, hostile.receiver_boot(mine[-1]), secret, five)
            attacks["seal"] += [hostile.flipped(data, chance) for data in mine]
            for datagrams in attacks.values():
                hostile.throw(datagrams, five.ports[name])
            count = {kind: len(datagrams) for kind, datagrams in attacks.items()}
        all_heard(five, before, count)

    nothing_changes(five, attack)
    for node in five.nodes.values():
        assert secret.decode() not in node.text
        assert "Traceback" not in node.text
        for pid in tree(node.pid):  # A14, A28: agent, guards, init, command
            for file in ("cmdline", "environ"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a guard that is replaced just now
                    assert secret not in Path(f"/proc/{pid}/{file}").read_bytes(), (pid, file)


def replay(crowd: Crowd, times: int, within_s: float = 20) -> dict[str, tuple[int, int]]:
    """All that was recorded for each node's present start, thrown again: by node, (thrown, counted as replayed)."""

    def counted(node: Node) -> int:
        found: int = node.document()["counters"].get("replay", 0)
        return found

    boots = {}
    crowd.switch(recorded=str(crowd.folder / "recorded"))
    recorded = hostile.read_recorded(crowd.folder / "recorded")
    for to, data in recorded:
        boots[to] = hostile.receiver_boot(data) or boots.get(to, 0)
    found = {}
    for name, node in crowd.nodes.items():
        mine = [d for to, d in recorded if to == name and hostile.receiver_boot(d) == boots[name]]
        mine = [data for data in mine if not hostile.is_release(data)][-2_000 // len(crowd.names) :]
        before = counted(node)
        hostile.throw(mine * times, crowd.ports[name])
        last_s = time.monotonic() + within_s
        while counted(node) - before < len(mine) * times and time.monotonic() < last_s:
            time.sleep(0.01)
        found[name] = (len(mine) * times, counted(node) - before)
    return found


@beside_a_canary(HEARTBEAT_MS)
def test_F55_A03_whatever_was_recorded_is_heard_no_second_time(five: Crowd) -> None:
    def again(_: Node) -> None:
        for name, (thrown, counted) in replay(five, 2).items():
            assert thrown > 100
            assert counted == thrown, name

    nothing_changes(five, again)


@beside_a_canary(HEARTBEAT_MS)
def test_F56_a_flood_of_junk_changes_no_leadership(five: Crowd) -> None:
    def flood(_: Node) -> None:
        call = [sys.executable, "-I", "-S", hostile.__file__, str(FLOOD_S), *map(str, five.ports.values())]
        done = subprocess.run(call, capture_output=True, text=True, check=True, timeout=FLOOD_S + 60)
        print(f"flood: {int(done.stdout):,} datagrams in {FLOOD_S} s")
        assert int(done.stdout) > 10_000

    nothing_changes(five, flood)
    kinds = five.nodes["a"].document()["counters"]
    assert min(kinds.get(kind, 0) for kind in ("size", "foreign", "seal")) > 100


@beside_a_canary(HEARTBEAT_MS)
def test_F12_F56_a_flood_beside_busy_cores_changes_no_leadership(five: Crowd) -> None:
    def flood(_: Node) -> None:
        call = [sys.executable, "-I", "-S", hostile.__file__, str(BUSY_S), *map(str, five.ports.values())]
        with burning(os.cpu_count() or 1):
            done = subprocess.run(call, capture_output=True, text=True, check=True, timeout=BUSY_S + 60)
        assert int(done.stdout) > 1_000

    nothing_changes(five, flood)


@beside_a_canary(HEARTBEAT_MS)
def test_F48_a_rolling_restart_costs_one_handover_at_most_for_each(five: Crowd) -> None:
    """A leader that is restarted hands over once; a follower that is restarted changes nothing."""
    five.settle()
    handovers = 0
    for name in five.names:
        before = five.acting()
        five.nodes[name].process.terminate()
        assert five.nodes[name].wait() == 0
        five.start(name)
        five.agree()
        after = five.one_now()
        crossed = [token for token in five.tokens() if before.token < token <= after.token]
        assert len(crossed) <= (name == before.node), (name, before, after)
        handovers += len(crossed)
    print(f"rolling restart of five: {handovers} handovers")
    five.one_at_a_time()
