"""APScheduler 3 on many machines, of which one runs the jobs.

    scheduler = BackgroundScheduler()
    led = LedScheduler(scheduler, "scheduler", store="postgresql://host/db")

    @scheduler.scheduled_job("cron", hour=3)
    def report() -> None:
        build(led.leadership.token)

    led.run()                       # for ever; `with led:` and, for AsyncIOScheduler, `async with led:` do the same

The scheduler is started paused, and resumed while this process leads. When that is over it is paused, coroutine jobs
are cancelled, and no lease is released before every job has ended: a job that takes long asks `led.check()`.

A job store in memory knows nothing of what another process ran, so that what fell due before this process led is left
out there. A job store in a database knows, and APScheduler's own rules hold (`misfire_grace_time`, `coalesce`).

For a single job of a scheduler that runs everywhere, `primacy.once` is the decorator (docs/schedulers.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from primacy import blocking
from primacy.contrib.campaign import Campaign
from primacy.contrib.options import options_from
from primacy.errors import LeadershipLost, MissingExtra, UsageError

try:
    from apscheduler.events import EVENT_SCHEDULER_STARTED
    from apscheduler.executors.asyncio import AsyncIOExecutor
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.jobstores.memory import MemoryJobStore
    from apscheduler.schedulers import SchedulerNotRunningError
    from apscheduler.schedulers.asyncio import AsyncIOScheduler
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.schedulers.base import BaseScheduler
    from apscheduler.schedulers.blocking import BlockingScheduler
    from apscheduler.util import iscoroutinefunction_partial
except ModuleNotFoundError as error:  # also version 4, which has no `events`
    if not str(error.name).startswith("apscheduler"):
        raise
    raise MissingExtra("primacy.contrib.apscheduler", "apscheduler") from None

log = logging.getLogger("primacy")

LOOK_S = 0.02
"""How often it is asked whether the last job is over."""
WAKE_S = 1.0


class LedScheduler:
    """A scheduler that runs jobs while this process leads. The options are those of `primacy.blocking.Election`;
    without `store`, the variable PRIMACY_STORE says it."""

    def __init__(self, scheduler: Any, name: str, **options: Any) -> None:
        if not isinstance(scheduler, BaseScheduler):
            raise UsageError(f"{name}: this leads a scheduler of APScheduler 3, not {scheduler!r:.40}")
        self.scheduler = scheduler
        self._election = blocking.Election(name, **options_from(options, "{}"))
        self._campaign = Campaign(self._election, self._begin, self._end, self._fail)
        self._held: blocking.ThreadLeadership | None = None
        self._error: Exception | None = None
        self._started = threading.Event()
        self._passing = threading.Lock()
        """Held while jobs that are due are handed to their executors."""
        self._asking: set[Any] = set()
        """Executors whose jobs ask when they begin."""
        self._process_jobs = scheduler._process_jobs
        scheduler._process_jobs = self._process
        self._blocks = type(scheduler).start is BlockingScheduler.start
        if self._blocks:  # its `start` returns when it is shut down
            scheduler.add_listener(lambda _: self._started.set(), EVENT_SCHEDULER_STARTED)

    @property
    def leadership(self) -> blocking.Leadership:
        """The leadership that jobs run under; raises `LeadershipLost` if there is none."""
        held = self._held
        if held is None:
            raise LeadershipLost(self._election.name, 0, "this process does not lead")
        return held

    def check(self) -> None:
        """Raises `LeadershipLost` once it is over. A job that takes long asks this before each step that matters."""
        self.leadership.check()

    # --- how it is run ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Starts it and waits, until the scheduler is shut down or SIGTERM or Ctrl-C ends the program."""
        if isinstance(self.scheduler, AsyncIOScheduler):
            raise UsageError("an AsyncIOScheduler runs in an event loop: use `async with` instead of run()")
        self._campaign.start()
        caught: BaseException | None = None
        try:
            self.scheduler.start(paused=True)
            self._started.set()
            while self.scheduler.running:
                time.sleep(WAKE_S)
        except BaseException as error:
            caught = error
            raise
        finally:
            self._stop(caught)
        self._raise()

    def __enter__(self) -> Self:
        if isinstance(self.scheduler, AsyncIOScheduler) or self._blocks:
            how = "`async with`" if isinstance(self.scheduler, AsyncIOScheduler) else "run()"
            raise UsageError(f"a {type(self.scheduler).__name__} is started by {how}, not by `with`")
        return self._enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop(error)
        if error is None:
            self._raise()

    async def __aenter__(self) -> Self:
        if not isinstance(self.scheduler, AsyncIOScheduler | BackgroundScheduler):
            raise UsageError(f"a {type(self.scheduler).__name__} is started by run(), not by `async with`")
        return self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._campaign.stop, error)  # the loop goes on: jobs that it runs must end
        self._shut_down()
        if error is None:
            self._raise()

    def _enter(self) -> Self:
        self._campaign.start()
        try:
            self.scheduler.start(paused=True)
        except BaseException as error:
            self._stop(error)
            raise
        self._started.set()
        return self

    def _stop(self, error: BaseException | None) -> None:
        self._started.set()  # who waits for that need not any more
        self._campaign.stop(error)
        self._shut_down()

    def _shut_down(self) -> None:
        with contextlib.suppress(SchedulerNotRunningError):
            self.scheduler.shutdown(wait=False)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # --- in the campaign's thread -------------------------------------------------------------------------------------

    def _begin(self, leadership: blocking.ThreadLeadership) -> None:
        self._started.wait()
        with contextlib.suppress(SchedulerNotRunningError):  # somebody shuts it down just now
            self._pass_over()
            self._held = leadership
            self.scheduler.resume()

    def _end(self) -> None:
        with contextlib.suppress(SchedulerNotRunningError):
            self.scheduler.pause()
        with self._passing:
            self._held = None
        self._cancel_coroutines()
        while self._busy():
            time.sleep(LOOK_S)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._started.wait()  # one that has not started yet would start after this
        self._shut_down()

    def _pass_over(self) -> None:
        """Whether what fell due before was run by another is known to no store in memory."""
        now = datetime.now(self.scheduler.timezone)
        for alias, store in list(self.scheduler._jobstores.items()):
            for job in self.scheduler.get_jobs(alias) if isinstance(store, MemoryJobStore) else ():
                if job.next_run_time is not None and job.next_run_time < now:
                    following = job.trigger.get_next_fire_time(None, now)
                    if following is not None:  # else APScheduler says that it was missed, and drops it
                        self.scheduler.modify_job(job.id, alias, next_run_time=following)

    def _cancel_coroutines(self) -> None:
        loop = getattr(self.scheduler, "_eventloop", None)
        for executor in list(self.scheduler._executors.values()):
            for future in list(getattr(executor, "_pending_futures", ())):
                if isinstance(future, asyncio.Task) and loop is not None and not loop.is_closed():
                    loop.call_soon_threadsafe(future.cancel)

    def _busy(self) -> bool:
        executors = list(self.scheduler._executors.values())
        return any(count for executor in executors for count in list(executor._instances.values()))  # others count on

    # --- in the scheduler's own thread or loop ------------------------------------------------------------------------

    def _process(self) -> Any:
        """After a freeze this is asked before the campaign's thread could pause anything."""
        with self._passing:
            if self._held is None or not self._held.left_ms():
                return None
            for executor in list(self.scheduler._executors.values()):
                self._have_ask(executor)
            return self._process_jobs()

    def _have_ask(self, executor: Any) -> None:
        """A job may wait for a thread, or run several times in a row: it asks when it begins, not when it is handed
        over. One that is sent to another process cannot."""
        if executor in self._asking or not isinstance(executor, ThreadPoolExecutor | AsyncIOExecutor):
            return
        self._asking.add(executor)
        submit = executor._do_submit_job
        executor._do_submit_job = lambda job, times: submit(_Asking(job, self.leadership), times)


class _Asking:
    """A job as its executor sees it. What it runs asks the leadership that it was handed over under."""

    def __init__(self, job: Any, leadership: blocking.Leadership) -> None:
        self._job = job
        function = job.func

        async def ask_and_await(*args: Any, **kwargs: Any) -> Any:
            leadership.check()
            return await function(*args, **kwargs)

        def ask_and_run(*args: Any, **kwargs: Any) -> Any:
            leadership.check()
            return function(*args, **kwargs)

        self.func = ask_and_await if iscoroutinefunction_partial(function) else ask_and_run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    def __str__(self) -> str:
        return str(self._job)
