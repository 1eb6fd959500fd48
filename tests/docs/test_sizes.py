"""The marks by which a size of test leaves out files or runs them apart. One that is not read would change nothing."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.sizes import lanes
from tests.support.marks import marked, marks_of
from tests.support.ports import LANE, part

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))
APART = ("coverage", "moments", "alone", "beside")
"""Each is a phase of its own in `make test`; what has none of them is another."""
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
            ignored = {word.removeprefix("--ignore=") for word in command if word.startswith("--ignore=")}
            named += [word for word in command if word.endswith(".py") and "=" not in word]
            if ignored:
                named += [str(file.relative_to(ROOT)) for file in FILES if str(file.relative_to(ROOT)) not in ignored]
    assert sorted(named) == [str(file.relative_to(ROOT)) for file in FILES]


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
