"""The canary itself: it notices a machine that is late, and only that excuses a failure. It never excuses safety.

How tests are repeated is shown by real runs of pytest with the hooks of `void_attempts.py`, in processes of their own.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import canary
from tests.support.canary import Canary, StandingCanary, Void, beside_a_canary, excused_if_late
from tests.support.safety_checks import SafetyViolation, safe, violation_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.moments(order=70)

ROOT = Path(__file__).parents[2]


def test_a_canary_that_was_held_up_says_so() -> None:
    with Canary(1_000_000) as calm:
        pass
    assert calm.was_on_time
    with Canary(20) as stopped:
        time.sleep(0.05)
        stopped.process.send_signal(signal.SIGSTOP)
        time.sleep(0.15)
        stopped.process.send_signal(signal.SIGCONT)  # and its end comes in the same moment
    assert not stopped.was_on_time
    assert stopped.worst_ms > 50


class Late(Canary):
    """Woke half a second late, every time."""

    def __exit__(self, *_: object) -> None:
        self.process.communicate()
        self.worst_ms = 500.0


class OnTime(Canary):
    """Whatever this machine does meanwhile."""

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def overlaps() -> None:
    raise SafetyViolation("two at once")


def overlaps_and_fails_to_end() -> None:
    try:
        overlaps()
    finally:
        raise AssertionError("never came: the end of all")


def overlaps_in_a_group() -> None:
    raise BaseExceptionGroup("of tasks", [ValueError("mine"), SafetyViolation("two at once")])  # type: ignore[type-var]


@pytest.mark.parametrize("body", [overlaps, overlaps_and_fails_to_end, overlaps_in_a_group])
@pytest.mark.parametrize("way", ["decorated", "of a module"])
def test_an_overlap_beside_a_late_canary_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, body: Callable[[], None], way: str
) -> None:
    monkeypatch.setattr(canary, "Canary", Late)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  (which one is judged below)
        beside_a_canary(250)(body)() if way == "decorated" else excused_if_late(250, body)
    assert not isinstance(caught.value, Void)
    assert isinstance(violation_in(caught.value), SafetyViolation)


def test_safety_is_no_exception_that_somebody_waits_out() -> None:
    assert not issubclass(SafetyViolation, Exception)
    safe(True, "that holds")
    with pytest.raises(SafetyViolation, match="two at once"):
        safe([], "two at once")
    assert violation_in(ValueError("mine")) is None


@pytest.mark.parametrize("fails", [True, False])
def test_what_the_canary_excuses(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    def case() -> None:
        assert not fails, "it changed"

    monkeypatch.setattr(canary, "Canary", Late)
    with pytest.raises(Void, match="woke 500 ms late, 125 ms at most are on time .would have " + "pf"[fails]):
        beside_a_canary(250)(case)()
    if fails:
        with pytest.raises(Void, match="would have failed"):
            excused_if_late(250, case)
    else:
        excused_if_late(250, case)
    monkeypatch.setattr(canary, "Canary", OnTime)
    for judged in (beside_a_canary(250)(case), lambda: excused_if_late(250, case)):
        if fails:
            with pytest.raises(AssertionError, match="it changed"):
                judged()
        else:
            judged()


def test_what_a_canary_judges_is_void_if_it_was_late_and_only_then() -> None:
    voids = canary.VOIDS
    with Late(250) as late, OnTime(250) as on_time, Late(25, late_ms=600) as patient:
        pass
    late.judge(True, "that holds")
    on_time.judge(True, "that holds")
    assert voids == []
    late.judge(False, "5 ms, 10 at least")
    assert voids == ["5 ms, 10 at least; the canary woke 500 ms late, 125 ms at most are on time"]
    for one in (on_time, patient):
        with pytest.raises(AssertionError, match="5 ms, 10 at least; the canary was on time"):
            one.judge(False, "5 ms, 10 at least")
    voids.clear()


# --- whole runs -------------------------------------------------------------------------------------------------------

BEFORE = """
import pytest
from pathlib import Path
from tests.support import canary
from tests.support.canary import Canary, beside_a_canary
from tests.support.safety_checks import SafetyViolation, safe
from tests.processes.test_canary import Late, OnTime

canary.Canary = Late
{module}

@pytest.fixture
def attempts():
    path = Path("attempts")
    with path.open("a") as file:
        file.write("x")
    yield len(path.read_text())
    with path.open("a") as file:
        file.write(".")
    {after}

"""


def run_of(folder: Path, body: str, module: str = "", after: str = "") -> str:
    """What pytest says of this test, and its attempts: an x for each beginning of its fixture, a dot for each end."""
    (folder / "test_it.py").write_text(BEFORE.format(module=module, after=after) + body)
    (folder / "conftest.py").write_text("from tests.support.void_attempts import *  # noqa: F403\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", "/dev/null", "test_it.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), canary.NOTES: str(folder / "notes")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return f"{done.stdout}{done.stderr}\nattempts {(folder / 'attempts').read_text()}"


def test_stability_beside_a_late_canary_is_tried_three_times_and_then_skipped_with_the_figures(tmp_path: Path) -> None:
    said = run_of(tmp_path, "@beside_a_canary(250)\ndef test_it(attempts):\n    assert False, 'it changed'\n")
    assert "1 skipped" in said, said
    assert "attempts x.x.x." in said, "with fixtures of its own each time"
    assert re.search("void 3 times: the canary woke 500 ms late, 125 ms at most are on time .*it changed", said), said
    assert (tmp_path / "notes").read_text().count("void: test_it.py::test_it: the canary woke 500 ms late") == 3


def test_a_later_attempt_counts(tmp_path: Path) -> None:
    body = "def test_it(attempts):\n    assert attempts == 3\n"  # x, a dot, and the second x
    said = run_of(tmp_path, body, "CANARY_HEARTBEAT_MS = 250\n")
    assert "1 passed" in said, said
    assert "attempts x.x." in said


def test_what_else_fails_after_a_statement_that_was_void_is_judged(tmp_path: Path) -> None:
    body = "def test_it(attempts):\n    with Late(250) as late:\n        pass\n    late.judge(False, 'soon')\n    {}\n"
    said = run_of(tmp_path, body.format("assert False, 'another thing'"))
    assert "1 failed" in said, said
    assert "attempts x." in said
    (tmp_path / "attempts").unlink()
    said = run_of(tmp_path, body.format("pass"))
    assert "1 skipped" in said, said
    assert "void 3 times: soon; the canary woke 500 ms late" in said
    assert "attempts x.x.x." in said


OVERLAP = "def test_it(attempts):\n    safe(False, 'two at once')\n"
UNSTABLE = "def test_it(attempts):\n    assert False, 'it changed'\n"


@pytest.mark.parametrize(
    ("body", "module", "after"),
    [
        ("@beside_a_canary(250)\n" + OVERLAP, "", ""),
        (OVERLAP, "CANARY_HEARTBEAT_MS = 250\n", ""),
        ("@beside_a_canary(250)\n" + UNSTABLE, "", "safe(False, 'two at once')"),
        (UNSTABLE, "CANARY_HEARTBEAT_MS = 250\n", "safe(False, 'two at once')"),
    ],
    ids=["decorated", "of a module", "decorated, judged at its end", "of a module, judged at its end"],
)
def test_an_overlap_beside_a_late_canary_is_neither_repeated_nor_skipped(
    tmp_path: Path, body: str, module: str, after: str
) -> None:
    """Also if the body was void and the fixture's end finds the overlap."""
    said = run_of(tmp_path, body, module, after)
    assert re.search("1 (failed|error)", said), said
    assert "skipped" not in said
    assert "SafetyViolation: two at once" in said
    assert "attempts x." in said, "once"
    assert "attempts x.x" not in said


# --- tests without a canary of their own ------------------------------------------------------------------------------


def test_the_canary_of_all_says_what_was_late_since_it_was_asked_last() -> None:
    standing = StandingCanary()
    standing.late()  # it sits there now
    try:
        standing.process.send_signal(signal.SIGSTOP)
        time.sleep(0.4)
        standing.process.send_signal(signal.SIGCONT)
        late = standing.late()
        assert int(re.findall("woke ([0-9]+) ms late, its disk took [0-9]+ ms", late)[0]) >= 200
        assert standing.late() != late, "what was told is told once"
    finally:
        standing.end()
    assert standing.process.returncode == 0


def test_a_write_that_hangs_is_told_before_it_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ends = threading.Event()
    monkeypatch.setattr(os, "fdatasync", lambda file: ends.wait(20))
    disk = canary.Disk(str(tmp_path))
    try:
        wait_until(lambda: disk.began_s, "the write to begin, in its thread")
        time.sleep(0.1)
        assert disk.slowest_s() >= 0.09
        assert list(tmp_path.iterdir()) == []
    finally:
        ends.set()


SLOW = """
from tests.support import void_attempts

class Slow:
    def late(self):
        return {late!r}

void_attempts.standing = Slow
void_attempts.IN_REAL_TIME.update(Path(__file__).parts)
"""


LIVED = "def test_it(attempts):\n    raise AssertionError('3 processes lived when the release arrived')\n"


@pytest.mark.parametrize(
    ("late", "body", "attempts", "outcome"),
    [
        ("its disk took 900 ms", UNSTABLE, "x.x.x.", "1 failed"),
        ("its disk took 900 ms", "def test_it(attempts):\n    assert attempts == 3\n", "x.x.", "1 passed"),
        ("its disk took 900 ms", OVERLAP, "x.", "1 failed"),
        ("its disk took 900 ms", "def test_it(attempts):\n    assert attempts == 7, 'token 8'\n", "x.", "1 failed"),
        ("its disk took 900 ms", LIVED, "x.", "1 failed"),
        ("", UNSTABLE, "x.", "1 failed"),
    ],
    ids=["fails always", "passes then", "safety", "sounds like it", "lived", "on time"],
)
def test_what_fails_beside_a_late_disk_is_tried_again_but_never_skipped(
    tmp_path: Path, late: str, body: str, attempts: str, outcome: str
) -> None:
    said = run_of(tmp_path, body, SLOW.format(late=late))
    assert outcome in said, said
    assert said.endswith(f"attempts {attempts}"), said


# --- nobody goes around it --------------------------------------------------------------------------------------------

SAFETY_WORDS = re.compile(
    r"overlap|doubles|double_signatures|not_growing|at_a_time|token.*(<|>|sorted\(|set\()|(<|>|sorted\(|set\().*token"
)
LIVING_WORDS = re.compile(
    r"living == 0|commands\(\) == \[\]|not .*\.commands\(\)|last_(ns|ms)(\(\))?.* < .*(first_ns|arrived)"
)
"""That nothing of a command lives where nothing may: in every test of real processes, whoever excuses it."""


def excusable() -> list[Path]:
    return [path for path in (ROOT / "tests").rglob("test_*.py") if "CANARY_HEARTBEAT_MS" in path.read_text()]


def test_nothing_that_sounds_like_safety_is_asserted_where_the_canary_would_excuse_it() -> None:
    """A hint for whoever writes the next one: `safe`, `tokens_grow`, `one_at_a_time`."""
    found = []
    for path in excusable():
        if path.name == "test_canary.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                text = ast.unparse(node.test)
                if SAFETY_WORDS.search(text):
                    found.append(f"{path.name}:{node.lineno}: {text}")
    assert found == []


def test_that_nothing_of_a_command_is_left_is_said_by_safe() -> None:
    folders = (ROOT / "tests" / "processes", ROOT / "tests" / "support")
    found = [
        f"{path.name}:{node.lineno}: {text}"
        for folder in folders
        for path in sorted(folder.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert) and LIVING_WORDS.search(text := ast.unparse(node.test))
    ]
    assert found == []
