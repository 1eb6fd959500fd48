"""Celery's beat with `primacy.contrib.celery.Scheduler`: real beats on one SQLite store, of which one sends."""

from __future__ import annotations

import logging
import re
import signal
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import primacy
from primacy import blocking
from primacy.settings.timing import PROFILES
from tests.support.holder_process import state_of
from tests.support.library_harness import Place, place
from tests.support.programs import EXAMPLES, WITHIN_S, Program, Start, need, until
from tests.support.safety_checks import safe
from tests.support.servers import stop_whole
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=128)

__all__ = ["CANARY_HEARTBEAT_MS", "place"]

CANARY_HEARTBEAT_MS = PROFILES["fast"].heartbeat_ms
SENDS = "Sending due task report"
LEADS = r"leads \(token (\d+)\)"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    need("celery")
    found = Start(tmp_path)
    yield found
    found.end()


def beat(start: Start, number: int, app: str = "celery_beat") -> Program:
    """Each with a schedule of its own, as on a machine of its own."""
    command = [sys.executable, "-m", "celery", "-A", app, "beat", "-l", "info", "--pidfile="]
    command += ["--scheduler", "primacy.contrib.celery.Scheduler", "--schedule", str(start.folder / f"beat{number}")]
    more = {"BROKER_FOLDER": str(start.folder / "broker"), "EVERY_S": "0.2", "PYTHONPATH": str(EXAMPLES)}
    return start(*command, cwd=start.folder, **more)


def one_sends(beats: list[Program]) -> tuple[Program, list[Program]]:
    first = until(lambda: next((one for one in beats if one.says(SENDS)), None), "a task", *beats)
    return first, [one for one in beats if one is not first]


def one_at_a_time(beats: list[Program]) -> None:
    """By the times in their logs: once a task was sent under a token, none is sent under a smaller one."""
    sent: list[tuple[str, int]] = []
    for one in beats:
        token = 0
        for at, leads, _ in re.findall(
            rf"\[([\d-]+ [\d:,]+): INFO/MainProcess\] .*?(?:{LEADS}|({SENDS}))", one.log.read_text()
        ):
            token = int(leads or token)
            sent += [] if leads else [(at, token)]
    tokens = [token for _, token in sorted(sent)]
    changes = len(set(tokens)) - 1
    assert changes > 0, "several of them led"
    safe(tokens == sorted(tokens), f"two beats send: {sorted(sent)}")


def test_kill_9_of_the_beat_that_sends_another_goes_on_and_SIGTERM_releases(start: Start) -> None:
    beats = [beat(start, number) for number in range(3)]
    first, others = one_sends(beats)
    until(lambda: len(first.says(SENDS)) > 3, "more tasks", first)
    assert not any(other.says(SENDS) for other in others), "the first one leads on"
    first.child.kill()
    first.child.wait(WITHIN_S)
    killed = time.monotonic()
    second, others = one_sends(others)
    assert time.monotonic() - killed < 2 * PROFILES["fast"].hold_ms / 1_000 + 3, "within the hold, and a slow machine"
    assert not any(other.says(SENDS) for other in others), "the first one leads on"
    assert second.ends() == 0, second.log.read_text()
    assert second.says("leads no more"), "released in order"
    third, _ = one_sends(others)
    assert third.ends(signal.SIGINT) == 0
    one_at_a_time(beats)


def test_a_frozen_beat_with_kill_is_dead_before_another_sends(start: Start) -> None:
    (start.folder / "firm.py").write_text('from celery_beat import app\n\napp.conf.primacy_on_loss = "kill"\n')
    beats = [beat(start, number, "firm") for number in range(2)]
    first, (other,) = one_sends(beats)
    stop_whole(first.child.pid)
    until(lambda: other.says(SENDS), "the other one's task", other)
    state = state_of(str(first.child.pid))  # K is killed: it runs no line any more, and waits for a processor to die on
    safe(state in ("K", "Z"), f"two beats act: the first one is {state}")
    assert first.child.wait(WITHIN_S) == -signal.SIGKILL


def test_wrong_settings_are_one_sentence_and_code_2(start: Start) -> None:
    command = [sys.executable, "-m", "celery", "-b", "memory://", "beat", "--pidfile="]
    command += ["--scheduler", "primacy.contrib.celery.Scheduler"]
    nowhere = start(*command, cwd=start.folder, PRIMACY_STORE="")
    assert nowhere.child.wait(WITHIN_S) == 2
    assert nowhere.says("Error: which store\\? say primacy_store, such as postgresql://host/db, or set the variable")
    assert not nowhere.says("Traceback")


# --- in this process ----------------------------------------------------------------------------------------------


class Beats:
    """Schedulers of one app, and what they sent."""

    def __init__(self, place: Place, folder: Path) -> None:
        from celery import Celery

        self.app: Any = Celery("site", broker="memory://", set_as_current=False)
        self.app.conf.update(primacy_store=place.url, primacy_profile="lab", primacy_lease="job")
        self.app.conf.beat_schedule = {"report": {"task": "report", "schedule": 3600}}
        self.file = str(folder / "schedule")
        self.made: list[Any] = []

    def beat(self) -> Any:
        from primacy.contrib.celery import Scheduler

        self.made.append(Scheduler(self.app, schedule_filename=self.file))
        wait_until(lambda: self.made[-1].tick() is not None and self.made[-1].schedule, "the lease", WITHIN_S, 0.005)
        return self.made[-1]


@pytest.fixture
def beats(place: Place, tmp_path: Path) -> Iterator[Beats]:
    need("celery")
    found = Beats(place, tmp_path)
    yield found
    for one in found.made:
        one.close()


def test_a_run_is_sent_late_by_the_next_beat_unless_another_led_since(
    place: Place, beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "celery.beat")
    first = beats.beat()
    first.schedule["report"].last_run_at -= timedelta(hours=1)
    first.close()
    assert place.row().released
    second = beats.beat()  # the leadership just before wrote the file: what fell due is sent
    wait_until(lambda: second.tick() is not None and SENDS in caplog.text, "a task", WITHIN_S, 0.005)
    second.schedule["report"].last_run_at -= timedelta(hours=1)
    second.close()
    with blocking.Lock("job", store=place.url, profile="lab"):
        caplog.clear()  # a beat elsewhere, which has sent it
    third = beats.beat()
    for _ in range(3):
        third.tick()
    assert SENDS not in caplog.text
    assert third.schedule["report"].total_run_count == 1, "the file was read"


def test_a_lost_lease_stops_the_ticks_at_once_and_the_file_is_not_written(
    place: Place, beats: Beats, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "celery.beat")
    first = beats.beat()
    place.table.up = False
    wait_until(lambda: not first._held.left_ms(), "the loss", WITHIN_S, 0.005)
    if first.schedule:
        first.schedule["report"].last_run_at -= timedelta(hours=1)
    first.tick()
    assert SENDS not in caplog.text
    assert not first.schedule
    place.table.up = True
    wait_until(lambda: first.tick() is not None and first.schedule, "the lease again", WITHIN_S, 0.005)
    first.tick()
    assert SENDS not in caplog.text


def test_settings_and_the_variable(place: Place, beats: Beats, monkeypatch: pytest.MonkeyPatch) -> None:
    from primacy.contrib.celery import WrongSetting, election_of

    assert election_of(beats.app).name == "job"
    beats.app.conf.primacy_lease = None
    assert election_of(beats.app).name == "celery-beat/site"
    beats.app.conf.primacy_store = None
    monkeypatch.setenv("PRIMACY_STORE", place.url)
    election_of(beats.app)
    beats.app.conf.primacy_profil = "lan"
    with pytest.raises(primacy.UsageError, match="primacy_profil is no setting; there are check_within_ms, lease, "):
        election_of(beats.app)
    assert issubclass(WrongSetting, primacy.UsageError)
