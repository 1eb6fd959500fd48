"""What a size of test leaves out or runs apart is named by file and function. A wrong name would leave out nothing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests import sizes

ROOT = Path(__file__).parents[2]
APART = (*sizes.PROCESSES, *sizes.BESIDE)
"""Left out of `quick`, and run by `test` in phases of their own."""
LEFT_OUT = (*APART, *sizes.PATIENT, *sizes.RECORDED)
"""Left out of `quick` as a whole."""


@pytest.mark.parametrize("file", [*LEFT_OUT, *sizes.TRIALS])
def test_a_file_that_is_named_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


@pytest.mark.parametrize(("file", "names"), sizes.LATER.items())
def test_quick_leaves_out_single_tests_that_are_there_and_has_the_rest_of_their_file(
    file: str, names: tuple[str, ...]
) -> None:
    assert file not in LEFT_OUT
    found = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)
    assert set(names) < set(found)
    # pytest leaves out whatever begins with a name
    assert all(any(test == name for name in names) for test in found for name in names if test.startswith(name))


def test_nothing_is_named_twice_so_that_test_runs_it_once() -> None:
    for listed in (LEFT_OUT, (*APART, *sizes.TRIALS)):
        assert [file for file, count in Counter(listed).items() if count > 1] == []
