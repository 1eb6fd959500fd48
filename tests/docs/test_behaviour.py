"""The recorder and the comparer of `tests/behaviour`: the same code is equal, and every kind of change is noticed."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primacy.election import messages
from primacy.election.raft.strategy import RaftStrategy
from tests.behaviour import surfaces
from tests.behaviour.__main__ import main
from tests.behaviour.names import NameMissing, Names
from tests.behaviour.replay import Compared, replay_trial, replay_trials
from tests.behaviour.scripts import SCRIPTS
from tests.behaviour.trials import STRATEGIES, outcome_of, path_of, record_trial, record_trials
from tests.behaviour.values import same

pytestmark = pytest.mark.beside(order=25)

Line = list[Any]
LENGTH = 0.2
"""Shorter trials say as much of the recorder."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials of each strategy."""
    folder = tmp_path_factory.mktemp("recorded")
    assert len(list(record_trials(folder, 2, 1, length=LENGTH))) == 2 * len(STRATEGIES)
    return folder


@pytest.fixture
def trial(recorded: Path, tmp_path: Path) -> Path:
    """A copy of one of them, to be changed."""
    return Path(shutil.copy(path_of(recorded, "raft", 1), tmp_path))


def changed(path: Path, change: Callable[[Line], bool], most: int = 1) -> Line:
    """Writes the log anew, with the first lines changed that `change` says it has changed. Returns the last of them."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    found: list[Line] = []
    for place, text in enumerate(lines):
        line = json.loads(text)
        if isinstance(line, list) and len(found) < most and change(line):
            lines[place] = json.dumps(line)
            found.append(line)
    assert found, "no line can be changed so"
    path.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    return found[-1]


def differs(path: Path, names: Names | None = None) -> str:
    found = replay_trial(path, names or Names())
    assert found.differing
    return str(found.first)


def test_the_same_code_does_the_same_in_every_strategy(recorded: Path) -> None:
    found = replay_trials(recorded, Names.read())
    assert sorted(found) == sorted(STRATEGIES)
    for strategy, compared in found.items():
        assert compared.first is None, f"{strategy}: {compared.first}"
        assert compared.trials == 2
        assert compared.machines >= 2
        assert compared.calls > 200
        assert compared.effects > 50


@pytest.mark.parametrize("strategy", ["raft", "cache-own", "drawn-ring"])
def test_recording_changes_nothing_and_is_the_same_each_time(recorded: Path, tmp_path: Path, strategy: str) -> None:
    """Nor does it leave anything behind in the classes of the machines."""
    before = dict(vars(RaftStrategy))
    again = record_trial(tmp_path, strategy, 0, LENGTH)
    assert dict(vars(RaftStrategy)) == before
    assert again.trace_hash == outcome_of(strategy, 0, LENGTH)
    assert path_of(tmp_path, strategy, 0).read_bytes() == path_of(recorded, strategy, 0).read_bytes()


# --- what is noticed --------------------------------------------------------------------------------------------------


def test_an_effect_that_is_missing(trial: Path) -> None:
    def without(line: Line) -> bool:
        if line[0] == "s" and len(line[5]) > 1:
            del line[5][-1]
            return True
        return False

    line = changed(trial, without)
    said = differs(trial)
    assert f"raft, seed 1, machine {line[1]} (primacy.election.raft.strategy.RaftStrategy), call " in said
    assert "no further effect" in said


def test_effects_in_another_order(trial: Path) -> None:
    def turned(line: Line) -> bool:
        if line[0] == "s" and len(line[5]) > 1 and line[5][0] != line[5][-1]:
            line[5].reverse()
            return True
        return False

    changed(trial, turned)
    assert "input:    at " in differs(trial)


def test_another_value_deep_in_a_message(trial: Path) -> None:
    def larger(line: Line) -> bool:
        if line[0] == "v" and line[2][0] == heartbeat:
            line[2][4] += 1  # hold_ms
            return True
        return False

    heartbeat = 0
    for text in gzip.decompress(trial.read_bytes()).decode().splitlines():
        if text.startswith('["c"') and '"primacy.election.messages.Heartbeat"' in text:
            heartbeat = json.loads(text)[1]
    assert heartbeat
    changed(trial, larger)
    assert "Heartbeat(" in differs(trial)


@pytest.mark.parametrize("draws", [[], [0.5, 0.5], [[8, 3]], [0.999]])
def test_another_draw(trial: Path, draws: list[Any]) -> None:
    """One too few, one too many, of another kind, or with another outcome."""

    def other(line: Line) -> bool:
        if line[0] == "s" and len(line[4]) == 1 and line[4] != draws:
            line[4] = draws
            return True
        return False

    changed(trial, other, most=1 if draws != [0.999] else 1_000)  # not every moment that is drawn is reached
    said = differs(trial)
    assert "draw" in said or "deadline_ms" in said


def test_another_deadline(trial: Path) -> None:
    def later(line: Line) -> bool:
        if line[0] == "s" and line[6][0] is not None:
            line[6][0] += 1
            return True
        return False

    changed(trial, later)
    assert "deadline_ms" in differs(trial)


def test_an_exception_that_is_no_longer_raised(trial: Path) -> None:
    def raised(line: Line) -> bool:
        if line[0] == "s":
            line[7] = "ValueError: no"
            return True
        return False

    changed(trial, raised)
    assert "ValueError: no" in differs(trial)


def test_what_people_are_shown(trial: Path) -> None:
    def shown(line: Line) -> bool:
        return line[0] == "c" and line[2].endswith(".View") and line[3].reverse() is None

    changed(trial, shown)
    assert "what it shows" in differs(trial)


def test_a_class_that_is_not_there(trial: Path) -> None:
    def renamed(line: Line) -> bool:
        if line[0] == "c" and line[2] == "primacy.election.messages.Ack":
            line[2] = "primacy.election.messages.Gone"
            return True
        return False

    changed(trial, renamed)
    assert "Do [modules] or [classes] lack something?" in differs(trial)


def test_an_argument_that_is_not_there(trial: Path) -> None:
    def renamed(line: Line) -> bool:
        if line[0] == "m":
            line[4]["strange"] = line[4].pop("ballot")
            return True
        return False

    changed(trial, renamed)
    said = differs(trial)
    assert "call 0" in said
    assert "'strange'" in said


# --- what is renamed --------------------------------------------------------------------------------------------------


class Heartbeat(messages.NamedTuple):  # type: ignore[name-defined]
    """What `Heartbeat` may become: renamed, with a field renamed, one dropped and a new one."""

    origin: messages.Origin
    term: int
    count: int
    hold_ms: int
    observers: int


def machine_of(me: str) -> dict[str, str]:
    """For a class that became something else: a function makes it, from the same arguments."""
    return {"name": me}


def test_renamed_classes_fields_and_values_are_honoured() -> None:
    module = types.ModuleType("renamed_messages")
    module.Heartbeat = Heartbeat  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        old = "primacy.election.messages.Heartbeat"
        names = Names(
            {
                "modules": {"primacy.election": "elsewhere", "primacy.election.model": "primacy.election.model"},
                "classes": {old: "renamed_messages.Heartbeat"},
                "fields": {f"{old}.number": "count"},
                "dropped": {f"{old}.settled": "for the test"},
                "defaults": {f"{old}.observers": "7"},
                "values": {"primacy.election.model.Role.silent": "recovering"},
                "methods": {"step": "advance", f"{old}.step": "move"},
                "words": {"mute": "recovering", "mute node": "node in recovery"},
            }
        )
        made = names.home(old).made({"origin": "o", "term": 1, "number": 2, "hold_ms": 3, "settled": True})
        assert made == Heartbeat("o", 1, 2, 3, 7)  # type: ignore[arg-type]
        assert type(made) is Heartbeat
        assert names.home("primacy.election.model.Role").member("silent").name == "RECOVERING"
        assert names.full("primacy.election.lease.strategy.LeaseStrategy") == "elsewhere.lease.strategy.LeaseStrategy"
        assert (names.method("other.Class", "step"), names.method(old, "step")) == ("advance", "move")
        assert names.text("a mute node is mute, not muted") == "a node in recovery is recovering, not muted"
        with pytest.raises(NameMissing, match="silent"):
            Names().home("primacy.election.model.Role").member("silent")
    finally:
        del sys.modules[module.__name__]
    made_by = Names({"classes": {"old.Machine": f"{__name__}:machine_of"}}).home("old.Machine").made({"me": "n1"})
    assert made_by == {"name": "n1"}
    with pytest.raises(NameMissing, match="no section of names: word"):
        Names({"word": {}})


def test_what_is_compared_must_be_alike_all_the_way_down() -> None:
    ack = messages.Ack(messages.Origin("n1"), 1, 2, 3)
    assert same([ack], [messages.Ack(messages.Origin("n1"), 1, 2, 3)])
    for other in (
        ack._replace(term=True),
        ack._replace(number=2.0),
        messages.FailsafeAck(*ack),
        ack._replace(origin=("n1", 0, 0, "", 0)),
        tuple(ack),
    ):
        assert not same([ack], [other]), other
    assert same({b"k": (ack,)}, {b"k": (ack,)})
    assert not same({b"k": (ack,)}, {b"k": (ack, ack)})


def test_a_log_of_other_names_is_equal_with_a_table_and_differs_without(trial: Path, tmp_path: Path) -> None:
    """The log is renamed instead of the code: class, module, field, setting, enumeration, method and word."""
    text = gzip.decompress(trial.read_bytes()).decode()
    for now, then in (
        ("primacy.election.messages.Heartbeat", "old_place.messages.Pulse"),
        ('"hold_ms","settled"', '"span_ms","settled"'),
        ('"spread_ms","drift_ppm"', '"scatter_ms","drift_ppm"'),
        ('"follower"]', '"disciple"]'),
        ('"options":', '"choices":'),
    ):
        assert now in text
        text = text.replace(now, then)
    trial.write_bytes(gzip.compress(text.encode()))
    table = tmp_path / "names.toml"
    table.write_text(
        """
        [modules]
        "old_place" = "primacy.election"
        [classes]
        "old_place.messages.Pulse" = "Heartbeat"
        [fields]
        "old_place.messages.Pulse.span_ms" = "hold_ms"
        "primacy.settings.timing.Timing.scatter_ms" = "spread_ms"
        "primacy.election.raft.strategy.RaftStrategy.choices" = "options"
        [values]
        "primacy.election.model.Role.disciple" = "follower"
        """
    )
    assert replay_trial(trial, Names.read(table)) == replay_trial(
        Path(shutil.copy(trial, tmp_path / "again.gz")), Names.read(table)
    )
    assert replay_trial(trial, Names.read(table)).first is None
    assert "old_place" in differs(trial) or "scatter_ms" in differs(trial)


# --- what users meet --------------------------------------------------------------------------------------------------


def test_wires_and_files_are_equal_and_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    assert surfaces.record_wires(tmp_path) > 100
    assert surfaces.record_files(tmp_path) == 5
    for replay in (surfaces.replay_wires, surfaces.replay_files):
        looked = replay(tmp_path, Names.read())
        assert looked.compared
        assert not looked.others, looked.others[0]

    def other_byte(line: Line) -> bool:
        if line[0] == "b" and line[1] == "udp":
            line[3][0] = "00" + line[3][0][2:]
            return True
        return False

    changed(tmp_path / surfaces.WIRES, other_byte)
    (other,) = surfaces.replay_wires(tmp_path, Names()).others
    assert "wire udp: VoteRequest(" in other.what
    ballot = tmp_path / "files" / "ballot" / "ballot"
    ballot.write_bytes(ballot.read_bytes().replace(b'"term":7', b'"term":8'))
    read, written = surfaces.replay_files(tmp_path, Names()).others
    assert ("as it is read" in read.what, "checksum" in read.found) == (True, True)
    assert "file ballot/ballot, as it is written" in written.what


def test_commands_are_equal_and_a_changed_word_is_noticed(tmp_path: Path) -> None:
    assert surfaces.record_commands(tmp_path) > 100
    path = tmp_path / surfaces.COMMANDS
    recorded = json.loads(path.read_text())
    for one in (*recorded["helps"], *recorded["calls"]):
        one["args"] = ["reign" if word == "lease" else word for word in one["args"]]
    helps = next(one for one in recorded["helps"] if one["args"] == ["step-down", "--help"])
    helps["out"] = helps["out"].replace("--help", "--rescue")
    calls = next(one for one in recorded["calls"] if one["args"] == ["statuss"])
    calls["code"] = 3
    path.write_text(json.dumps(recorded))
    table = Names({"words": {"reign": "lease"}})
    looked = surfaces.replay_commands(tmp_path, table)
    assert [other.what for other in looked.others] == ["primacy step-down --help", "primacy statuss"]
    assert "--rescue" in looked.others[0].expected
    assert looked.others[1].found.startswith("code: …2")


def test_a_real_node_is_equal_and_a_changed_name_is_noticed(tmp_path: Path) -> None:
    (script,) = (script for script in SCRIPTS if script.name == "run raft")
    assert surfaces.record_processes(tmp_path, (script,)) == len(script.steps) + 1
    path = tmp_path / surfaces.PROCESSES
    text = path.read_text()
    for now, then in (("primacy_term", "primacy_reign"), ('"hold_left_ms"', '"hold_rest_ms"'), ("elected", "crowned")):
        assert now in text
        text = text.replace(now, then)
    path.write_text(text)
    looked = surfaces.replay_processes(
        tmp_path, Names({"words": {"primacy_reign": "primacy_term", "hold_rest_ms": "hold_left_ms"}})
    )
    assert {other.what for other in looked.others} == {"run raft: control /v1/events", "run raft: cli why --json"}
    assert all("crowned" in other.expected for other in looked.others)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_compared_and_ends_with_1_for_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "log"
    assert (
        main(["record", str(folder), "--trials", "1", "--length", "0.05", "--jobs", "1", "--parts", "machines,wires"])
        == 0
    )
    assert main(["record", str(folder), "--trials", "1"]) == 2
    assert main(["replay", str(folder), "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert f"all: {len(STRATEGIES)} trials, " in said
    assert "0 machines differ" in said
    assert "wires: 1" in said
    assert main(["replay", str(folder), "--parts", "files"]) == 2

    def without(line: Line) -> bool:
        return line[0] == "s" and bool(line[5]) and line[5].pop() is not None

    changed(path_of(folder, "bully", 0), without)
    assert main(["replay", str(folder), "--jobs", "1", "--parts", "machines"]) == 1
    said = capsys.readouterr().out
    assert "first difference: bully, seed 0, machine " in said
    assert "expected: no further effect" in said


def test_counts_add_up() -> None:
    one = Compared(1, 2, 3, 4, 0, None)
    assert one.plus(one) == Compared(2, 4, 6, 8, 0, None)
