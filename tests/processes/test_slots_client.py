"""The client of slots: finds the leader, follows it, comes back, and says when it cannot know."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import primacy
from primacy import blocking
from primacy.errors import NotReached, Refused, SlotRefused, Unsure, UsageError
from primacy.slots import Client, client
from primacy.slots.client import WAITING_MAX
from primacy.slots.load import Load, measured
from tests.support.canary import beside_a_canary
from tests.support.slots_harness import LIMIT_S, Harness, slots_of

LONG_MS = 30_000
MORE = {
    "100": {"kind": "multicast"},
    "101": {"kind": "multicast", "users": {"pepe": "a"}},
    "102": {"kind": "random"},
}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stalls is no frozen server."""
    monkeypatch.setattr(client, "ANSWER_S", LIMIT_S)
    monkeypatch.setattr(client, "CONNECT_S", LIMIT_S)


@pytest.fixture
def harness() -> Iterator[Harness]:
    with Harness(slots_of(more=MORE)) as found:
        yield found


@pytest.fixture
def other() -> Iterator[Harness]:
    with Harness(slots_of(more=MORE)) as found:
        yield found


@contextlib.contextmanager
def unused() -> Iterator[str]:
    """An address where nobody listens, kept so."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@contextlib.asynccontextmanager
async def frozen(answers: int = 0) -> AsyncIterator[str]:
    """The address of a server that answers so many lines as a leader would, and from then on nobody."""
    left = answers

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while await reader.readline():
                if left:
                    left -= 1
                    writer.write(b"v0001\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_it_reads_and_writes_many_at_once(harness: Harness) -> None:
    async def body() -> None:
        async with Client(harness.server.address, within_ms=LONG_MS) as slots:
            assert await slots.set("000", "hello") == b"hello"
            assert await slots.get(0) == b"hello"
            numbers = await asyncio.gather(*(slots.get("013") for _ in range(200)))
            assert [int(each) for each in numbers] == list(range(1, 201))
            assert slots.leaderships == 1

    asyncio.run(body())


def test_refusals_say_which_slot_and_why(harness: Harness) -> None:
    async def body() -> None:
        async with Client(harness.server.address, within_ms=LONG_MS) as slots:
            with pytest.raises(SlotRefused, match="slot 999 refuses with 005: there is no such slot") as found:
                await slots.get("999")
            assert (found.value.slot, found.value.code, found.value.exit_code) == ("999", "005", 1)
            with pytest.raises(SlotRefused, match="007"):
                await slots.set("013", "many")
            with pytest.raises(UsageError, match="0 to 999"):
                await slots.get("1000")
            with pytest.raises(UsageError, match="at most 36 bytes"):
                await slots.set("000", "x" * 37)
            assert await slots.set("000", b"\xff\r") == b"\xff\r", "every byte but the line feed"
        with pytest.raises(UsageError, match="closed"):
            await slots.get("000")
        async with Client(harness.server.address, user="pepe", password="wrong", within_ms=LONG_MS) as slots:
            with pytest.raises(SlotRefused, match="004"):
                await slots.get("000")
        async with Client(harness.server.address, user="sammy", password="samPassw0rd", within_ms=LONG_MS) as slots:
            assert await slots.set("004", "mine") == b"mine"

    asyncio.run(body())
    assert issubclass(primacy.SlotRefused, primacy.PrimacyError)
    for address in ("localhost:99999", "a..b:1", "localhost", "::1:25873"):
        with pytest.raises(UsageError, match=r"host:port|a host is|brackets"):
            Client(address)
    for word in ("", "123", "x" * 40, "pepe\nw000x"):
        with pytest.raises(UsageError, match="have 4 to 39 bytes and no line feed"):
            Client("localhost:1", user="pepe", password=word)


def test_it_finds_the_one_that_leads(harness: Harness, other: Harness) -> None:
    harness.call(lambda: harness.server.follow("b"))
    other.call(lambda: other.server.hall.board.kinds[b"000"].write(0, None, b"here"))

    async def body() -> None:
        with unused() as nobody:
            for _ in range(10):  # whichever comes first
                async with Client(harness.server.address, nobody, other.server.address, within_ms=LONG_MS) as slots:
                    assert await slots.get("000") == b"here"

    asyncio.run(body())


def test_a_named_leader_is_asked_next(harness: Harness, other: Harness) -> None:
    """With many nodes it need not try them all."""
    harness.call(lambda: harness.server.follow("b"))

    async def body() -> None:
        with unused() as nobody:
            nodes = {"a": harness.server.address, "b": other.server.address, **{f"x{n}": nobody for n in range(1)}}
            async with Client(nodes, within_ms=LONG_MS) as slots:
                slots._order = [nodes["a"], nodes["x0"], nodes["b"]]
                await slots.get("000")
                assert slots._order[0] == nodes["b"]
                assert slots._order[-1] == nodes["a"]

    asyncio.run(body())


def test_when_leadership_moves_it_follows_and_nothing_is_done_twice(harness: Harness, other: Harness) -> None:
    other.call(lambda: other.server.follow("a"))

    async def body() -> None:
        async with Client(harness.server.address, other.server.address, within_ms=LONG_MS) as slots:
            assert await slots.set("000", "x") == b"x"
            await asyncio.to_thread(harness.call, lambda: harness.server.follow("b"))
            await asyncio.to_thread(other.call, other.server.lead)
            assert await slots.get("000") == b"", "a new leader starts clean"
            assert slots.leaderships == 2

    asyncio.run(body())


@pytest.mark.later
@beside_a_canary(500, passes_if_late=True)
def test_nobody_leads_is_said_in_time(harness: Harness) -> None:
    harness.call(lambda: harness.server.follow("b"))

    async def body() -> None:
        async with Client(harness.server.address, within_ms=2_000) as slots:
            with pytest.raises(NotReached, match=r"no node that leads answered .* within 2,000 ms; b leads") as found:
                await slots.set("000", "x")
            assert not isinstance(found.value, Unsure)
        with unused() as nobody:
            async with Client(nobody, within_ms=300) as slots:
                with pytest.raises(NotReached, match="no node that leads"):
                    await slots.get("000")

    asyncio.run(body())


def test_nothing_is_written_to_a_node_that_is_frozen(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes its connections and what is sent; it would be done when the node goes on."""
    monkeypatch.setattr(client, "CONNECT_S", 1.0)

    async def body() -> None:
        async with frozen() as address, Client(address, harness.server.address, within_ms=LONG_MS) as slots:
            slots._order = [address, harness.server.address]
            assert await slots.set("000", "x") == b"x"

    asyncio.run(body())


def test_a_write_whose_answer_is_lost_is_unsure_and_a_read_is_repeated(harness: Harness) -> None:
    """A server that takes the request and hangs up, once; then the real one."""
    taken = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            for _ in range(2):
                with contextlib.suppress(OSError):
                    sock, _ = listener.accept()
                    with sock:
                        assert sock.recv(100) == b"?\n"
                        sock.sendall(b"exxx001\n")
                        sock.recv(100)
                    taken.set()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        rude = f"127.0.0.1:{listener.getsockname()[1]}"

        async def body() -> None:
            async with Client(rude, harness.server.address, within_ms=LONG_MS) as slots:
                slots._order = [rude, harness.server.address]
                with pytest.raises(Unsure, match="may have been done"):
                    await slots.set("000", "x")
            async with Client(rude, harness.server.address, within_ms=LONG_MS) as slots:
                slots._order = [rude, harness.server.address]
                assert await slots.get("000") == b""

        asyncio.run(body())
        thread.join(LIMIT_S)
    assert taken.is_set()


def test_a_write_that_was_not_answered_in_time_is_unsure_too() -> None:
    """The time of the one who asks is over before the server counts as frozen: still, it may have been done."""

    async def body() -> None:
        async with frozen(answers=2) as address, Client(address, within_ms=LONG_MS) as slots:
            await slots.get("000")  # the connection stands, so that the write leaves at once
            slots.within_ms = 500
            with pytest.raises(Unsure, match=f"{address} did not answer: it may have been done"):
                await slots.set("000", "x")
            with pytest.raises(NotReached) as found:
                await slots.get("000")
            assert not isinstance(found.value, Unsure), "a read changes nothing"

    asyncio.run(body())


@pytest.mark.later
def test_a_frozen_node_is_left_by_clients_who_never_wait_long(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 2.0)

    async def body() -> None:
        async with (
            frozen(answers=1) as address,
            Client(address, harness.server.address, within_ms=1_000) as slots,
            asyncio.timeout(LIMIT_S),
        ):
            slots._order = [address, harness.server.address]
            while True:
                with contextlib.suppress(NotReached):
                    assert await slots.get("000") == b""
                    return

    asyncio.run(body())


@beside_a_canary(500, passes_if_late=True)
def test_why_nobody_was_reached_is_said() -> None:
    async def body() -> None:
        with unused() as nobody:
            async with Client(nobody, within_ms=1_000) as slots:
                with pytest.raises(NotReached, match=f"within 1,000 ms; {nobody}: Connection refused"):
                    await slots.get("000")

    asyncio.run(body())


@pytest.mark.parametrize("slot", ["014", "100"])
def test_a_watch_gets_what_is_written_and_goes_on_under_the_next_leader(
    harness: Harness, other: Harness, slot: str
) -> None:
    other.call(lambda: other.server.follow("a"))

    async def body() -> None:
        addresses = (harness.server.address, other.server.address)
        async with (
            Client(*addresses, within_ms=LONG_MS) as reader,
            Client(*addresses, within_ms=LONG_MS) as writer,
            reader.watch(slot) as watch,
        ):
            await writer.get("000")
            assert (await writer.set(slot, "one")).endswith(b"/0")
            await writer.set(slot, "two")
            assert [await anext(watch), await anext(watch)] == [b"one", b"two"]
            await asyncio.to_thread(harness.call, lambda: harness.server.follow("b"))
            await asyncio.to_thread(other.call, other.server.lead)
            heard = asyncio.ensure_future(anext(watch))
            while not heard.done():  # until the reader is back
                await writer.set(slot, "three")
                await asyncio.sleep(0.02)
            assert heard.result() == b"three"

    asyncio.run(body())


def test_a_watch_comes_back_though_the_one_who_wrote_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server freezes over a write: whoever wrote leaves that connection, and nobody else asks for another."""
    monkeypatch.setattr(client, "ANSWER_S", 0.5)
    written = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if line.startswith(b"w"):
                    written.set()
                    continue
                writer.write(b"v0141\n" + (b"a014news\n" if written.is_set() else b""))

    async def body() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Client(f"127.0.0.1:{port}", within_ms=LONG_MS) as slots, slots.watch("014") as values:
            with pytest.raises(Unsure):
                await slots.set("000", "x")
            async with asyncio.timeout(LIMIT_S):
                assert await anext(values) == b"news"

    asyncio.run(body())


def test_a_watch_without_permission_is_refused(harness: Harness) -> None:
    async def body() -> None:
        async with Client(harness.server.address, within_ms=LONG_MS) as slots:
            for slot in ("101", "019"):
                with pytest.raises(SlotRefused, match="008"):
                    await anext(slots.watch(slot))
                assert await slots.get("000") == b"", "and the client is as good as before"
            assert slots._wire is not None
            slots._wire.drop()
            assert await slots.get("000") == b""
            assert slots.leaderships == 2

    asyncio.run(body())


def test_of_two_watches_the_one_without_permission_ends(harness: Harness) -> None:
    """The next leader has another file, as in the middle of a change."""
    with Harness(slots_of(more={**MORE, "100": {"kind": "multicast", "users": {"pepe": "a"}}})) as strict:
        strict.call(lambda: strict.server.follow("a"))

        async def body() -> None:
            addresses = (harness.server.address, strict.server.address)
            async with (
                Client(*addresses, within_ms=LONG_MS) as slots,
                slots.watch("100") as refused,
                slots.watch("102") as allowed,
                asyncio.timeout(LIMIT_S),
            ):
                await asyncio.to_thread(harness.call, lambda: harness.server.follow("b"))
                await asyncio.to_thread(strict.call, strict.server.lead)
                with pytest.raises(SlotRefused, match="slot 100 refuses with 008"):
                    await anext(refused)
                while (await slots.set("102", "x")) != b"1/1/0":
                    await asyncio.sleep(0.02)
                assert await anext(allowed) == b"x"

        asyncio.run(body())


def test_who_watches_no_more_is_deregistered(harness: Harness) -> None:
    """Else a message of a random slot would go to one who is gone, and to nobody else."""

    async def body() -> None:
        async with (
            Client(harness.server.address, within_ms=LONG_MS) as reader,
            Client(harness.server.address, within_ms=LONG_MS) as writer,
        ):
            async with reader.watch("102"), reader.watch("102") as watch:
                assert await writer.set("102", "one") == b"1/1/0"
                assert await anext(watch) == b"one"
            await reader.get("000")  # on the same connection, and answered after what was said before
            assert await writer.set("102", "two") == b"0/0/0"

    asyncio.run(body())


@pytest.mark.later
def test_a_watch_leaves_a_leader_that_says_nothing_more(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen, or cut off: nothing comes and nothing breaks. Nobody but the watch is there to notice."""
    monkeypatch.setattr(client, "WATCH_S", 0.1)

    async def body() -> None:
        async with (
            frozen(answers=3) as address,
            Client(address, harness.server.address, within_ms=LONG_MS) as reader,
            Client(harness.server.address, within_ms=LONG_MS) as writer,
        ):
            reader._order = [address, harness.server.address]
            async with reader.watch("014") as watch, asyncio.timeout(LIMIT_S):
                monkeypatch.setattr(client, "ANSWER_S", 1.0)
                heard = asyncio.ensure_future(anext(watch))
                while not heard.done():
                    with contextlib.suppress(Unsure):  # a machine that stalls: the patience of this test is short
                        await writer.set("014", "news")
                    await asyncio.sleep(0.02)
                assert heard.result() == b"news"

    asyncio.run(body())


def test_a_watch_that_was_deregistered_registers_again(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """As happens to a client that was too slow for a while: the server has no word for it."""
    monkeypatch.setattr(client, "WATCH_S", 0.05)

    async def body() -> None:
        async with (
            Client(harness.server.address, within_ms=LONG_MS) as reader,
            Client(harness.server.address, within_ms=LONG_MS) as writer,
            reader.watch("100") as watch,
            asyncio.timeout(LIMIT_S),
        ):
            assert await writer.set("100", "one") == b"1/1/0"
            registered = harness.server.hall.board.signal(b"100").registered
            await asyncio.to_thread(harness.call, registered.clear)
            while await writer.set("100", "two") != b"1/1/0":
                await asyncio.sleep(0.02)
            assert [await anext(watch), await anext(watch)] == [b"one", b"two"]

    asyncio.run(body())


def test_a_slow_body_misses_the_oldest_and_it_is_counted(harness: Harness) -> None:
    async def body() -> None:
        async with Client(harness.server.address, within_ms=LONG_MS) as slots, slots.watch("014") as watch:
            for n in range(WAITING_MAX + 7):
                await slots.set("014", str(n))
            assert slots.missed == 7
            assert await anext(watch) == b"7"

    asyncio.run(body())


def test_threads_have_the_same_client(harness: Harness) -> None:
    with blocking.SlotsClient(harness.server.address, within_ms=LONG_MS) as slots:
        assert slots.set("000", "x") == b"x"
        assert slots.get("000") == b"x"
        with pytest.raises(SlotRefused):
            slots.get("999")
        values = slots.watch("014")
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(next(values)))
        thread.start()
        while thread.is_alive():
            slots.set("014", "hi")
            thread.join(0.02)
        values.close()  # type: ignore[attr-defined]
        assert got == [b"hi"]
        assert slots.leaderships == 1
    with pytest.raises(UsageError, match="with"):
        slots.get("000")


def test_a_load_says_why_it_is_refused(harness: Harness) -> None:
    def refused() -> str:
        with pytest.raises(Refused) as found:
            asyncio.run(measured(Load(harness.server.address, b"r999\n", 2, 3, LIMIT_S)))
        return str(found.value)

    assert refused() == "slot 999 refuses with 005: there is no such slot; --slot names another one"
    harness.call(lambda: harness.server.follow("b"))
    assert refused() == "this node does not lead (b leads, as was said last); --addr names the one that does"


def test_f59_pauses_grow_up_to_a_bound_and_have_chance_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many clients that lost one leader at one moment do not come back in step."""
    slept: list[list[float]] = []

    async def sleep(seconds: float) -> None:
        slept[-1].append(seconds)

    async def body() -> None:
        for _ in range(50):
            slept.append([])
            slots = Client("a:1", "b:2")
            for turn in range(1, 40):
                await slots._pause(turn)

    monkeypatch.setattr(client.asyncio, "sleep", sleep)  # type: ignore[attr-defined]
    asyncio.run(body())
    firsts = [pauses[0] for pauses in slept]
    assert all(client.PAUSE_S / 2 <= first <= client.PAUSE_S * 1.5 for first in firsts)
    assert max(firsts) - min(firsts) > client.PAUSE_S / 4
    assert all(client.PAUSE_S_MAX / 2 <= pauses[-1] <= client.PAUSE_S_MAX * 1.5 for pauses in slept)
