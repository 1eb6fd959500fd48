"""Holds the conversations of `scripts.py` with real processes on loopback, and compares what they answer.

Numbers differ from run to run, and so do process ids, times and hashes that depend on ports: they become `#`. What
stays is every name, every word, every key of a document, and the order of lists.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.behaviour import commands
from tests.behaviour.manager_peer import ManagerPeer
from tests.behaviour.names import Names
from tests.behaviour.scripts import Script
from tests.support.ports import free_ports

LIMIT_S = 40.0
"""For a start and for an answer: only a hang reaches it."""
PORTS = 4
ADDRESS_FILE = "control.json"
LATE = ("late",)
"""Codes of events that a busy machine adds."""
VARYING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
    (r"\b(?=[a-f]*\d)[0-9a-f]{10,}\b", "#"),
    (r"(?<![a-zA-Z_\d])\d[\d.,]*", "#"),
    (r"# (us|ms|s|min|h)\b", "# SPAN"),
    (r"\s+", " "),
)
"""Times, random ids and hashes, numbers, units of spans, breaks of lines."""


class Conversation:
    """One process of the code at hand, and what it answers."""

    def __init__(self, script: Script, place: str) -> None:
        self.place = place
        self.ports = {f"P{n + 1}": port for n, port in enumerate(free_ports(PORTS))}
        self.script = script
        self.peer: ManagerPeer | None = None
        if script.peer:
            answers = {path: [status, self.filled(body)] for path, (status, body) in script.peer.items()}
            self.peer = ManagerPeer(self.ports["P3"], answers, self.plain)
        for name, text in script.files.items():
            Path(place, name).write_text(self.filled(text), encoding="utf-8")
        self.log = Path(place, "log")
        words = [self.filled(word) for word in script.start]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "primacy.cli.main", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=place,
                env=commands.environment(place),
            )

    def filled(self, text: str) -> str:
        text = text.replace("FOLDER", self.place)
        return re.sub(r"\bP\d\b", lambda found: str(self.ports[found[0]]), text)

    def plain(self, text: str) -> str:
        """Without what differs from run to run."""
        for name, port in self.ports.items():
            text = re.sub(rf"(?<!\d){port}(?!\d)", name, text)
        text = text.replace(self.place, "FOLDER")
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "HOST", text)
        for pattern, to in VARYING:
            text = re.sub(pattern, to, text)
        return text.strip()

    def wait_until_ready(self) -> None:
        last = time.monotonic() + LIMIT_S
        while time.monotonic() < last and self.process.poll() is None:
            try:
                if self._http(*self.script.ready[1:])[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError(f"{self.script.name} is not ready: {self.log.read_text()}")

    def said(self) -> list[Any]:
        """To every step; steps of the command line in one go, at the end, for each start of Python costs."""
        said = [self._answer(step) for step in self.script.steps]
        calls = [[self.filled(word) for word in step[1:]] for step in self.script.steps if step[0] == "cli"]
        answers = iter(commands.answers(calls, {}, self.place) if calls else [])
        return [self._plain_call(next(answers)) if one is None else one for one in said]

    def _plain_call(self, answer: dict[str, Any]) -> list[Any]:
        out = answer["out"]
        try:
            out = self._plain_json(json.loads(out))
        except ValueError:
            out = self.plain(out)
        return [answer["code"], out, self.plain(answer["err"])]

    def _answer(self, step: list[Any]) -> Any:
        match step:
            case ["http", *rest]:
                return list(self._http(*rest))
            case ["control", path]:
                return list(self._control(path))
            case ["peer"]:
                assert self.peer is not None, self.script.name
                return [list(request) for request in self.peer.requests(LIMIT_S)]
            case ["lines", port, text]:
                return self._lines(port, text)
            case _:
                return None

    def _http(self, port: str, method: str, path: str, headers: dict[str, str], body: str) -> tuple[Any, ...]:
        return self._asked("127.0.0.1", self.ports[port], method, path, headers, body)

    def _control(self, path: str) -> tuple[Any, ...]:
        found = next(Path(self.place).rglob(ADDRESS_FILE))
        where = json.loads(found.read_text())
        return self._asked(where["host"], where["port"], "GET", path, {}, "")

    def _asked(
        self, host: str, port: int, method: str, path: str, headers: dict[str, str], body: str
    ) -> tuple[Any, ...]:
        connection = http.client.HTTPConnection(host, port, timeout=LIMIT_S)
        try:
            connection.request(method, path, body.encode() or None, headers)
            answer = connection.getresponse()
            kept = {
                name: value for name, value in answer.getheaders() if name not in ("Date", "Content-Length", "Server")
            }
            shown = {name: self.plain(value) for name, value in sorted(kept.items())}
            return answer.status, shown, self._body(answer.read(), shown.get("Content-Type", ""))
        finally:
            connection.close()

    def _body(self, data: bytes, kind: str) -> Any:
        text = data.decode("utf-8", "replace")
        if "json" in kind:
            try:
                return self._plain_json(json.loads(text))
            except ValueError:
                return self.plain(text)
        if "version=" in kind:  # metrics: names, helps, types and labels
            return [self.plain(line if line.startswith("#") else line.rpartition(" ")[0]) for line in text.splitlines()]
        return self.plain(text)

    def _plain_json(self, value: Any) -> Any:
        match value:
            case dict():
                return {self.plain(str(key)): self._plain_json(item) for key, item in value.items()}
            case list():
                return [self._plain_json(item) for item in value if not _is_late(item)]
            case str():
                return self.plain(value)
            case bool() | None:
                return value
            case _:
                return "#"

    def _lines(self, port: str, text: str) -> list[str]:
        """All that is said at once, and all that comes back, until the other side hangs up."""
        with socket.create_connection(("127.0.0.1", self.ports[port]), timeout=LIMIT_S) as line:
            line.sendall(text.encode())
            found = b""
            while data := line.recv(65_536):
                found += data
        return found.decode("utf-8", "replace").split("\n")

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(LIMIT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.peer is not None:
                self.peer.close()


def _is_late(item: Any) -> bool:
    return isinstance(item, dict) and item.get("code") in LATE


def held(script: Script) -> list[Any]:
    """Everything that it answered, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="primacy-behaviour-") as place:
        conversation = Conversation(script, place)
        try:
            conversation.wait_until_ready()
            said = conversation.said()
        finally:
            code = conversation.end()
        return [*said, ["ended", code]]


def record(scripts: tuple[Script, ...]) -> list[dict[str, Any]]:
    return [{"script": list(script), "said": held(script)} for script in scripts]


def replay(recorded: list[dict[str, Any]], names: Names) -> list[tuple[str, object, object]]:
    """(step, expected, found) of each that differs."""
    differing: list[tuple[str, object, object]] = []
    for one in recorded:
        script = Script(*_renamed(one["script"], names.text))
        expected = _renamed(one["said"], names.text)
        steps = [*script.steps, ["end"]]
        for step, wanted, found in zip(steps, expected, held(script), strict=True):
            if wanted != found:
                said = " ".join(map(str, step))
                differing.append((f"{script.name}: {said}", *_first_other(wanted, found)))
    return differing


def _renamed(value: Any, text: Callable[[str], str]) -> Any:
    match value:
        case str():
            return text(value)
        case list() | tuple():
            return [_renamed(item, text) for item in value]
        case dict():
            return {text(key): _renamed(item, text) for key, item in value.items()}
        case _:
            return value


def _first_other(expected: Any, found: Any, where: str = "") -> tuple[str, str]:
    """As deep as they are alike."""
    if isinstance(expected, dict) and isinstance(found, dict) and list(expected) == list(found):
        for key, item in expected.items():
            if item != found[key]:
                return _first_other(item, found[key], f"{where}.{key}")
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            if one != other:
                return _first_other(one, other, f"{where}[{place}]")
    return f"{where or 'all'}: {expected!r}", f"{found!r}"
