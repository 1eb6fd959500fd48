"""Slots over HTTP: every recorded exchange through real sockets, streams, redirects, and those who do not behave."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from primacy.slots import http as slots_http
from tests.support.slots_harness import DATA, LIMIT_S, Client, Harness, slots_of

EXCHANGES = {each["id"]: each for each in DATA["http"]}


@pytest.fixture
def harness() -> Iterator[Harness]:
    with Harness(slots_of("http", {"100": {"kind": "multicast"}, "101": {"kind": "random"}})) as found:
        yield found


def asked(harness: Harness, request: dict[str, Any]) -> tuple[http.client.HTTPResponse, bytes]:
    host, _, port = harness.server.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_S)
    headers = {}
    if request.get("basic_auth"):
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(request["basic_auth"]).encode()).decode()
    connection.request(request["method"], request["path"], request.get("body"), headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def get(harness: Harness, path: str, **more: Any) -> tuple[int, bytes]:
    answer, body = asked(harness, {"method": "GET", "path": path, **more})
    return answer.status, body


def post(harness: Harness, path: str, body: bytes | str, **more: Any) -> tuple[int, bytes]:
    answer, said = asked(harness, {"method": "POST", "path": path, "body": body, **more})
    return answer.status, said


def check(answer: http.client.HTTPResponse, body: bytes, wanted: dict[str, Any], method: str) -> None:
    assert answer.status == wanted["status"], body
    assert body.decode() == (wanted["body"] if method != "HEAD" else "")
    for name, value in wanted.get("headers", {}).items():
        assert answer.getheader(name) == value


@pytest.mark.parametrize("name", [each for each in EXCHANGES if "sse" not in each])
def test_exchange(harness: Harness, name: str) -> None:
    exchange = EXCHANGES[name]
    if name == "http-timeout-owner":
        assert post(harness, "/003", "first") == (200, b"first")
    check(*asked(harness, exchange["request"]), exchange["answer"], exchange["request"]["method"])


def test_there_are_all_of_them() -> None:
    assert len(EXCHANGES) == 20


class Listener:
    """A reader of a stream, on a bare socket."""

    def __init__(self, harness: Harness, path: str, more: str = "") -> None:
        self.client: Client = harness.open()
        self.client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
        self.status = int(self.client.line().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self.client.line().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            self.headers[name] = value

    def event(self) -> bytes:
        """The next chunk, as it was sent."""
        size = int(self.client.line(), 16)
        found = b""
        while len(found) < size:
            more = self.client.sock.recv(size - len(found))
            assert more, f"the stream ended after {found!r}"
            found += more
        self.client.expect(b"\r\n")
        return found

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()


def reads(harness: Harness, count: int) -> None:
    harness.wait(lambda: harness.server.open_now() == count)


def test_exchange_http_sse_and_its_event(harness: Harness) -> None:
    opened, event = EXCHANGES["http-sse"]["answer"], EXCHANGES["http-sse-event"]["answer"]
    with Listener(harness, "/014") as stream:
        assert stream.status == opened["status"]
        assert opened["headers"].items() <= stream.headers.items()
        reads(harness, 1)
        stream.client.silent(0.2)
        check(*asked(harness, EXCHANGES["http-sse-event"]["request"]), event["post"], "POST")
        assert stream.event().decode() == event["stream_bytes"]


def test_exchange_http_sse_of_another_slot(harness: Harness) -> None:
    """Ghoti's program sends every stream the events of all slots, protected ones, too."""
    wanted = EXCHANGES["http-sse-all-slots"]
    with Listener(harness, "/014") as stream:
        reads(harness, 1)
        check(*asked(harness, wanted["request"]), wanted["answer"]["post"], "POST")
        assert post(harness, "/014", "mine") == (200, b"1/1/0")
        assert stream.event() == b"data: a014mine\n\n"


def test_a_protected_stream_needs_the_right_to_read(harness: Harness) -> None:
    secret = "Authorization: Basic " + base64.b64encode(b"pepe:passw0rd").decode() + "\r\n"
    with Listener(harness, "/019") as nobody, Listener(harness, "/019", secret) as pepe:
        assert (nobody.status, pepe.status) == (403, 200)
        reads(harness, 1)
        assert post(harness, "/019", "x", basic_auth=["bobby", "otherPassw0rd"]) == (200, b"1/1/0")
        assert pepe.event() == b"data: a019x\n\n"


def test_multicast_and_random_are_streams_too(harness: Harness) -> None:
    with (
        Listener(harness, "/100") as a,
        Listener(harness, "/100") as b,
        Listener(harness, "/101") as c,
        Listener(harness, "/101"),
    ):
        reads(harness, 4)
        assert post(harness, "/100", "all") == (200, b"2/2/0")
        assert a.event() == b.event() == b"data: a100all\n\n"
        for _ in range(40):
            assert post(harness, "/101", "one") == (200, b"1/1/0")
        assert c.event().startswith(b"data: a101one\n\n")
    reads(harness, 0)  # a reader that leaves is noticed
    assert post(harness, "/100", "nobody") == (200, b"0/0/0")


def test_a_stream_ends_with_the_leadership_and_requests_are_redirected(harness: Harness) -> None:
    with Listener(harness, "/014") as stream:
        reads(harness, 1)
        harness.call(lambda: harness.server.follow("node9", "10.0.0.9:25873"))
        assert stream.client.rest() == b"0\r\n\r\n"
    for request in ({"method": "GET", "path": "/014"}, {"method": "POST", "path": "/000", "body": "x"}):
        answer, body = asked(harness, request)
        assert (answer.status, body) == (307, b"not the cluster leader\n")
        assert answer.getheader("Location") == "http://10.0.0.9:25873" + request["path"]
    harness.call(lambda: harness.server.follow("node9"))
    answer, body = asked(harness, {"method": "GET", "path": "/000"})
    assert (answer.status, body) == (503, b"not the cluster leader\n")
    assert answer.getheader("X-Primacy-Leader") == "node9"
    assert get(harness, "/abc") == (400, b"error: 001\n")


def test_nothing_is_answered_under_a_hold_that_has_run_out(harness: Harness) -> None:
    harness.call(lambda: harness.server.lead(harness.clock.now_ms() + 1_000))
    assert post(harness, "/000", "x") == (200, b"x")
    harness.clock.ms += 1_000
    assert get(harness, "/000")[0] == 503


def test_a_value_on_two_lines_is_refused(harness: Harness) -> None:
    assert post(harness, "/000", "a\nb") == (400, b"error: 001\n")
    assert post(harness, "/014", "a\rb") == (400, b"error: 001\n")
    assert get(harness, "/000") == (200, b"")


def test_a_reader_of_a_stream_that_does_not_read_is_dropped(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_http, "STALL_S", 0.5)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    host, _, port = harness.server.address.rpartition(":")
    sock.connect((host, int(port)))
    with Client(sock) as slow:
        slow.send(b"GET /014 HTTP/1.1\r\nHost: x\r\n\r\n")
        reads(harness, 1)

        def flood() -> None:
            board = harness.server.hall.board
            for _ in range(100):
                board.send(b"014", board.signal(b"014"), b"x" * 36, 0)

        until = time.monotonic() + LIMIT_S
        while harness.server.counters["slots_dropped_slow"] == 0:
            harness.call(flood)
            assert time.monotonic() < until
        reads(harness, 0)
    assert get(harness, "/000") == (200, b"")


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /000 HTTP/9.9\r\n\r\n",
        b"POST /000 HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /000 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /%ff%fe%fd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /000 HTTP/1.1\r\nHost: x\r\nAuthorization: Basic ????\r\n\r\n",
        b"GET /000 HTTP/1.1\r\nHost: x\r\nAuthorization: Basic /////w==\r\n\r\n",
        b"GET /" + b"0" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"\x00\xff" * 500,
    ],
)
def test_what_is_no_request_harms_nobody(harness: Harness, data: bytes) -> None:
    with harness.open() as client:
        with contextlib.suppress(OSError):  # the server may have hung up already
            client.send(data)
            client.sock.shutdown(socket.SHUT_WR)
        client.rest()
    assert get(harness, "/000") == (200, b"")
