"""A node that is in no list, or not where it is listed, asks from any port and is answered there (R8, R12).

Nothing else is heard of it, and nothing else is sent to it; once it listens where the members have it, it speaks as one
of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from primacy.election.messages import Admission, Message, Origin, Query, Report, VoteRequest
from primacy.election.model import Member, MembersId, Register
from primacy.errors import InUse
from primacy.transport.guests import GUESTS_MAX, SILENT_S
from primacy.transport.layout import packed
from primacy.transport.seal import Seal, Sort
from primacy.transport.udp import Address, UdpTransport
from tests.support.ports import free_ports
from tests.support.transport_harness import LIMIT_S, OTHER, SECRET, Recorded, heartbeat, seal_of
from tests.support.waiting import wait_until_async

HERE = "127.0.0.1"
ANY = Address("0.0.0.0", 0)
REGISTER = Register(MembersId(1, 2), (Member("a", address=f"{HERE}:1"), Member("d", address=f"{HERE}:2")))


def query(node: str, boot: int) -> Query:
    return Query(Origin(node, 0, boot, "hash", 0), False, 0)


def asked(seal: Seal) -> bytes:
    """Its question to a, as a datagram."""
    return seal.sealed(Sort.QUESTION, "a", 1, packed(query(seal.node, seal.boot)))


def report(echo: int) -> Report:
    return Report(Origin("a", 1, 1, "hash", 1), echo, True, True, 1, 500, 7, register=REGISTER)


class Nodes:
    """Node a, which is listed nowhere but in the files of those that ask it, and those."""

    def __init__(self) -> None:
        self.port, self.other = free_ports(2)
        self.heard: dict[str, list[Message]] = {}
        self.ends: list[UdpTransport] = []
        self.complaints: list[str] = []

    async def start(
        self,
        name: str,
        boot: int,
        listen: Address = ANY,
        secret: bytes = SECRET,
        meanwhile: Address | None = None,
        **listed: int,
    ) -> UdpTransport:
        others = {one: Address(HERE, port) for one, port in listed.items()}
        end = UdpTransport(seal_of(name, boot, (secret,)), listen, others, self.complaints.append)
        end.asks, end.meanwhile = listen == ANY, meanwhile
        self.ends.append(end)
        self.heard[f"{name}{boot}"] = heard = []
        await end.start(heard.append)
        return end

    async def a(self, **listed: int) -> UdpTransport:
        return await self.start("a", 1, Address(HERE, self.port), **listed)

    def two(self) -> list[tuple[str, int]]:
        """Two names, each with a port of its own."""
        return list(zip("xy", free_ports(2), strict=True))

    async def until(self, check: Callable[[], object], what: str) -> None:
        await wait_until_async(check, what, LIMIT_S, 0.01, lambda: (self.heard, [end.counters for end in self.ends]))

    async def asks(self, end: UdpTransport, boot: int) -> None:
        """Again and again, as a node does, until a has heard it."""
        message = query(end.seal.node, boot)

        def heard() -> bool:
            end.send("a", message)
            return message in self.heard["a1"]

        await self.until(heard, f"a question of {end.seal.node}")

    async def answered(self, a: UdpTransport, name: str, boot: int, message: Message) -> None:
        def heard() -> bool:
            a.send(name, message)
            return message in self.heard[f"{name}{boot}"]

        await self.until(heard, f"an answer to {name}")


def play(story: Callable[[Nodes], Awaitable[None]]) -> None:
    async def whole() -> None:
        nodes = Nodes()
        try:
            await story(nodes)
        finally:
            for end in nodes.ends:
                end.close()

    asyncio.run(whole())


def test_R8_a_node_in_no_list_asks_from_any_port_and_is_answered_there() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.a()
        d = await nodes.start("d", 7, a=nodes.port)
        await nodes.asks(d, 7)
        assert [guest.node for guest in a.guests.present] == ["d"]
        assert a.guests.present[0].host == HERE
        await nodes.answered(a, "d", 7, report(7))
        admission = Admission(Origin("a", 1, 1, "hash", 1), 7, 1, REGISTER, 500, 7, ())
        await nodes.answered(a, "d", 7, admission)

    play(story)


def test_R8_nothing_but_questions_is_heard_of_it_and_nothing_but_answers_to_it_is_sent() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.a()
        d = await nodes.start("d", 7, a=nodes.port)
        await nodes.asks(d, 7)
        strangers: list[str] = []
        a.stranger = strangers.append
        d.asks = False  # one that speaks as if it belonged
        vote = VoteRequest(Origin("d", 1, 7, "hash", 1), 5, False)
        before = a.counters.get("stranger", 0)
        d.send("a", vote)
        d.send("a", heartbeat("d", 1))
        await nodes.until(lambda: a.counters.get("stranger", 0) >= before + 2, "that both are dropped")
        assert all(isinstance(message, Query) for message in nodes.heard["a1"])
        assert strangers[:1] == ["d"], "and is told of: perhaps it belongs to an older cluster of this name (M3)"
        d.asks = True
        unsent = a.counters.get("unsent", 0)
        a.send("d", heartbeat("a", 1))
        a.send("d", report(8))
        assert a.counters.get("unsent", 0) == unsent + 2
        sent = d.counters.get("sent", 0)
        d.send("a", vote)
        assert d.tell("a", ["x"]) == 0
        assert d.counters.get("sent", 0) == sent

    play(story)


def test_M3_two_strangers_are_told_of_for_as_long_as_they_speak_also_in_few_bytes() -> None:
    """Their heartbeats are said whole at first only; and neither is forgotten because the other one speaks."""

    async def story(nodes: Nodes) -> None:
        a = await nodes.a()
        strangers: list[str] = []
        a.stranger = strangers.append
        ends = [await nodes.start(name, 7, Address(HERE, port), a=nodes.port) for name, port in nodes.two()]
        number = 0

        def heard() -> bool:
            nonlocal number
            number += 1
            for end in ends:
                end.send("a", heartbeat(end.seal.node, number))
            return min(strangers.count(end.seal.node) for end in ends) >= 10

        await nodes.until(heard, "ten heartbeats of each")
        assert a.counters.get("unsent", 0) == 0
        assert a.guests.present == (), "neither asks to belong"
        assert len(a.guests.by_name) == 2
        assert nodes.heard["a1"] == []

    play(story)


def test_R8_an_own_line_in_its_own_file_is_no_hindrance() -> None:
    """It listens at its address and speaks as one of them; the others have not heard of it."""

    async def story(nodes: Nodes) -> None:
        a = await nodes.a()
        d = await nodes.start("d", 7, Address(HERE, nodes.other), a=nodes.port)
        await nodes.asks(d, 7)
        await nodes.answered(a, "d", 7, report(7))
        a.set_peers({"d": Address(HERE, nodes.other)})
        wanted = heartbeat("d", 3)

        def crosses() -> bool:
            d.send("a", wanted)
            return wanted in nodes.heard["a1"]

        await nodes.until(crosses, "a heartbeat of d")
        assert a.guests.present == ()

    play(story)


def test_R8_it_is_listed_and_moves_to_where_the_members_have_it() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.a(d=nodes.other)  # added before it was started
        d = await nodes.start("d", 7, a=nodes.port)
        moved: list[Address] = []
        d.moved = lambda: moved.append(d.listen)
        await nodes.asks(d, 7)
        await nodes.answered(a, "d", 7, report(7))
        d.listen_at(Address(HERE, nodes.other))
        await nodes.until(lambda: moved, "the move")
        assert moved == [Address(HERE, nodes.other)]
        assert not d.asks
        for number, (end, to, name) in enumerate(((d, "a", "a1"), (a, "d", "d7"))):
            message = heartbeat(end.seal.node, number)

            def crosses(end: UdpTransport = end, to: str = to, name: str = name, message: Message = message) -> bool:
                end.send(to, message)
                return message in nodes.heard[name]

            await nodes.until(crosses, f"{end.seal.node} to {to}")
        assert a.guests.present == ()
        assert a.troubles == d.troubles == []

    play(story)


def test_R8_an_address_that_is_in_use_is_said_once_and_tried_again() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.a()
        d = await nodes.start("d", 7, a=nodes.port)
        other = await nodes.start("x", 9, Address(HERE, nodes.other))
        d.listen_at(Address(HERE, nodes.other))
        await nodes.until(lambda: nodes.complaints, "a complaint")
        assert f"the members have this node at {HERE}:{nodes.other}: UDP port" in nodes.complaints[0]
        assert d.asks
        assert [trouble.node for trouble in d.troubles] == ["d"]
        await nodes.asks(d, 7)  # where it was
        await nodes.answered(a, "d", 7, report(7))
        other.close()
        await nodes.until(lambda: not d.asks, "the move")
        assert len(nodes.complaints) == 1
        assert d.troubles == []
        d.listen_at(Address("localhost", nodes.other))  # only its name is another
        await nodes.until(lambda: d.listen.host == "localhost", "the other name")
        assert len(nodes.complaints) == 1

    play(story)


def test_R12_at_its_start_it_asks_from_elsewhere_if_it_cannot_listen_where_the_members_have_it() -> None:
    """They may have it at a wrong address, and only they can tell it the right one. What a file says must be right."""

    async def story(nodes: Nodes) -> None:
        a = await nodes.a(d=nodes.other)
        other = await nodes.start("x", 9, Address(HERE, nodes.other))
        taken = Address(HERE, nodes.other)
        with pytest.raises(InUse, match="each node needs its own"):
            await nodes.start("d", 6, taken, a=nodes.port)
        d = await nodes.start("d", 7, taken, meanwhile=ANY, a=nodes.port)
        assert d.asks
        assert f"the members have this node at {taken}: UDP port {taken} is in use" in nodes.complaints[0]
        assert [trouble.node for trouble in d.troubles] == ["d"]
        await nodes.asks(d, 7)
        await nodes.answered(a, "d", 7, report(7))
        other.close()
        await nodes.until(lambda: not d.asks, "the move")
        assert (d.listen, len(nodes.complaints), d.troubles) == (taken, 1, [])

    play(story)


def test_Q10_a_second_machine_with_the_name_of_a_node_that_is_heard_is_not_answered() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.a(d=nodes.other)
        d = await nodes.start("d", 7, Address(HERE, nodes.other), a=nodes.port)
        second = await nodes.start("d", 8, a=nodes.port)
        number = 0

        def alerted() -> bool:
            nonlocal number
            number += 1
            d.send("a", heartbeat("d", number))
            second.send("a", query("d", 8))
            return any(trouble.alert and trouble.node == "d" for trouble in a.troubles)

        d.send("a", heartbeat("d", 0))
        await nodes.until(lambda: a.peers["d"].boot == 7 or d.send("a", heartbeat("d", 0)), "d")
        await nodes.until(alerted, "an alert")
        assert query("d", 8) not in nodes.heard["a1"]
        assert a.peers["d"].boot == 7

    play(story)


def test_another_secret_and_a_recording_are_not_answered() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.a()
        other = await nodes.start("e", 5, secret=OTHER, a=nodes.port)
        d = await nodes.start("d", 7, a=nodes.port)
        recorded = Recorded(d)
        other.send("a", query("e", 5))
        await nodes.until(lambda: a.counters.get("seal", 0), "a dropped datagram")
        await nodes.asks(d, 7)
        arrived = ("received", "other-boot")
        await nodes.until(lambda: sum(a.counters[kind] for kind in arrived) == len(recorded.datagrams), "all of them")
        heard = len(nodes.heard["a1"])
        replays = a.counters.get("replay", 0)
        for datagram in recorded.datagrams:
            a._take(datagram, None, (HERE, nodes.other))
        assert a.counters.get("replay", 0) > replays
        assert len(nodes.heard["a1"]) == heard
        assert {guest.node for guest in a.guests.present} == {"d"}

    play(story)


def test_guests_are_few_and_forgotten() -> None:
    async def story(nodes: Nodes) -> None:
        a = await nodes.a()
        for boot in range(GUESTS_MAX + 1):
            seal = seal_of(f"g{boot}", boot + 10)
            a._take(asked(seal), None, (HERE, 9))
        assert len(a.guests.by_name) == GUESTS_MAX
        for guest in a.guests.by_name.values():
            guest.heard_s -= SILENT_S + 1
        last = f"g{GUESTS_MAX}"
        seal = seal_of(last, 99)
        a._take(asked(seal), None, (HERE, 9))
        assert list(a.guests.by_name) == [last]

    play(story)
