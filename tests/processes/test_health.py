"""Health: what probes and monitors say, and what follows (pure); then real probes of real processes, and a monitor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from primacy.control import MonitorSays
from primacy.control.requests import order_of
from primacy.election.inputs import Health
from primacy.errors import Refused, UsageError
from primacy.node.clock import SystemClock
from primacy.settings import of_mapping
from primacy.settings.schema_work import Probe
from primacy.supervise.health import (
    MONITORS_MAX,
    Answered,
    AskProbe,
    Began,
    DropProbe,
    Effect,
    Given,
    HealthWatch,
    Note,
    Rule,
    Runs,
    Said,
    Tell,
    Woke,
)
from primacy.supervise.probes import HealthProbes, name_of, rule_of
from tests.processes.test_cli_agent import FILE, WITHIN_S, Node, Say, alive, free_ports, say, write_secret  # noqa: F401
from tests.support.safety_checks import safe

pytestmark = pytest.mark.beside(order=270)

EXAMPLES = Path(__file__).parents[2] / "examples"


class Bench:
    """One watch, told by hand; its notes are kept apart."""

    def __init__(self, *rules: Rule) -> None:
        self.watch = HealthWatch(rules)
        self.now = 1_000
        self.notes: list[Note] = []

    def give(self, given: Given) -> list[Effect]:
        effects = self.watch.step(self.now, given)
        self.notes += [effect for effect in effects if isinstance(effect, Note)]
        return [effect for effect in effects if not isinstance(effect, Note)]

    def wake(self) -> list[Effect]:
        assert self.watch.deadline_ms is not None
        self.now = self.watch.deadline_ms
        return self.give(Woke())

    def ask(self, ok: bool, detail: str = "") -> list[Effect]:
        """Until the only probe is asked; then it answers."""
        for _ in range(5):
            if self.watch.probes[0].asked:
                return self.give(Answered(0, ok, detail))
            self.wake()
        raise AssertionError("it is not asked")


ALWAYS = Rule("disk", running=False)
RUNNING = Rule("GET x", start_ms=5_000)


def test_so_many_failures_in_a_row_make_it_unhealthy_and_so_many_successes_end_it() -> None:
    b = Bench(ALWAYS)
    assert b.give(Began()) == [AskProbe(0)]
    for ok in (False, False, True, False, False):
        assert b.ask(ok, "full") == []
    assert b.ask(False, "full") == [Tell(Health(False, "disk: full"))]
    assert b.watch.failing == "disk: full"
    for ok in (False, True, False, True):
        assert b.ask(ok, "still full") == []
    assert b.ask(True) == [Tell(Health(True, ""))]
    assert [note.ok for note in b.notes] == [False, True]


def test_a_probe_is_asked_every_so_often_and_one_at_a_time() -> None:
    b = Bench(ALWAYS._replace(every_ms=700))
    b.give(Began())
    assert b.watch.deadline_ms is None  # it is asked: whoever asks keeps the limit of time
    b.now += 10_000
    assert b.give(Answered(0, True)) == []
    assert b.watch.deadline_ms == b.now + 700
    assert b.wake() == [AskProbe(0)]


def test_a_probe_of_the_command_is_asked_only_while_that_runs() -> None:
    b = Bench(RUNNING)
    assert b.give(Began()) == []
    assert b.watch.deadline_ms is None
    assert b.give(Runs(True)) == [AskProbe(0)]
    assert b.give(Runs(True)) == []
    assert b.give(Runs(False)) == [DropProbe(0)]
    assert b.give(Answered(0, False)) == []  # what it would have said is not wanted any more
    assert b.watch.deadline_ms is None


def test_a_command_that_starts_slowly_is_excused_until_it_first_answers_well() -> None:
    b = Bench(RUNNING)
    b.give(Runs(True))
    while b.now < 1_000 + 4_000:
        assert b.ask(False) == []
    assert b.ask(True) == []
    for _ in range(2):
        assert b.ask(False, "refused") == []
    assert b.ask(False, "refused") == [Tell(Health(False, "GET x: refused"))]
    slow = Bench(RUNNING)
    slow.give(Runs(True))
    while not slow.watch.failing:
        slow.ask(False)
    assert slow.now - 1_000 >= RUNNING.start_ms


def test_after_a_failure_of_the_command_the_node_rests_and_may_then_lead_again() -> None:
    b = Bench(RUNNING._replace(start_ms=0, failures=1))
    b.give(Runs(True))
    assert b.give(Answered(0, False, "refused")) == [Tell(Health(False, "GET x: refused"))]
    failed_ms = b.now
    b.now += 500
    assert b.give(Runs(False)) == []
    assert b.watch.deadline_ms == failed_ms + 30_000
    assert b.wake() == [Tell(Health(True, ""))]
    assert b.notes[-1].text == "this node has rested for 30,000 ms and may lead again"


def test_a_command_that_takes_long_to_stop_does_not_shorten_the_rest() -> None:
    b = Bench(RUNNING._replace(start_ms=0, failures=1, rest_ms=100))
    b.give(Runs(True))
    b.give(Answered(0, False, "refused"))
    for _ in range(6):
        assert Tell(Health(True, "")) not in b.wake()
        if b.watch.probes[0].asked:
            b.give(Answered(0, True))
    b.give(Runs(False))
    assert b.wake() == [Tell(Health(True, ""))]


def test_a_monitor_counts_at_once_and_its_silence_too_if_it_promised_to_speak() -> None:
    b = Bench()
    assert b.give(Said("net", False, "no route")) == [Tell(Health(False, "net: no route"))]
    assert b.give(Said("net", False, "no route")) == []
    assert b.give(Said("net", True)) == [Tell(Health(True, ""))]
    assert (b.watch.monitors, b.watch.deadline_ms) == ({}, None)
    assert b.give(Said("net", True, within_ms=5_000)) == []
    assert b.wake() == [Tell(Health(False, "net: silent for more than 5,000 ms"))]
    assert b.watch.deadline_ms is None
    assert b.give(Said("net", True, within_ms=5_000)) == [Tell(Health(True, ""))]
    assert [note.ok for note in b.notes] == [False, True, False, True]


def test_all_must_be_well() -> None:
    b = Bench(ALWAYS._replace(failures=1, successes=1))
    b.give(Began())
    assert b.give(Said("net", False, "no route")) == [Tell(Health(False, "net: no route"))]
    assert b.give(Answered(0, False, "full")) == []
    assert b.watch.failing == "disk: full"
    assert b.give(Said("net", True)) == []
    assert b.ask(True) == [Tell(Health(True, ""))]


def test_monitors_are_bounded() -> None:
    b = Bench()
    for number in range(MONITORS_MAX + 5):
        b.give(Said(f"m{number}", False, within_ms=1_000))
    assert len(b.watch.monitors) == MONITORS_MAX


def test_names_tell_no_password() -> None:
    assert name_of(Probe(http="http://ann:secret@h:1/p?q")) == "GET http://h:1/p"
    assert name_of(Probe(tcp="h:1")) == "TCP h:1"
    assert rule_of(Probe(command=("/usr/bin/check", "x"), when="always")).name == "command check"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ok": 1},
        {"ok": True, "detail": 3},
        {"ok": True, "detail": "x" * 201},
        {"ok": True, "monitor": "a b"},
        {"ok": True, "within_ms": -1},
        {"ok": True, "within_ms": True},
        {"ok": True, "more": 1},
    ],
)
def test_words_of_a_monitor_that_make_no_sense(body: dict[str, Any]) -> None:
    from tests.support.control_harness import node_status

    said = {"ok": False, "detail": "no route", "monitor": "net", "within_ms": 5_000}
    assert order_of("health", said, node_status()) == MonitorSays("net", False, "no route", 5_000)
    with pytest.raises(UsageError):
        order_of("health", body, node_status())


# --- real ones --------------------------------------------------------------------------------------------------------


def healthy(state: dict[str, Any]) -> bool:
    return state["health"] == "ok" and state["workload"]["state"] == "running"


def test_probes_that_are_always_asked_step_the_node_down_and_let_it_back(say: Say, tmp_path: Path) -> None:  # noqa: F811
    """All three kinds at once, each made to fail in turn."""
    answers = [200]

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers[0])
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    page = HTTPServer(("127.0.0.1", 0), Page)
    serving = Thread(target=page.serve_forever, daemon=True)
    serving.start()
    tcp_port = free_ports(1)[0]  # it is closed and opened again
    port = socket.create_server(("127.0.0.1", tcp_port))
    each = "when: always, every_ms: 30, timeout_ms: 2000, failures: 2, successes: 2"
    (tmp_path / "primacy.yaml").write_text(
        "run:\n  health:\n"
        f"    - {{http: 'http://127.0.0.1:{page.server_port}/ok', {each}}}\n"
        f"    - {{tcp: '127.0.0.1:{tcp_port}', {each}}}\n"
        f"    - {{command: [test, '!', -e, sick], {each}}}\n"
    )
    node = Node(tmp_path)
    try:
        before = node.until(say, healthy, "a healthy node")
        answers[0] = 503
        state = node.until(say, lambda s: s["workload"]["state"] == "stopped", "a step-down")
        assert state["health"] == f"failing: GET http://127.0.0.1:{page.server_port}/ok: it answered 503"
        assert state["waits_for"].startswith("its health to return: GET http://")
        safe(not alive(before["workload"]["pid"]), "something of it lives")
        answers[0] = 204
        node.until(say, healthy, "recovery of the page")
        port.close()
        node.until(say, lambda s: s["health"] == f"failing: TCP 127.0.0.1:{tcp_port}: Connection refused", "no port")
        port = socket.create_server(("127.0.0.1", tcp_port))
        node.until(say, healthy, "recovery of the port")
        (tmp_path / "sick").touch()
        node.until(say, lambda s: s["health"] == "failing: command test: it ended with code 1", "a failing command")
        (tmp_path / "sick").unlink()
        after = node.until(say, healthy, "recovery of the command")
        assert after["term"] > before["term"]
        said = say("why", "--state-dir", node.state, "--last", "1000").out
        assert "failed 2 times in a row: it answered 503" in said
        assert "command test is well again, 2 times in a row" in said
    finally:
        code = node.end()
        page.shutdown()
        serving.join()
        page.server_close()
        port.close()
    assert code == 0


def test_a_probe_of_the_command_moves_the_job_to_another_node_and_this_one_rests(
    say: Say,  # noqa: F811
    tmp_path: Path,
) -> None:
    names = ("a", "b", "c")
    listed = ", ".join(f'{n}: {{addr: "127.0.0.1:{p}"}}' for n, p in zip(names, free_ports(3), strict=True))
    limits = "every_ms: 30, timeout_ms: 2000, failures: 2, start_ms: 0, rest_ms: 600000"
    file = FILE.format(nodes=listed).replace("explicit", "auto")
    (tmp_path / "primacy.yaml").write_text(file)  # for the commands
    for name in names:  # each can be made sick by itself
        probe = f"{{command: [test, '!', -e, sick-{name}], {limits}}}"
        (tmp_path / f"{name}.yaml").write_text(file + f"run: {{health: [{probe}]}}\n")
    write_secret(tmp_path / "secret")
    nodes = {
        name: Node(tmp_path, state=f"state-{name}", front=("--config", f"{name}.yaml", "--node", name))
        for name in names
    }
    try:
        led = nodes["a"].until(say, lambda s: s["acting"], "somebody who acts")["acting"][0]
        (tmp_path / f"sick-{led}").touch()
        sick = nodes[led].until(say, lambda s: s["health"] != "ok", "an unhealthy leader")
        assert sick["health"] == "failing: command test: it ended with code 1"
        other = nodes[led].until(say, lambda s: s["acting"] and s["acting"] != [led], "another one who acts")
        assert other["health"] != "ok"
        row = next(row for row in other["rows"] if row["node"] == other["acting"][0])
        assert row["health"] == "ok"
    finally:
        codes = [node.end() for node in nodes.values()]
    assert codes == [0, 0, 0]


def test_a_probe_that_hangs_is_killed_and_fails(say: Say, tmp_path: Path) -> None:  # noqa: F811
    probe = (
        "{command: [sh, -c, 'echo $$ >> pids; sleep 300'], when: always, every_ms: 30, timeout_ms: 100, failures: 2}"
    )
    (tmp_path / "primacy.yaml").write_text(f"run: {{health: [{probe}]}}\n")
    node = Node(tmp_path)
    pids = tmp_path / "pids"
    node.until(say, lambda s: s["health"] == "failing: command sh: no end within 100 ms", "a probe that is late")
    node.until(say, lambda _: pids.exists() and "\n" in pids.read_text(), "a probe that came so far")
    assert node.end() == 0
    last = time.monotonic() + WITHIN_S
    while [pid for pid in pids.read_text().split() if alive(int(pid))]:
        assert time.monotonic() < last, "it lives on"


def test_the_example_monitor_has_the_last_word_and_so_has_its_silence(say: Say, tmp_path: Path) -> None:  # noqa: F811
    monitor = EXAMPLES / "monitor.py"
    assert len(monitor.read_text().splitlines()) <= 40
    node = Node(tmp_path)
    node.runs(say)
    folder = os.path.join(node.state, "primacy/main")
    call = [sys.executable, "-I", "-S", str(monitor), folder, "100", "test", "!", "-e", str(tmp_path / "sick")]
    watching = subprocess.Popen(call)
    try:
        (tmp_path / "sick").touch()
        wrong = "failing: monitor.py: test ended with 1"
        node.until(say, lambda s: (s["workload"]["state"], s["health"]) == ("stopped", wrong), "a step-down")
        (tmp_path / "sick").unlink()
        node.until(say, healthy, "recovery")
        watching.send_signal(signal.SIGSTOP)
        node.until(say, lambda s: "monitor.py: silent for more than" in s["health"], "a silence that counts")
        watching.send_signal(signal.SIGCONT)
        node.until(say, healthy, "recovery")
    finally:
        watching.kill()
        watching.wait()
        code = node.end()
    assert code == 0


def test_a_monitor_too_many_is_refused_and_never_seems_to_be_heard(tmp_path: Path) -> None:
    async def play() -> None:
        told: list[Any] = []
        found = HealthProbes((), SystemClock(), str(tmp_path), told.append, lambda ok, text: told.append((ok, text)))
        for number in range(MONITORS_MAX):
            found.said(f"m{number}", True, "", 60_000)
        with pytest.raises(Refused, match="disk is not heard"):
            found.said("disk", False, "it is gone", 0)
        assert told == []
        found.said("m0", True, "", 0)
        found.said("disk", False, "it is gone", 0)
        assert found.sentence == "failing: disk: it is gone"
        await found.close()

    asyncio.run(play())


@pytest.mark.parametrize("url", ["http://[::1", "http://h:99999/", "https://h:port/", "http://:80/", "http://a b/"])
def test_a_probe_that_asks_no_url_is_found_by_the_check(url: str) -> None:
    with pytest.raises(UsageError, match=r"run\.health\[0\]\.http.*no URL"):
        of_mapping({"run": {"health": [{"http": url}]}})
