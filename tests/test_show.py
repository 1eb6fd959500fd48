"""`primacy simulate --show`: what it plays, what it draws, and how it ends."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

from primacy.cli import main as entry
from primacy.cli import simulate_show as command
from primacy.settings.accepted import STRATEGIES
from primacy.sim import show
from primacy.sim.show import (
    Demonstration,
    Line,
    Scene,
    Span,
    demonstrate,
    lane,
    legend,
    plain,
    ruler,
    scene_at,
    summary,
)

COLUMNS = 60


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*args: str) -> Said:
        code = entry.run(["simulate", "--show", *args])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Said(code, out, err)

    return run


def recorded(**changed: object) -> Demonstration:
    """Two nodes and a handover in the middle of a column."""
    spans = (
        Span("a", 0, 100, "follower"),
        Span("b", 0, 100, "follower"),
        Span("a", 10, 52, "work"),
        Span("b", 55, 100, "work"),
    )
    base = Demonstration(
        "raft", ("a", "b"), 100.0, (Scene(0, "It begins.", "Look."),), (Line(10, "a runs"),), spans, (), ()
    )
    return base._replace(**changed)  # type: ignore[arg-type]


def drawn(shown: Demonstration, name: str, now_ms: float = 100.0, columns: int = 10) -> str:
    return "".join(cell.sign for cell in lane(shown, name, now_ms, columns))


# --- the play ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_plays_all_scenes_and_fails_over_three_times(strategy: str) -> None:
    played = demonstrate(strategy)
    assert len(played.scenes) == 6
    assert [after for after, _ in played.failovers] == ["a killed agent", "a partition", "a lost machine"]
    assert bool(played.overlaps) != played.promised_one
    assert [line.at_ms for line in played.lines] == sorted(line.at_ms for line in played.lines)


@pytest.mark.parametrize("profile", ["lab", "fast", "lan", "wan", "executor"])
@pytest.mark.parametrize("nodes", [3, 9])
def test_every_profile_and_size_plays(profile: str, nodes: int) -> None:
    played = demonstrate("raft", nodes, profile, seed=5)
    assert len(played.failovers) == 3
    assert not played.overlaps
    assert all(gap_ms >= 0 for _, gap_ms in played.failovers)


def test_a_release_is_quicker_than_silence() -> None:
    gaps = dict(demonstrate("raft").failovers)
    assert gaps["a killed agent"] < 500 < gaps["a lost machine"]


def test_the_same_seed_is_the_same_play() -> None:
    assert demonstrate(seed=9) == demonstrate(seed=9)


# --- drawing ----------------------------------------------------------------------------------------------------------


def test_a_handover_within_one_column_is_not_drawn_as_an_overlap() -> None:
    assert drawn(recorded(), "a") == "─████─────"
    assert drawn(recorded(), "b") == "─────█████"


def test_an_overlap_is_drawn_where_it_was() -> None:
    shown = recorded(overlaps=((41.0, 43.0),))
    assert [cell.style for cell in lane(shown, "a", 100, 10)][3:6] == ["green", "bold red", "bright_black"]
    assert "two at work" in [words for _, words in legend(shown)]


def test_islands_are_no_overlap() -> None:
    shown = recorded(strategy="bully", overlaps=((41.0, 43.0),))
    assert {cell.style for cell in lane(shown, "a", 100, 10)} == {"green", "bright_black"}


def test_only_what_has_happened_is_drawn() -> None:
    assert drawn(recorded(), "a", now_ms=35) == "─███"
    assert drawn(recorded(), "a", now_ms=0) == ""


def test_a_node_before_its_start_is_blank() -> None:
    assert drawn(recorded(spans=(Span("a", 50, 100, "follower"),)), "a") == "     ─────"


def test_scenes_are_marked_and_found() -> None:
    shown = recorded(scenes=(Scene(0, "one", ""), Scene(55, "two", "")))
    assert ruler(shown, 100, 10) == "▼    ▼    "
    assert ruler(shown, 40, 10) == "▼         "
    assert [scene_at(shown, at).title for at in (0, 54, 55)] == ["one", "one", "two"]


def test_every_sign_has_an_ascii_form() -> None:
    text = "".join(cell.sign for cell in show.SIGNS.values()) + "▼"
    assert plain(text).isascii()
    assert len(plain(text)) == len(text)


def test_the_summary_says_what_was_seen() -> None:
    assert summary(recorded(failovers=(("a partition", 1987.0),))) == [
        "1 failover, in 0.1 simulated seconds:",
        "  after a partition: nobody at work for 1,987 ms",
        "No overlap: never were two at work at once.",
    ]
    assert "must never be" in summary(recorded(overlaps=((1.0, 2.0),)))[-1]
    split = recorded(strategy="ring", overlaps=((1.0, 2.0),), failovers=(("a partition", -5.0),))
    assert "two at work" in summary(split)[1]
    assert "one per island" in summary(split)[-1]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_frames_fit_the_terminal(width: int) -> None:
    played = demonstrate()
    for share in (0.0, 0.3, 1.0):
        file = io.StringIO()
        console = Console(file=file, width=width, highlight=False)
        frame = command._frame(played, "lan", share * played.end_ms, console, done=share == 1.0)
        console.print(frame, no_wrap=True, overflow="ellipsis")
        lines = file.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) <= 24


# --- the command ------------------------------------------------------------------------------------------------------


def test_plain_lines_where_there_is_no_terminal(say: Callable[..., Said]) -> None:
    said = say()
    assert said.code == 0
    assert said.out.startswith("raft, 5 simulated nodes, profile lan\n")
    for words in ("is killed.", "is cut off from all others.", "The network heals.", "loses its power", "No overlap"):
        assert words in said.out
    assert "\x1b" not in said.out


def test_a_terminal_gets_the_lanes_at_a_pace(say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this terminal is quick: no test waits."""
    import time

    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", lambda s: now_s.__setitem__(0, now_s[0] + s))
    monkeypatch.setattr(command, "FRAMES_PER_S", 1)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    said = say("--seconds", "5")
    assert said.code == 0
    assert "No overlap" in said.out
    assert now_s[0] == pytest.approx(5, abs=1)


def test_exit_1_if_the_work_overlapped(say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "demonstrate", lambda *_: recorded(overlaps=((41.0, 43.0),)))
    assert say().code == 1


def test_ctrl_c_is_130(say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Demonstration:
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "demonstrate", interrupted)
    assert say().code == 130


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--nodes", "2"), "--nodes 2: --show has room for 3 to 9"),
        (("--profile", "ghoti"), "--profile ghoti: raft has no such profile"),
        (("--strategy", "paxos"), "there is no such strategy"),
        (("--seconds", "-1"), "--seconds -1: say a number from 0 to 600"),
        (("--seeds", "3"), "--seeds and --show exclude each other"),
        (("--seconds", "nan"), "--seconds nan: say a number from 0 to 600"),
    ],
)
def test_nonsense_gets_one_sentence(say: Callable[..., Said], args: tuple[str, ...], sentence: str) -> None:
    said = say(*args)
    assert said.code == 2
    assert sentence in said.err
    assert said.out == ""


def test_it_writes_no_file(say: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    say("--nodes", "3")
    assert not list(tmp_path.iterdir())
