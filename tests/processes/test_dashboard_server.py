"""The dashboard's server, asked as a browser, a stranger and a slow reader would ask it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from primacy.control.client import FoundNode
from primacy.dashboard.access import COOKIE
from tests.support.dashboard_feed import KEY, Feed, Served, served
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=410)

WITHIN_S = 120.0
"""Far more than anything here takes: only a hang reaches it."""
ORDER = {"X-Primacy": "1", "Content-Type": "application/json"}


@pytest.fixture
def feed() -> Iterator[Feed]:
    one = Feed(list("abc")).start()
    one.story()
    yield one
    one.close()


@pytest.fixture
def board(feed: Feed) -> Iterator[Served]:
    with served(feed) as one:
        yield one


@pytest.fixture(autouse=True)
def streams_end() -> Iterator[None]:
    """Also after a test that failed: an open socket would be held against a later, innocent one."""
    yield
    while Stream.opened:
        Stream.opened.pop().close()


class Answer:
    def __init__(self, raw: http.client.HTTPResponse) -> None:
        self.status = raw.status
        self.headers = raw.headers
        self.data = raw.read()

    def json(self) -> Any:
        return json.loads(self.data)


def ask(board: Served, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=WITHIN_S)
    try:
        data = json.dumps(body) if body is not None else None
        connection.request(method, path, data, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def session(board: Served, **body: str) -> dict[str, str]:
    """The headers of a browser that signed in."""
    answer = ask(board, "POST", "/dashboard/login", body, ORDER)
    assert answer.status == 200, answer.data
    return {**ORDER, "Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


class Stream:
    """A browser's stream, frame by frame."""

    opened: ClassVar[list[Stream]] = []

    def __init__(self, board: Served, after: str = "", buffer_bytes: int = 0) -> None:
        self.opened.append(self)
        self.socket = socket.socket()
        if buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.socket.settimeout(WITHIN_S)
        self.socket.connect(("127.0.0.1", board.port))
        more = f"Last-Event-ID: {after}\r\n" if after else ""
        self.socket.sendall(f"GET /dashboard/stream HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.id = ""

    def frame(self) -> dict[str, Any]:
        for line in self.file:
            if line.startswith(b"id: "):
                self.id = line[4:].strip().decode()
            if line.startswith(b"data: "):
                found: dict[str, Any] = json.loads(line[6:])
                return found
        raise EOFError

    def until(self, check: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        last_s = time.monotonic() + WITHIN_S
        while time.monotonic() < last_s:
            frame = self.frame()
            if check(frame):
                return frame
        raise AssertionError("it never came")

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def is_seen(frame: dict[str, Any]) -> bool:
    """The cluster was read: a browser that comes first is not kept waiting for that for ever."""
    return frame["parts"].get("job", {}).get("node") == "a"


# --- reading ----------------------------------------------------------------------------------------------------------


def test_the_stream_begins_with_everything_and_goes_on_with_what_is_new(feed: Feed, board: Served) -> None:
    stream = Stream(board)
    first = stream.frame()
    assert first["whole"] is True
    told, job = [row[4] for row in first["events"]], first["parts"]["job"]["text"]
    while len(told) < len(feed.events) or job != "Running on a":
        frame = stream.frame()
        told += [row[4] for row in frame["events"]]
        job = frame["parts"].get("job", {"text": job})["text"]
    assert told == [event["text"] for event in feed.events], "each once, in their order"
    feed.move_to("b")
    news = stream.until(lambda frame: "job" in frame["parts"] and frame["parts"]["job"]["node"] == "b")
    assert news["whole"] is False
    stream.close()


def test_a_browser_that_was_away_for_a_moment_gets_only_what_it_lacks(feed: Feed, board: Served) -> None:
    news = "c was told of while nobody looked"
    stream = Stream(board)
    came = 0
    while came < len(feed.events):  # the story may come in several frames
        came += len(stream.frame()["events"])
    seen = stream.id
    stream.close()
    feed.tell("c", "follows", news)
    again, told = Stream(board, seen), []
    while news not in told:
        frame = again.frame()
        assert frame["whole"] is False
        told += [row[4] for row in frame["events"]]
    assert told == [news]
    again.close()
    stale = Stream(board, "00000000-3")
    assert stale.frame()["whole"] is True
    stale.close()


def test_a_node_that_goes_and_comes_back_is_said_and_its_events_go_on(feed: Feed, board: Served) -> None:
    stream = Stream(board)
    stream.until(is_seen)
    feed.stop()
    lost = stream.until(lambda frame: "source" in frame["parts"] and not frame["parts"]["source"]["ok"])
    assert lost["parts"]["source"]["since_unix_ms"] > 0
    feed.tell("b", "paused", "b is paused while nobody could hear it")
    feed.start()
    came: set[str] = set()

    def both(frame: dict[str, Any]) -> bool:
        came.update({"source"} if frame["parts"].get("source", {}).get("ok") else set())
        came.update({"event"} if any(row[3] == "paused" for row in frame["events"]) else set())
        return len(came) == 2

    stream.until(both)
    stream.close()


def test_a_node_that_is_started_later_is_read_and_may_be_the_last(feed: Feed) -> None:
    """As with `node start`: the page is opened beside the first node, and that one is killed."""
    later = Feed(list("abc")).start()
    later.leader = "b"
    found: dict[str, Any] = {"first": lambda: FoundNode("127.0.0.1", feed.port, KEY)}
    try:
        with served(feed, nodes=(), more=lambda: found) as board:
            stream = Stream(board)
            stream.until(is_seen)
            found["second"] = lambda: FoundNode("127.0.0.1", later.port, KEY)
            feed.stop()
            stream.until(lambda frame: frame["parts"].get("job", {}).get("node") == "b")
            stream.close()
    finally:
        later.close()


def test_one_look_serves_all_browsers(feed: Feed, board: Served) -> None:
    streams = [Stream(board) for _ in range(8)]
    for stream in streams:
        stream.frame()
    for _ in range(3):
        feed.tell("a", "follows", "something to tell all of them")
        frames = [stream.until(lambda frame: frame["events"]) for stream in streams]
    assert feed.most_streaming == 1
    assert frames
    for stream in streams:
        stream.close()


def test_a_slow_browser_is_dropped_and_nobody_waits_for_it(feed: Feed, board: Served) -> None:
    """It never reads, while far more is said than fits into the buffers between; the other one reads all the time."""
    slow, quick = Stream(board, buffer_bytes=4_096), Stream(board)
    assert board.board is not None
    hub, number, read, ended = board.board.hub, 0, [0], threading.Event()

    def reads() -> None:
        """In a thread: however late it is told what to wait for, it falls behind no more than the server does."""
        while not any(row[4] == "the last word" for row in quick.frame()["events"]):
            read[0] += 1
        ended.set()

    reader = threading.Thread(target=reads, daemon=True)
    reader.start()
    last_s = time.monotonic() + WITHIN_S
    while not hub.dropped and time.monotonic() < last_s:
        before = read[0]
        for _ in range(150):
            number += 1
            feed.tell("a", "follows", f"{number} " + "x" * 480)
        wait_until(lambda before=before: read[0] > before, "a frame: one that waits for the other would get none")
    assert hub.dropped == 1
    feed.tell("a", "follows", "the last word")
    wait_until(ended.is_set, "the last word", WITHIN_S)
    reader.join(WITHIN_S)
    slow.close()
    quick.close()


def test_the_raw_document_is_the_nodes_own_or_what_others_heard(board: Served) -> None:
    stream = Stream(board)
    stream.until(is_seen)
    own = ask(board, "GET", "/dashboard/node?node=a").json()
    assert own["from"] == "itself"
    assert own["document"]["counters"]["datagrams_in"] > 0
    assert ask(board, "GET", "/dashboard/node?node=b").json()["from"] == "others"
    assert ask(board, "GET", "/dashboard/node?node=zz").status == 400
    stream.close()


# --- headers and files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/dashboard", "/dashboard/static/app.js", "/dashboard/me", "/nothing", "/dashboard/order"]
)
def test_every_answer_carries_the_policy(board: Served, path: str) -> None:
    headers = ask(board, "GET", path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    "name", ["../view.py", "..%2fview.py", "pages/../../view.py", "/etc/passwd", "%00", "nothing.js"]
)
def test_only_the_files_of_the_page_are_served(board: Served, name: str) -> None:
    assert ask(board, "GET", f"/dashboard/static/{name}").status == 404


def test_an_unchanged_file_is_not_sent_again(board: Served) -> None:
    tag = ask(board, "GET", "/dashboard/static/app.js").headers["ETag"]
    assert ask(board, "GET", "/dashboard/static/app.js", headers={"If-None-Match": tag}).status == 304


# --- changing ---------------------------------------------------------------------------------------------------------


def test_no_change_without_the_key(feed: Feed, board: Served) -> None:
    answer = ask(board, "POST", "/dashboard/order", {"do": "pause", "node": "b"}, ORDER)
    assert answer.status == 403
    assert "control key" in answer.json()["error"]
    assert ask(board, "POST", "/dashboard/login", {"key": "0" * 64}, ORDER).status == 403
    assert feed.orders == []
    assert ask(board, "GET", "/dashboard/me").json()["may_change"] is False


def test_with_the_key_or_the_link_an_order_is_passed_on(feed: Feed, board: Served) -> None:
    stream = Stream(board)
    stream.until(is_seen)
    for headers in (session(board, key=KEY), session(board, code=board.code())):
        assert ask(board, "GET", "/dashboard/me", headers=headers).json()["may_change"] is True
        answer = ask(board, "POST", "/dashboard/order", {"do": "pause", "node": "b"}, headers)
        assert (answer.status, answer.json()["said"]) == (200, "b is paused: it will not lead.")
    assert feed.orders == [("/v1/pause", {"node": "b"})] * 2
    ask(board, "POST", "/dashboard/logout", {}, headers)
    assert ask(board, "POST", "/dashboard/order", {"do": "resume", "node": "b"}, headers).status == 403
    stream.close()


def test_the_cookie_is_for_nobody_else(board: Served) -> None:
    answer = ask(board, "POST", "/dashboard/login", {"key": KEY}, ORDER)
    cookie = answer.headers["Set-Cookie"]
    for word in (COOKIE, "HttpOnly", "SameSite=Strict", "Path=/dashboard"):
        assert word in cookie
    assert KEY not in cookie


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"X-Primacy": ""}, "X-Primacy"),
        ({"Host": "evil.example"}, "Host"),
        ({"Host": "evil.example:8081"}, "Host"),
        ({"Origin": "http://evil.example"}, "this page"),
        ({"Origin": "null"}, "this page"),
    ],
)
def test_a_page_of_another_site_changes_nothing_even_with_the_cookie(
    feed: Feed, board: Served, headers: dict[str, str], why: str
) -> None:
    good = session(board, key=KEY)
    bad = {**good, **headers}
    if bad.get("X-Primacy") == "":
        del bad["X-Primacy"]
    for path in ("/dashboard/order", "/dashboard/login", "/dashboard/logout"):
        answer = ask(board, "POST", path, {"do": "pause", "node": "b"}, bad)
        assert answer.status == 403
        assert why in answer.json()["error"]
    assert feed.orders == []


def test_a_foreign_host_reads_nothing_either(board: Served) -> None:
    for path in ("/dashboard", "/dashboard/stream", "/dashboard/me"):
        assert ask(board, "GET", path, headers={"Host": "evil.example"}).status == 403


def test_a_refusal_of_the_node_comes_back_as_its_sentence(feed: Feed, board: Served) -> None:
    stream = Stream(board)
    stream.until(is_seen)
    feed.refuse = "node b is a witness, and cannot lead"
    answer = ask(board, "POST", "/dashboard/order", {"do": "transfer", "node": "b"}, session(board, key=KEY))
    assert (answer.status, answer.json()["error"]) == (409, "node b is a witness, and cannot lead")
    feed.refuse = ""
    feed.stop()
    gone = ask(board, "POST", "/dashboard/order", {"do": "transfer", "node": "b"}, session(board, key=KEY))
    assert gone.status == 504
    assert "nothing answers" in gone.json()["error"]
    feed.start()
    stream.close()


def test_bodies_are_bounded_and_must_be_objects(board: Served) -> None:
    headers = session(board, key=KEY)
    assert ask(board, "POST", "/dashboard/order", {"do": "x" * 20_000}, headers).status == 413
    assert ask(board, "POST", "/dashboard/order", [1], headers).status == 400
    assert ask(board, "POST", "/dashboard/order", {"do": 5}, headers).status == 400
    assert board.complaints == []


def test_off_loopback_reading_needs_a_session_too(feed: Feed) -> None:
    with served(feed, loopback=False, secure=True) as board:
        assert ask(board, "GET", "/dashboard").status == 200, "the page itself, which holds nothing"
        for path in ("/dashboard/stream", "/dashboard/node?node=a"):
            assert ask(board, "GET", path).status == 401
        assert ask(board, "GET", "/dashboard/me").json()["may_read"] is False
        headers = session(board, code=board.code())
        last_s = time.monotonic() + WITHIN_S
        while (status := ask(board, "GET", "/dashboard/node?node=a", headers=headers).status) != 200:
            assert status == 400, "the node was not read yet; nothing else would be right"
            assert time.monotonic() < last_s
        cookie = ask(board, "POST", "/dashboard/login", {"key": KEY}, ORDER).headers["Set-Cookie"]
        assert "Secure" in cookie


def are_cut(frame: dict[str, Any]) -> int:
    return sum(link["state"] == "cut" for link in frame["parts"].get("links", ()))


# --- the lab ----------------------------------------------------------------------------------------------------------


def test_in_a_lab_everybody_on_this_machine_may_break_things_but_no_other_site() -> None:
    feed = Feed(list("abcde"), lab=True).start()
    try:
        with served(feed) as board:
            stream = Stream(board)
            stream.until(lambda frame: frame["parts"].get("job", {}).get("node"))
            answer = ask(board, "POST", "/dashboard/order", {"do": "picture", "name": "cut-leader"}, ORDER)
            assert answer.status == 200, answer.data
            assert [path for path, _ in feed.orders] == ["/v1/lab/links"] * 3
            stream.until(lambda frame: are_cut(frame) == 3)  # they may be seen one after the other
            assert ask(board, "POST", "/dashboard/order", {"do": "heal"}, {"Content-Type": "text/plain"}).status == 403
            stream.close()
    finally:
        feed.close()
