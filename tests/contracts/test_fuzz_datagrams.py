"""A08, A11: for a fixed time, bytes of every kind are thrown at the whole way of a datagram: seal, layout, machine.

From outside (junk, and real datagrams cut, flipped or glued) nothing may come of it but a count. From inside (a good
seal around a message of ours whose fields are anything) no exception may leave: a node that has the secret is trusted
to be honest, not to be free of bugs.
"""

from __future__ import annotations

import ast
import asyncio
import os
import random
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from primacy.control import key as control_key
from primacy.election.inputs import Received, Started
from primacy.election.messages import Message
from primacy.election.model import Ballot, ListRecord, Member, Membership, Seat
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.settings.timing import PROFILES
from primacy.transport import seal
from primacy.transport.layout import packed
from primacy.transport.seal import Seal, Sort
from primacy.transport.udp import Address, UdpTransport
from tests.support.ports import free_ports
from tests.support.transport_harness import CHANCES, EVERY, SECRET, seal_of

FUZZ_S = 20.0 if os.environ.get("PRIMACY_SIZE") == "proof" else 2.0
BATCH = 16
THROWN_LEAST = 1_000
"""On a machine that is slow."""
LONGEST_S = 0.05
"""Of processor time for a batch, which should take a millisecond; a busy machine does not add to it."""
NAMES = ("a", "b", "c")
LIST = "f" * 32
ODD: tuple[Any, ...] = (
    *(0, 1, -1, -2, 2**31, 2**53, 2**62 - 1, 2**63 - 1, 2**64 - 1, -(2**63)),
    *(True, False, None, 0.0, -0.5, float("nan"), float("inf"), "", "a", "b", "x" * 65, LIST, b"", b"\xff\xfe", [], {}),
    *([[]], [[[[[[]]]]]], [["f" * 32, ["a", "b", "c"]]], {"a": 1}, [1] * 200),
)


class Target:
    """A node as far as a datagram goes: a transport with its sockets, and the machine behind it."""

    def __init__(self) -> None:
        members = Membership.of([Member(name) for name in NAMES], LIST)
        ballot = Ballot(2**52, 5, "", 500, 2**52 + 5, 3, (ListRecord(LIST, NAMES, True),))
        seat = Seat("b", 1, members, random.Random(1))
        self.machine = RaftStrategy(seat, PROFILES["lab"], ballot, RaftOptions())
        self.machine.step(1_000, Started(1_700_000_000_000, False))
        self.now_ms = 3_000
        self.heard = self.thrown = 0
        self.raised: list[object] = []
        mine, *theirs = free_ports(3)
        self.address = ("127.0.0.1", mine)
        others = dict(zip("ac", (Address("127.0.0.1", port) for port in theirs), strict=True))
        self.transport = UdpTransport(seal_of("b"), Address(*self.address), others, lambda _: None)
        self.out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.took_s: list[float] = []

    def hear(self, message: Message) -> None:
        self.heard += 1
        self.now_ms += 1
        self.machine.step(self.now_ms, Received(message))

    def take(self, data: bytes) -> None:
        self.out.sendto(data, self.address)
        self.thrown += 1

    async def live(self, story: Story, chance: random.Random) -> None:
        """What is thrown in a turn is heard in the next ones, before more is thrown."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.raised.append(context))
        await self.transport.start(self.hear)
        end_s = time.monotonic() + FUZZ_S
        while (time.monotonic() < end_s or self.thrown <= THROWN_LEAST) and not self.raised:
            for _ in range(BATCH):
                story(self, chance)
            began_s = time.thread_time()
            for _ in range(4):
                await asyncio.sleep(0)
            self.took_s.append(time.thread_time() - began_s)
        await self.has_read()
        self.transport.close()
        self.out.close()

    async def has_read(self) -> None:
        """Nothing is left in its sockets: in every turn of the loop it reads something, if there is anything."""
        counted, same = -1, 0
        while same < 5:
            await asyncio.sleep(0.01)
            now = sum(self.transport.counters.values())
            counted, same = now, same + 1 if now == counted else 0


Story = Callable[[Target, random.Random], None]


def for_a_while(story: Story, seed: int) -> Target:
    async def play() -> Target:
        target = Target()
        await target.live(story, random.Random(seed))
        return target

    target = asyncio.run(play())
    counters = target.transport.counters
    slowest_s = sorted(target.took_s)[-CHANCES]
    print(f"{target.thrown:,} in {FUZZ_S:g} s, {BATCH} took {slowest_s * 1_000:.1f} ms at most, {counters}")
    assert target.raised == []
    assert slowest_s < LONGEST_S
    return target


def test_A08_bytes_of_strangers_are_counted_and_change_nothing() -> None:
    whole = [seal_of("a").sealed(Sort.MESSAGE, "b", 1, packed(message)) for message in EVERY]
    views = set()

    def junk(target: Target, chance: random.Random) -> None:
        data = bytearray(chance.choice(whole))
        match chance.randrange(6):
            case 0:
                data = bytearray(chance.randbytes(chance.randrange(700)))
            case 1:
                data = data[: chance.randrange(len(data))]
            case 2:
                data += chance.randbytes(chance.randrange(1, 600))
            case 3:
                data = data[: chance.randrange(len(data))] + chance.choice(whole)[chance.randrange(40) :] + b"x"
            case 4:
                data[0] = 0xB7
                data[1:29] = chance.randbytes(28)
                data[-1] ^= 1
            case _:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        target.take(bytes(data))
        views.add(target.machine.view(target.now_ms))

    target = for_a_while(junk, 1)
    assert target.heard == 0
    assert len(views) == 1
    dropped = {name: count for name, count in target.transport.counters.items() if name in ("size", "foreign", "seal")}
    assert sum(dropped.values()) == target.thrown
    assert len(dropped) == 3


def test_A08_a_good_seal_around_anything_raises_nothing() -> None:
    rows = [msgspec.msgpack.decode(packed(message)) for message in EVERY]
    sort_of = {6: Sort.RELEASE}
    counter = {"a": 0, "c": 0}
    seals = {name: Seal("lab", "main", name, 77, (SECRET,)) for name in counter}

    def traitor(target: Target, chance: random.Random) -> None:
        row = list(chance.choice(rows))
        row[3:5] = [LIST, 2**52] if chance.random() < 0.9 else row[3:5]
        if chance.random() < 0.7:
            row[1:3] = [chance.choice((0, 1, 2)), chance.choice((77, 78))]
        for _ in range(chance.randrange(4)):
            row[chance.randrange(len(row))] = chance.choice(ODD)
        row = row[: chance.randrange(len(row) + 1)] if chance.random() < 0.1 else row
        row += [chance.choice(ODD)] if chance.random() < 0.1 else []
        payload = msgspec.msgpack.encode(row)
        if chance.random() < 0.1:
            payload = payload[:-1] + chance.randbytes(chance.randrange(4))
        sort = sort_of.get(row[0], Sort.MESSAGE) if row and isinstance(row[0], int) else Sort.MESSAGE
        target.take(seals[chance.choice("ac")].sealed(sort, "b", 1, payload)[:513])

    target = for_a_while(traitor, 2)
    assert target.heard > target.thrown // 10
    assert target.transport.counters["payload"] > target.thrown // 100


def test_A11_secrets_are_compared_in_constant_time_only() -> None:
    """What `==` says about the first bytes, its duration tells whoever guesses the next."""
    for module in (seal, control_key):
        text = Path(module.__file__).read_text()
        assert "compare_digest(" in text
        compared = [ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Compare)]
        assert not [each for each in compared if re.search(r"\b(tag|digest|said)\b|secret [!=]=", each)], (
            module.__name__
        )
