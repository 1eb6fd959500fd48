"""The slot server beyond its conversations: who leads, slow readers, broken clients, many of them, TLS."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import struct
import subprocess
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from primacy.slots import connections, line_server, session
from primacy.slots.line_server import LINE_S
from tests.support.slots_harness import LIMIT_S, Client, Harness, slots_of


@pytest.fixture
def harness():
    with Harness(slots_of(more={"100": {"kind": "multicast", "dereg_tries": 1}})) as found:
        yield found


# --- who leads --------------------------------------------------------------------------------------------------------


def test_when_leadership_ends_every_client_is_told_at_once(harness: Harness) -> None:
    harness.server.line_s = LIMIT_S  # half a line is not given up meanwhile
    with harness.open() as idle, harness.open() as half:
        idle.ask(b"w000x\n", b"v000x\n")
        half.send(b"r00")
        harness.wait(lambda: any(link.session.rest for link in harness.server.links))
        harness.call(lambda: harness.server.follow("node9"))
        for client in (idle, half):
            client.expect(b"exxx000node9\n")
            client.closed()
        with harness.open() as later:
            later.ask(b"r000\n", b"exxx000node9\n")
            later.ask(b"upepe\n", b"exxx000node9\n")
            harness.call(harness.server.lead)
            later.ask(b"r000\n", b"v000\n")  # the same connection, and nothing of the earlier leadership


def test_a_follower_that_hears_of_another_leader_keeps_its_clients(harness: Harness) -> None:
    harness.call(lambda: harness.server.follow("node1"))
    with harness.open() as client:
        client.ask(b"r000\n", b"exxx000node1\n")
        harness.call(lambda: harness.server.follow("node2"))
        client.ask(b"r000\n", b"exxx000node2\n")


def test_a_new_leader_starts_clean_also_if_it_is_the_old_one(harness: Harness) -> None:
    with harness.open() as client:
        client.ask(b"w000x\nw003mine\nr013\n", b"v000x\nv003mine\nv0131\n")
    harness.call(lambda: harness.server.follow(""))
    harness.call(harness.server.lead)
    with harness.open() as client:
        client.ask(b"r000\nw003theirs\nr013\n", b"v000\nv003theirs\nv0131\n")


def test_nothing_is_answered_under_a_hold_that_has_run_out(harness: Harness) -> None:
    """As after a stop of the whole process: the socket is read before the election has noticed."""
    harness.call(lambda: harness.server.lead(harness.clock.now_ms() + 3_000))
    with harness.open() as client, harness.open() as other:
        harness.clock.ms += 2_999
        client.ask(b"w000x\n", b"v000x\n")
        harness.call(lambda: harness.server.extend(harness.clock.now_ms() + 3_000))
        harness.clock.ms += 2_999
        client.ask(b"r000\n", b"v000x\n")
        other.ask(b"r000\n", b"v000x\n")
        harness.clock.ms += 1
        client.ask(b"r000\n", b"exxx000\n")
        client.closed()
        other.expect(b"exxx000\n")
        other.closed()


# --- signals ----------------------------------------------------------------------------------------------------------


def test_a_broadcast_reaches_all_and_the_writer_before_its_answer(harness: Harness) -> None:
    clients = [harness.open() for _ in range(100)]
    harness.wait(lambda: len(harness.server.links) == 100)
    clients[0].ask(b"r000\nw014hi\nr000\n", b"v000\na014hi\nv014100/100/0\nv000\n")
    for client in clients[1:]:
        client.expect(b"a014hi\n")
        client.close()
    clients[0].close()


@pytest.mark.parametrize("protocol", ["standard", "telnet", "tls"])
def test_signals_by_the_hundred_leave_turns_to_all_else(
    protocol: str, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends many at once, to many, must not keep an election from its heartbeats."""
    monkeypatch.setattr(session, "EVENTS_PER_TURN", 10)
    count, crowd, end = 200, 5, b"\r\n" if protocol == "telnet" else b"\n"
    context, trusting = tls_of(pair) if protocol == "tls" else (None, None)
    with Harness(slots_of("telnet" if protocol == "telnet" else "standard"), tls=context) as harness:

        def dial() -> Client:
            client = harness.open()
            return (
                client if trusting is None else Client(trusting.wrap_socket(client.sock, server_hostname="127.0.0.1"))
            )

        clients = [dial() for _ in range(crowd)]
        harness.wait(lambda: len(harness.server.links) == crowd)
        harness.server.line_s = LIMIT_S
        seen: list[int] = []
        ended = threading.Event()

        def turn() -> None:
            seen.append(harness.server.hall.events)
            if not ended.is_set():
                harness._loop.call_soon(turn)

        harness.call(turn)
        lines = b"".join(b"w014%03d" % n + end + b"r000" + end for n in range(count))
        clients[0].send(lines + b"r0")
        answers = (b"a014%03d\nv014%d/%d/0\nv000\n" % (n, crowd, crowd) for n in range(count))
        clients[0].expect(b"".join(answers))
        clients[0].ask(b"00" + end, b"v000\n")
        ended.set()
        for client in clients[1:]:
            client.expect(b"".join(b"a014%03d\n" % n for n in range(count)))
        assert max(after - before for before, after in pairwise(seen)) <= 10 + crowd
        assert harness.server.hall.requests == 2 * count + 1
        for client in clients:
            client.close()


def test_the_hold_is_looked_at_between_signals(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "EVENTS_PER_TURN", 1)
    harness.call(lambda: harness.server.lead(harness.clock.now_ms() + 3_000))
    later = harness.server.later

    def moved(link: connections.Link) -> None:
        harness.clock.ms += 3_000
        later(link)

    harness.server.later = moved
    with harness.open() as client:
        client.send(b"w014x\n" * 50)
        client.expect(b"a014x\nv0141/1/0\nexxx000\n")
        client.closed()


def test_a_reset_connection_is_one_receiver_less_and_no_fault(harness: Harness) -> None:
    with harness.open() as writer:
        broken = harness.open()
        harness.wait(lambda: len(harness.server.links) == 2)
        broken.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        broken.close()
        writer.send(b"w014hi\n")
        writer.expect(b"a014hi\nv0141/")  # the other one was counted, or was gone already
        harness.wait(lambda: len(harness.server.links) == 1)
        assert writer.line() in (b"1/0\n", b"2/1\n")


def test_a_registration_ends_with_its_connection(harness: Harness) -> None:
    with harness.open() as writer, harness.open() as reader:
        reader.ask(b"s100\n", b"v1001\n")
        writer.ask(b"w100a\n", b"v1001/1/0\n")
        reader.expect(b"a100a\n")
        reader.close()
        harness.wait(lambda: len(harness.server.links) == 1)
        writer.ask(b"w100b\n", b"v1000/0/0\n")


# --- bounds -----------------------------------------------------------------------------------------------------------


def narrow(harness: Harness) -> Client:
    """A client that takes little at once."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    host, _, port = harness.server.address.rpartition(":")
    sock.connect((host, int(port)))
    return Client(sock)


def test_a_reader_that_owes_too_much_is_dropped_and_counted(harness: Harness) -> None:
    with harness.open() as writer, narrow(harness):
        harness.wait(lambda: len(harness.server.links) == 2)
        line = b"w014" + b"x" * 36 + b"\n"
        event = b"a014" + b"x" * 36 + b"\n"
        for _ in range(20_000):
            writer.send(line * 50)
            for _ in range(50):
                writer.expect(event + b"v014")
                counts = b""
                while not counts.endswith(b"\n"):
                    counts += writer.sock.recv(1)
                assert counts in (b"2/2/0\n", b"1/2/1\n", b"1/1/0\n")
            if counts == b"1/1/0\n":
                break
        assert harness.server.counters["slots_dropped_slow"] == 1
        writer.ask(b"r000\n", b"v000\n")


def test_a_client_that_does_not_read_its_answers_is_read_no_further(harness: Harness) -> None:
    """Its own answers never drop it: it is simply not read while it owes a read, and then all are there."""
    with narrow(harness) as client, harness.open() as other:
        client.send(b"w000" + b"x" * 36 + b"\n")
        asked = 0
        while not harness.call(lambda: any(link.owed_bytes for link in harness.server.links)):
            client.send(b"r000\n" * 1_000)
            asked += 1_000
        other.ask(b"r001\n", b"v001\n")  # the others are served
        assert harness.call(lambda: all(link.owed_bytes <= connections.OWED_BYTES_MAX for link in harness.server.links))
        answers = 1 + asked
        answer = b"v000" + b"x" * 36 + b"\n"
        got = bytearray()
        while len(got) < len(answer) * answers:
            got += client.sock.recv(1_000_000)
        assert got == answer * answers
        assert harness.server.counters["slots_dropped_slow"] == 0


def test_a_client_that_takes_nothing_for_long_is_dropped(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_server, "STALL_S", 0.2)
    with narrow(harness) as client:
        client.send(b"w000" + b"x" * 36 + b"\n")
        client.sock.setblocking(False)
        for _ in range(10_000_000):
            try:
                client.sock.send(b"r000\n" * 200)
            except BlockingIOError:
                pass
            except (ConnectionResetError, BrokenPipeError):
                break
        harness.wait(lambda: harness.server.counters["slots_dropped_slow"] == 1)


def test_signals_give_a_client_that_takes_nothing_no_more_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with narrow(harness) as slow, harness.open() as writer:
        slow.send(b"w000" + b"x" * 36 + b"\n")
        while not harness.call(lambda: any(link.owed_bytes for link in harness.server.links)):
            slow.send(b"r000\n" * 1_000)
        monkeypatch.setattr(line_server, "STALL_S", LIMIT_S)  # for whatever were counted anew
        harness.call(lambda: harness.server._owing.update(dict.fromkeys(harness.server._owing, 0.0)))
        writer.ask(b"w014x\n", b"a014x\n")
        assert writer.line() in (b"v0141/2/1\n", b"v0141/1/0\n")  # the latter if it was dropped already
        harness.wait(lambda: harness.server.counters["slots_dropped_slow"] == 1)


def test_half_a_line_is_given_up_and_the_next_is_served(harness: Harness) -> None:
    with harness.open() as client:
        client.ask(b"r0", b"exxx001\n")
        client.ask(b"r000\n", b"v000\n")
        assert harness.server.counters["slots_lines_unfinished"] == 1


def test_half_a_line_of_telnet_is_given_up_after_a_minute() -> None:
    """A person types. The end of that minute is brought about here, for nobody waits for it."""
    with Harness(slots_of("telnet")) as harness, harness.open() as client:
        client.send(b"r0")
        harness.wait(lambda: bool(harness.server._unfinished))
        (until_s,) = harness.call(lambda: tuple(harness.server._unfinished.values()))
        now_s = harness.call(lambda: asyncio.get_running_loop().time())
        assert LINE_S["standard"] < until_s - now_s <= LINE_S["telnet"]
        harness.call(lambda: harness.server._unfinished.update(dict.fromkeys(harness.server._unfinished, 0.0)))
        assert client.line() == b"exxx001\n"
        client.ask(b"r000\r\n", b"v000\n")
        assert harness.server.counters["slots_lines_unfinished"] == 1


def test_the_page_says_how_long_half_a_line_waits() -> None:
    page = (Path(__file__).parents[2] / "docs/slots.md").read_text()
    assert LINE_S == {"standard": 1.0, "telnet": 60.0}
    assert "half a line for a second (`telnet`: for a minute, as a person types)" in page


def test_one_connection_too_many_is_hung_up_on(harness: Harness) -> None:
    harness.server.most = 2
    with harness.open() as a, harness.open() as b:
        for client in (a, b):
            client.ask(b"r000\n", b"v000\n")
        with harness.open() as late:
            late.closed()
        assert harness.server.counters["slots_hung_up_on"] == 1
        a.ask(b"r000\n", b"v000\n")


def test_commands_before_the_end_of_input_are_answered(harness: Harness) -> None:
    with harness.open() as client:
        client.send(b"w000x\nr000\n")
        client.sock.shutdown(socket.SHUT_WR)
        client.expect(b"v000x\nv000x\n")
        client.closed()


def test_figures_count_what_happened(harness: Harness) -> None:
    with harness.open() as client:
        client.ask(b"r000\nw014x\nupepe\n", b"v000\na014x\nv0141/1/0\nvpepe\n")
        client.ask(b"pwrong\n", b"exxx004\n")
        client.closed()
    found = harness.call(harness.server.figures)
    assert found["slots_requests"] == 4
    assert found["slots_events"] == 1
    assert found["slots_logins_refused"] == 1
    assert found["slots_connections"] == 1


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*openssl, *made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def tls_of(pair: tuple[Path, Path]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's, and one that trusts it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    return context, ssl.create_default_context(cafile=str(pair[0]))


def test_behind_tls_all_is_the_same(pair: tuple[Path, Path]) -> None:
    context, trusting = tls_of(pair)
    with Harness(slots_of(), tls=context) as harness:

        def dial() -> Client:
            return Client(trusting.wrap_socket(harness.open().sock, server_hostname="127.0.0.1"))

        with harness.open() as plain:
            plain.send(b"r000\n" * 100)  # no handshake at all
            with dial() as client, dial() as other:
                client.ask(b"w000x\nr000\n", b"v000x\nv000x\n")
                other.ask(b"r0", b"exxx001\n")
                client.ask(b"w014hi\n", b"a014hi\nv0142/2/0\n")
                other.expect(b"a014hi\n")
                other.ask(b"upepe\npwrong\n", b"vpepe\nexxx004\n")
                other.closed()
                harness.call(lambda: harness.server.follow("b"))
                client.expect(b"exxx000b\n")
                client.closed()


@pytest.mark.parametrize("behind", ["nothing", "tls"])
def test_who_leaves_in_the_middle_of_its_signals_has_sent_them_and_writes_no_log(
    behind: str, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio has a warning for each write to a connection that is lost."""
    monkeypatch.setattr(session, "EVENTS_PER_TURN", 10)
    context, trusting = tls_of(pair) if behind == "tls" else (None, None)
    with Harness(slots_of(more={"100": {"kind": "multicast"}}), tls=context) as harness:

        def dial() -> Client:
            client = harness.open()
            return (
                client if trusting is None else Client(trusting.wrap_socket(client.sock, server_hostname="127.0.0.1"))
            )

        with dial() as listener:
            with dial() as client:
                client.send(b"w014x\n" * 200 + b"s100\n")
            listener.expect(b"a014x\n" * 200)
            with dial() as client:
                client.send(b"w014y\n" * 200)
                client.sock.shutdown(socket.SHUT_WR)
                listener.expect(b"a014y\n" * 200)
            harness.wait(lambda: harness.server.open_now() == 1)
            listener.ask(b"w100x\n", b"v1000/0/0\n")  # and whoever is gone is not registered
    assert [record.getMessage() for record in caplog.records] == []


def test_http_behind_tls(pair: tuple[Path, Path]) -> None:
    context, trusting = tls_of(pair)
    with Harness(slots_of("http"), tls=context) as harness:
        host, _, port = harness.server.address.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=LIMIT_S, context=trusting)
        try:
            connection.request("POST", "/000", b"x")
            assert connection.getresponse().read() == b"x"
            harness.call(lambda: harness.server.follow("b", "127.0.0.9:1"))
            connection.request("GET", "/000")
            assert connection.getresponse().getheader("Location") == "https://127.0.0.9:1/000"
        finally:
            connection.close()
