"""The parts of an agent: the status is made in one place, events go one way, and nobody is handed the agent itself."""

from __future__ import annotations

import ast
import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import primacy.agent
from primacy.agent.events import EventSink
from primacy.agent.status import StatusSource
from primacy.control.eventlog import EventLog
from primacy.control.gossip_rows import GossipEvent
from primacy.election.events import Code, Event
from primacy.election.model import Role
from primacy.node.clock import SystemClock
from primacy.node.folder import Folder
from primacy.node.log import Log
from primacy.supervise.vocabulary import Happened, Note

ROOM = Path(primacy.agent.__file__).parent


def test_the_agent_hands_itself_to_nobody_and_inherits_nothing() -> None:
    (agent,) = (
        each
        for each in ast.walk(ast.parse((ROOM / "lifecycle.py").read_text()))
        if isinstance(each, ast.ClassDef) and each.name == "Agent"
    )
    assert not agent.bases
    for call in (each for each in ast.walk(agent) if isinstance(each, ast.Call)):
        given = [*call.args, *(each.value for each in call.keywords)]
        assert not [each for each in given if isinstance(each, ast.Name) and each.id == "self"], ast.unparse(call)
    for kept in (each for each in ast.walk(agent) if isinstance(each, ast.Assign)):
        assert not (isinstance(kept.value, ast.Name) and kept.value.id == "self"), ast.unparse(kept)


def test_nobody_in_the_agent_asks_for_the_class_of_a_strategy_or_of_a_workload() -> None:
    for path in sorted(ROOM.glob("*.py")):
        for call in (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == "isinstance":
                asked = ast.unparse(call.args[1])
                assert "Strategy" not in asked, f"{path.name}: {ast.unparse(call)}"
                assert "Workload" not in asked, f"{path.name}: {ast.unparse(call)}"


def test_an_event_is_recorded_once_and_told_to_whoever_wants_it(tmp_path: Path) -> None:
    async def play() -> None:
        folder = Folder(str(tmp_path / "state"))
        silent = os.open(os.devnull, os.O_WRONLY)
        log = EventLog(folder, lambda _: None)
        sink = EventSink("a", SystemClock(), Log(SystemClock(), handle=silent), log, lambda: 7)
        told: list[tuple[str, Any, int]] = []
        sink.on_event.append(lambda event: told.append(("event", event.code, log.newest)))
        sink.on_note.append(lambda note: told.append(("note", note.what, log.newest)))
        sink.on_record.append(lambda event: told.append(("others", event.code, log.newest)))
        sink.on_heard.append(lambda node, event: told.append((node, event.code, log.newest)))
        sink.recorded([Event(Code.ELECTED, 3, "a")])
        assert told == [("event", Code.ELECTED, 0), ("others", Code.ELECTED, 1)]
        told.clear()
        sink.recorded([Event(Code.RECOVERING, 3), Event(Code.RECOVERED, 3)])
        assert told == [("event", Code.RECOVERING, 1), ("event", Code.RECOVERED, 1)], "so brief a recovery is no news"
        told.clear()
        sink.note(Note(Happened.RUNNING, 1, 77), 3)
        assert told == [("others", Happened.RUNNING, 2), ("note", Happened.RUNNING, 2)]
        told.clear()
        sink.alert("two leaders")
        assert told == [], "each node sees for itself what calls for an alert"
        sink.heard_event("b", GossipEvent(5, 4, "running", "b runs", 0))
        assert told == [("b", "running", 3)], "what another node says is not told again"
        sink.remark("hook", False, "the hook lost ended with code 3")
        kept = [(entry.node, entry.term, entry.code) for entry in log.last(10)]
        mine = [("a", 3, "elected"), ("a", 3, "running"), ("a", 7, "alert")]
        assert kept == [*mine, ("b", 4, "running"), ("a", 7, "hook")]
        await sink.close()
        assert len(EventLog(folder, lambda _: None).entries) == len(kept)
        os.close(silent)
        folder.close()

    asyncio.run(play())


def test_what_is_worth_telling_is_found_in_one_place_and_said_once() -> None:
    workload = SimpleNamespace(state="stopped", pid=0)
    strategy = SimpleNamespace(role=Role.FOLLOWER, term=1, leader="b", paused=False, healthy=True)
    waits = [""]
    members = [7]
    can = SimpleNamespace(recovering=lambda: waits[0], register=lambda: members[0])
    chosen = SimpleNamespace(strategy=strategy, can=can)
    gate: Any = SimpleNamespace(gate=SimpleNamespace(phase="idle"))
    parts: Any = (None, None, chosen, None, SimpleNamespace(view=lambda: workload), gate, None, None, True)
    source = StatusSource(*parts)
    assert source.has_changed()
    assert not source.has_changed()
    for part, field, value in (
        (strategy, "role", Role.LEADER),
        (strategy, "term", 2),
        (strategy, "leader", "a"),
        (strategy, "paused", True),
        (strategy, "healthy", False),
        (workload, "state", "running"),
        (workload, "pid", 77),
        (gate.gate, "phase", "approval"),
    ):
        setattr(part, field, value)
        assert source.has_changed(), field
        assert not source.has_changed(), field
    waits[0] = "no-memory"
    assert source.has_changed()
    members[0] = 8
    assert source.has_changed()
