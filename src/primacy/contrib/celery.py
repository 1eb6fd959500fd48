"""Celery's beat on many machines, of which one sends the tasks.

    celery -A app beat --scheduler primacy.contrib.celery.Scheduler

    app.conf.primacy_store = "postgresql://host/db"     # or the variable PRIMACY_STORE

Every other option of `primacy.blocking.Election` is a setting too (`primacy_profile`, `primacy_on_loss`, ...), and
`primacy_lease` is the lease's name: `celery-beat/` and the name of the app. The schedule is a file, as that of Celery's
own beat. It is opened only by the beat that holds the lease, so that beats on one machine can share it.

Which runs count as done after a takeover: the file keeps the token under which it was written. If that is the token of
the leadership just before, the file knows all runs (the same machine, or a shared disk), and what fell due in between
is sent. If another beat led since, it does not, and everything counts from the takeover: nothing is sent twice, and
what fell due while nobody led is left out.

It must never send a task without asking the leadership first, nor write the file after a loss.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import click

from primacy import blocking
from primacy.contrib.campaign import Campaign
from primacy.contrib.options import options_from
from primacy.errors import LeadershipLost, MissingExtra, UsageError

try:
    from celery.beat import PersistentScheduler
except ModuleNotFoundError as error:
    if not str(error.name).startswith("celery"):
        raise
    raise MissingExtra("primacy.contrib.celery", "celery") from None

log = logging.getLogger("primacy")

PREFIX = "primacy_"
LEASE = "celery-beat"
TOKEN = "primacy_token"
"""The key of the schedule's file that has the token under which it was last written."""


class WrongSetting(UsageError, click.UsageError):
    """A setting of the app. The command `celery` shows it as it shows a wrong option of its own."""


class Scheduler(PersistentScheduler):
    """Sends what is due while this process holds the lease, and waits otherwise."""

    sync_every_tasks: Any
    _store: Any = None

    def __init__(self, app: Any, *args: Any, **kwargs: Any) -> None:
        self._campaign: Campaign | None = None
        self._held: blocking.ThreadLeadership | None = None
        """The leadership under which the schedule is open."""
        self._given: blocking.ThreadLeadership | None = None
        self._came = threading.Event()
        self._sending = threading.Lock()
        self._in_tick = self._left = False
        self._failure: Exception | None = None
        try:
            self._election = election_of(app)
        except UsageError as error:
            raise WrongSetting(str(error)) from None
        super().__init__(app, *args, **kwargs)
        self.sync_every_tasks = self.sync_every_tasks or 1  # what a killed beat had sent is known to the next one

    def setup_schedule(self) -> None:
        """The schedule is read when this process leads; until then it campaigns."""
        self._campaign = Campaign(self._election, self._begun, self._over, self._cannot)
        self._campaign.start()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One task that is due, if this process leads. Returns after a moment at most, so that beat is seen to live."""
        assert self._campaign is not None
        self._in_tick = True
        try:
            return self._tick(self._campaign.look_s, *args, **kwargs)
        finally:
            self._in_tick = False

    def _tick(self, look_s: float, *args: Any, **kwargs: Any) -> float:
        if self._failure is not None:
            raise self._failure
        if self._held is not None and self._held is not self._given:
            self._forget_schedule()
        if self._held is None and not self._came.wait(look_s):
            return 0.0
        with self._sending:  # nobody else begins while a task is on its way
            try:
                if self._held is None:
                    self._open_schedule_under(self._given)
                if self._held is not None:
                    self._held.check()
                    next_s: float = super().tick(*args, **kwargs)
                    return min(next_s, look_s)
            except LeadershipLost as error:
                log.warning("%s: beat stops sending: %s", self._election.name, error)
        self._forget_schedule()
        return look_s

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        assert self._held is not None
        self._held.check()
        super().apply_entry(entry, producer=producer)

    def close(self) -> None:
        """The lease is released when the schedule is written.

        Beat calls this twice: in its signal handler, which may stand in the middle of a tick, and after its loop.
        """
        if self._in_tick or self._left:
            return
        self._left = True
        try:
            if self._held is not None and self._held.left_ms():
                super().close()
            else:
                self._forget_schedule()
        finally:
            if self._campaign is not None:
                self._campaign.stop()

    def sync(self) -> None:
        if self._held is not None and self._held.left_ms():
            super().sync()

    def get_schedule(self) -> Any:
        return {} if self._store is None else super().get_schedule()

    schedule = property(get_schedule, PersistentScheduler.set_schedule)

    @property
    def info(self) -> str:
        return f"{super().info}\n    . lease -> {self._election.name}"

    # --- the schedule's file ------------------------------------------------------------------------------------------

    def _open_schedule_under(self, given: blocking.ThreadLeadership | None) -> None:
        if given is None:
            return  # it is over already
        given.check()
        self._held = given
        super().setup_schedule()
        if self._store.get(TOKEN) != given.preceding_token:
            for entry in self.schedule.values():
                entry.last_run_at = entry.default_now()
        self._store[TOKEN] = given.token
        self._heap = None
        self.sync()

    def _forget_schedule(self) -> None:
        """What is not written stays unwritten: the file may be another's by now."""
        store, self._store, self._held, self._heap = self._store, None, None, None
        if store is not None:
            store.cache.clear()
            store.close()

    # --- told by the campaign's thread --------------------------------------------------------------------------------

    def _begun(self, leadership: blocking.ThreadLeadership) -> None:
        self._given = leadership
        self._came.set()

    def _over(self) -> None:
        self._came.clear()
        self._given = None
        with self._sending:  # a task that is on its way when the leadership is lost arrives, or fails, first
            pass

    def _cannot(self, error: Exception) -> None:
        self._failure = error
        self._came.set()


def election_of(app: Any) -> blocking.Election:
    """The election that the app's settings say."""
    said = {name.removeprefix(PREFIX): app.conf[name] for name in app.conf if str(name).startswith(PREFIX)}
    options = options_from(said, PREFIX + "{}", also=("lease",))
    lease = said.get("lease") or (f"{LEASE}/{app.main}" if app.main else LEASE)
    return blocking.Election(lease, **options)
