"""The marks by which a size of test leaves out files or runs them apart. One that is not read would change nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from tests import sizes
from tests.sizes import COMPUTING, STAND_BACK, Lane, lanes, turns
from tests.support.marks import APART, marked, marks_of
from tests.support.ports import LANE, part
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))
ORDERED = ("moments", "alone", "beside")
"""Files of these come one after the other, so that their order matters."""
WHOLE = (*APART, "ordinary")
"""Marks of whole files. Single tests can be `later` only."""


@pytest.mark.parametrize("name", [*WHOLE, "later"])
def test_a_mark_is_used_and_registered(name: str, pytestconfig: pytest.Config) -> None:
    assert marked(name)
    assert any(re.match(rf"{name}\b", line) for line in pytestconfig.getini("markers"))


def test_every_mark_of_a_whole_file_is_read_where_it_stands() -> None:
    for file in FILES:
        text = file.read_text()
        said = re.findall(rf"\bmark\.({'|'.join(WHOLE)})\b", text)
        if file != Path(__file__):
            assert sorted(said) == sorted(marks_of(text).keys() & set(WHOLE)), file


def test_a_file_is_in_one_phase_so_that_test_runs_it_once() -> None:
    for file in FILES:
        assert len(marks_of(file.read_text()).keys() & set(APART)) <= 1, file


@pytest.mark.parametrize("name", ORDERED)
def test_files_of_a_phase_come_in_their_order_and_no_two_have_the_same(name: str) -> None:
    orders = [marks_of((ROOT / file).read_text())[name] for file in marked(name)]
    assert orders == sorted(set(orders))
    assert orders[0] > 0


def test_the_lanes_of_make_test_have_every_file_once() -> None:
    """But for those that an ordinary user tries, too, which that phase finds by itself."""
    named: list[str] = []
    for lane in lanes():
        for command in lane.phases.values():
            named += [word for word in command if word.endswith(".py")]
    assert sorted(named) == [str(file.relative_to(ROOT)) for file in FILES]


def test_what_stands_back_judges_no_moments() -> None:
    behind = [lane for lane in lanes() if lane.stands_back]
    assert behind
    assert not any(lane in turn for lane in behind for turn in turns())
    for lane in behind:
        for command in lane.phases.values():
            assert {word.split("/")[1] for word in command if word.endswith(".py")} <= set(COMPUTING)


def test_modules_are_compiled_once_also_where_nothing_may_be_written_next_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = sizes._environment("test")
    call = [sys.executable, "-c", "import primacy.errors; print(primacy.errors.__cached__)"]
    where = Path(subprocess.run(call, env=environment, check=True, capture_output=True, text=True).stdout.strip())
    assert where.is_file()
    assert where.is_relative_to(sizes.compiled_folder())
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    assert "PYTHONPYCACHEPREFIX" not in sizes._environment("test"), "else Python knows where"


def test_no_two_lanes_that_run_at_the_same_time_have_the_same_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[bool, str]] = []
    kept = sizes.turns()
    monkeypatch.setattr(sizes, "run_lane", lambda lane, its: begun.append((lane.stands_back, its[LANE])) or 0)
    assert sizes.test() == 0
    behind = {place for stands_back, place in begun if stands_back}
    turned = [place for stands_back, place in begun if not stands_back]
    for turn in kept:
        places, turned = turned[: len(turn)], turned[len(turn) :]
        assert len({*places, *behind}) == len(places) + len(behind)
    assert not turned


TELLS = """
import os, subprocess, sys
session = open("/proc/self/autogroup").read().split()[-1] if os.path.exists("/proc/self/autogroup") else "19"
print(os.sched_getscheduler(0) == os.SCHED_IDLE, session, os.getsid(0), os.getpid(), flush=True)
if "-" not in sys.argv:
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], "-"], check=True)
"""


def test_what_stands_back_says_so_to_the_kernel_and_so_does_all_that_it_starts() -> None:
    call = [*STAND_BACK, sys.executable, "-c", TELLS]
    said = subprocess.run(call, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    (first, session, pid), (second, its_session, its_pid) = (line.rsplit(maxsplit=2) for line in said.splitlines())
    assert first == second == "True 19"
    assert session == its_session == pid != its_pid


def test_an_interrupt_reaches_what_stands_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the session of the terminal only. What would have come next does not begin."""
    asleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    phases = {"asleep": asleep, "next": asleep}
    monkeypatch.setattr(sizes, "lanes", lambda: [Lane(0, {}), Lane(0, phases, stands_back=True)])

    def interrupted(waited_for: object) -> None:
        wait_until(lambda: sizes.STANDING_BACK, "what stands back to begin", within_s=60)
        raise KeyboardInterrupt

    monkeypatch.setattr(sizes, "wait", interrupted)
    monkeypatch.setattr(sizes, "STANDING_BACK", [])
    monkeypatch.setattr(sizes, "INTERRUPTED", threading.Event())
    with pytest.raises(KeyboardInterrupt):
        sizes.test()
    (process,) = sizes.STANDING_BACK
    assert process.returncode not in (0, None)


def test_each_lane_has_ports_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    seen: list[range] = []
    for number in range(3):
        for worker in ("gw0", "gw1"):
            monkeypatch.setenv(LANE, f"{number}/3")
            monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
            seen.append(part())
    assert all(one.stop <= next_one.start for one, next_one in pairwise(seen))
    assert min(map(len, seen)) > 2_000


def test_a_file_that_is_left_out_of_quick_as_a_whole_has_no_single_test_that_is() -> None:
    for file in FILES:
        text = file.read_text()
        if file != Path(__file__) and "@pytest.mark.later" in text:
            assert not marks_of(text).keys() & {"moments", "alone", "beside", "later"}, file


def test_marks_are_read_alone_in_a_list_and_over_several_lines() -> None:
    assert marks_of("import x\n\npytestmark = pytest.mark.later\n\n") == {"later": 0}
    assert marks_of("pytestmark = pytest.mark.alone(order=20)\n\nx = 1\n") == {"alone": 20}
    several = "pytestmark = [\n    pytest.mark.beside(order=30),\n    pytest.mark.skipif(x, reason='y'),\n]\n\n"
    assert marks_of(several) == {"beside": 30, "skipif": 0}
    assert marks_of("def test_x() -> None:\n    pass\n") == {}
