"""The canary itself: it notices a machine that is late, and only that excuses a failure."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests import canary
from tests.canary import Canary, beside_a_canary


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


@pytest.mark.parametrize("fails", [True, False])
def test_a_void_case_is_repeated_three_times_and_then_skipped_with_the_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: bool
) -> None:
    monkeypatch.setattr(canary, "Canary", Late)
    monkeypatch.setenv(canary.NOTES, str(tmp_path / "notes"))
    tries = []

    @beside_a_canary(250)
    def case() -> None:
        tries.append(1)
        assert not fails

    with pytest.raises(pytest.skip.Exception, match=r"void 3 times: the canary woke 500, 500, 500 ms late.* 125 ms"):
        case()
    assert len(tries) == 3
    assert (tmp_path / "notes").read_text().count("void: case: the canary woke 500 ms late") == 3


def test_a_case_is_judged_where_the_canary_was_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "Canary", OnTime)
    tries = []

    @beside_a_canary(250)
    def case(right: bool) -> None:
        tries.append(1)
        assert right

    case(True)
    with pytest.raises(AssertionError):
        case(False)
    assert len(tries) == 2


def test_what_a_canary_judges_is_void_if_it_was_late_and_only_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(canary.NOTES, str(tmp_path / "notes"))
    with Late(250) as late, OnTime(250) as on_time:
        pass
    late.judge(True, "that holds")
    on_time.judge(True, "that holds")
    assert not (tmp_path / "notes").exists()
    late.judge(False, "5 ms, 10 at least")
    assert (tmp_path / "notes").read_text() == "void: 5 ms, 10 at least; the canary woke 500 ms late\n"
    with pytest.raises(AssertionError, match="5 ms, 10 at least; the canary was on time"):
        on_time.judge(False, "5 ms, 10 at least")
