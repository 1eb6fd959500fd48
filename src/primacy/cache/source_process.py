"""Sources that run in processes: commands (`cmd:`) and plain functions in warm workers (`call:`).

Both are held by a guard (`source_guard.py`), which ends them at the hold's end whatever becomes of the peer (C4).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shlex
import shutil
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from primacy.cache.model import Failure, Fetched
from primacy.cache.source_guard import KEPT, End, Guards, Instants, SourceGuard
from primacy.cache.source_worker import Answer, one_line, too_large
from primacy.errors import UsageError
from primacy.node.bound import outer_environment
from primacy.node.clock import Clock
from primacy.settings.accepted import KEY

Done = Callable[[Fetched | Failure], None]
READ_BYTES = 1 << 18
READS_MAX = 64
"""Reads of one pipe in a row before others get their turn."""
STDERR_BYTES = 4_096
"""Of what a command says on standard error, the end is kept."""
MISSING_CODE = 66
"""A command that ends with this says that there is no such entry (EX_NOINPUT of sysexits)."""
WORKER_START_MS = 60_000
"""A module that takes longer to import is not loaded."""
JOB_PIPE_BYTES = 1 << 18
"""A key fits whole, so that the guard never waits for a worker."""
F_SETPIPE_SZ = 1031
IDLE_MAX = 4
"""Workers that wait for the next call. Each keeps what the function has loaded."""
LENGTH = struct.Struct("!I")
FRAME_BYTES_MORE = 4_096
"""An answer beside its value."""
WORKER = (
    "import json, sys; a = json.loads(sys.argv[1]); sys.path[:] = a['path']; "
    "from primacy.cache.source_worker import main; main(a['target'], a['value_bytes_max'])"
)


class Running(Protocol):
    """One call that runs. It says once, by `done`, that nothing of it runs any more."""

    def extend(self, until: Instants) -> None: ...

    def stop(self, until: Instants, reason: str) -> None:
        """End it now; `reason` is its failure, unless it had a result already."""
        ...


class Environment(NamedTuple):
    """Where programs start."""

    folder: str
    """Relative paths of a command count from it: the folder of the settings."""
    variables: Mapping[bytes, bytes]

    @classmethod
    def here(cls, folder: str = "") -> Environment:
        around = {os.fsencode(name): os.fsencode(value) for name, value in outer_environment(os.environ).items()}
        return cls(os.path.abspath(folder or "."), around)


class Reading:
    """The end of a pipe that a program writes to: read as it comes, up to a bound."""

    def __init__(self, bytes_max: int, keep_end: bool, heard: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._max, self._keep_end, self._heard = bytes_max, keep_end, heard
        self.data = bytearray()
        self.too_much = False
        self._fd, self.theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self.read)

    def read(self) -> None:
        for _ in range(READS_MAX):
            if self._fd < 0:
                return
            try:
                part = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                break
            if not part:
                self.close()
                break
            self._take(part)
        self._heard()

    def _take(self, part: bytes) -> None:
        if self.too_much:
            return
        self.data += part
        if len(self.data) > self._max:
            if self._keep_end:
                del self.data[: -self._max]
            else:
                self.too_much = True

    def drain(self) -> None:
        """All that is left, once nobody writes any more."""
        while self._fd >= 0:
            try:
                part = os.read(self._fd, READ_BYTES)
            except BlockingIOError:  # somebody outside the tree holds the other end: what came is all
                break
            if not part:
                break
            self._take(part)
        self.close()

    def sent(self) -> None:
        """The program has its end."""
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def close(self) -> None:
        self.sent()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


# --- commands ---------------------------------------------------------------------------------------------------------


class CommandSource:
    """`cmd:` a template, split into words first; the key is one argument, whatever is in it. No shell."""

    def __init__(self, template: str, environment: Environment, guards: Guards, value_bytes_max: int) -> None:
        self._words = [os.fsencode(word) for word in shlex.split(template)]
        self._environment, self._guards, self._max = environment, guards, value_bytes_max
        path = environment.variables.get(b"PATH", os.fsencode(os.defpath))
        program = os.fsdecode(self._words[0])
        here = os.path.join(environment.folder, program) if "/" in program else program
        found = shutil.which(here, path=os.fsdecode(path))
        if found is None:
            raise UsageError(f"cmd:{template}: there is no program {program}, or it may not be run")
        self._words[0] = os.fsencode(os.path.abspath(found))

    async def open(self) -> None:
        self._guards.prepare()

    def start(self, key: bytes, until: Instants, done: Done) -> Running | Failure:
        if b"\0" in key:
            return Failure("the key has a zero byte, which no argument of a program can hold")
        argv = [self._words[0], *(word.replace(KEY.encode(), key) for word in self._words[1:])]
        try:
            running = CommandCall(self._guards, self._max, done)
        except OSError as error:
            return Failure(f"no process can be started: {error.strerror}")
        running.start(argv, self._environment, until)
        self._guards.prepare()
        return running


class CommandCall:
    """One run of one command."""

    def __init__(self, guards: Guards, value_bytes_max: int, done: Done) -> None:
        self._guards, self._max, self._done = guards, value_bytes_max, done
        self._why = ""
        self._until = Instants(0, 0, 0)
        with contextlib.ExitStack() as stack:
            self._out = Reading(value_bytes_max, keep_end=False, heard=self._heard)
            stack.callback(self._out.close)
            self._err = Reading(STDERR_BYTES, keep_end=True, heard=lambda: None)
            stack.callback(self._err.close)
            self._guard = guards.take()
            stack.pop_all()

    def start(self, argv: Sequence[bytes], environment: Environment, until: Instants) -> None:
        self._until = until
        fds = {1: self._out.theirs, 2: self._err.theirs}
        self._guard.start(self, argv, environment.variables, environment.folder, fds, until)
        self._out.sent()
        self._err.sent()

    def extend(self, until: Instants) -> None:
        self._until = until
        if not self._why:
            self._guard.extend(until)

    def stop(self, until: Instants, reason: str) -> None:
        self._why = self._why or reason
        self._guard.stop(until.kill_at)

    def _heard(self) -> None:
        if self._out.too_much and not self._why:
            self.stop(self._until._replace(kill_at=0), too_large(self._max + 1, self._max).reason)

    def ended(self, end: End) -> None:
        self._out.drain()
        self._err.drain()
        self._guards.give(self._guard)
        self._done(self._result(end))

    def _result(self, end: End) -> Fetched | Failure:
        if self._why:
            return Failure(self._why)
        if self._out.too_much:
            return too_large(self._max + 1, self._max)
        if end.code == 0:
            return Fetched(bytes(self._out.data))
        lines = bytes(self._err.data).decode(errors="replace").strip().splitlines()
        last = one_line(lines[-1]) if lines else ""
        if end.code == MISSING_CODE:
            return Failure(last or "the source has no such entry", missing=True)
        if end.why:
            return Failure(end.why)
        how = f"ended with code {end.code}" if end.code is not None else f"was ended by signal {end.signal}"
        return Failure(f"the command {how}{': ' + last if last else ''}")


# --- plain functions --------------------------------------------------------------------------------------------------


class Worker:
    """One process that has the function. It is told jobs one after the other, and dies with the one that overran."""

    def __init__(self, owner: FunctionSource, guard: SourceGuard, environment: Environment, until: Instants) -> None:
        self.owner, self.guard = owner, guard
        self.word = ""
        """`ready`, `async` or `broken`, once it has said so."""
        self.reason = ""
        self.is_over = False
        self.call: FunctionCall | None = None
        self._answers = Reading(owner.value_bytes_max + 2 * FRAME_BYTES_MORE, keep_end=False, heard=self._heard)
        jobs_r, jobs_w = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(jobs_w, False)
            with contextlib.suppress(OSError):
                fcntl.fcntl(jobs_w, F_SETPIPE_SZ, JOB_PIPE_BYTES)
            fds = {0: jobs_r, 1: 2, 2: 2, 3: self._answers.theirs, KEPT: jobs_w}
            guard.start(self, owner.argv, environment.variables, environment.folder, fds, until)
        finally:
            os.close(jobs_r)
            os.close(jobs_w)
            self._answers.sent()

    def _heard(self) -> None:
        data = self._answers.data
        while len(data) >= LENGTH.size:
            length = LENGTH.unpack_from(data)[0]
            if length > self.owner.value_bytes_max + FRAME_BYTES_MORE:
                self.guard.kill()  # the function has written to a descriptor that is not its own
                return
            if len(data) < LENGTH.size + length:
                break
            frame = bytes(data[LENGTH.size : LENGTH.size + length])
            del data[: LENGTH.size + length]
            try:
                answer = msgspec.msgpack.decode(frame, type=Answer)
            except (msgspec.DecodeError, msgspec.ValidationError):
                self.guard.kill()
                return
            self._hear(answer)
        if self._answers.too_much:
            self.guard.kill()

    def _hear(self, answer: Answer) -> None:
        if not self.word:
            self.word, self.reason = answer.word, answer.reason
            self.owner.is_up(self)
        elif self.call is not None:
            call, self.call = self.call, None
            call.answered(answer)

    def ended(self, end: End) -> None:
        self._answers.drain()
        self._heard()
        self.is_over = True
        self._answers.close()
        self.owner.is_gone(self, end)


class FunctionSource:
    """`call:` a plain function, in warm workers: the first is started with the peer, more as calls come."""

    def __init__(
        self,
        target: str,
        environment: Environment,
        guards: Guards,
        value_bytes_max: int,
        clock: Clock,
        workers_max: int,
    ) -> None:
        self.target, self.value_bytes_max = target, value_bytes_max
        self._environment, self._guards, self._clock = environment, guards, clock
        self._workers_max, self._count = workers_max, 0
        self._idle: list[Worker] = []
        self._spare: Worker | None = None
        """It was started ahead and has not said yet that it is up: until then nobody else is."""
        self._first: asyncio.Future[Worker] | None = None
        places = [*sys.path, os.getcwd(), environment.folder]
        said = {
            "path": [os.path.abspath(place) for place in dict.fromkeys(places)],
            "target": target,
            "value_bytes_max": value_bytes_max,
        }
        words = [sys.executable, "-P", "-c", WORKER, json.dumps(said)]
        self.argv = [os.fsencode(word) for word in words]

    async def open(self) -> bool:
        """Starts the first worker. True if the function is async, and therefore not for workers.

        Raises `UsageError` if it cannot be loaded.
        """
        self._first = asyncio.get_running_loop().create_future()
        self._new()
        worker = await self._first
        if worker.word in ("ready", "async"):
            return worker.word == "async"
        why = worker.reason or "the process that loads it has ended"
        raise UsageError(f"call:{self.target} cannot be loaded: {why}")

    def start(self, key: bytes, until: Instants, done: Done) -> Running | Failure:
        try:
            worker = self._idle.pop() if self._idle else self._new(until)
            if not self._idle and self._spare is None and self._count < self._workers_max:
                self._spare = self._new()
        except OSError as error:
            return Failure(f"no process can be started: {error.strerror}")
        return FunctionCall(self, worker, key, until, done)

    def _new(self, until: Instants | None = None) -> Worker:
        """`until`: of the call that waits for it; otherwise it has time."""
        start = until or Instants(*(self._clock.now_ms() + WORKER_START_MS for _ in Instants._fields))
        worker = Worker(self, self._guards.take(), self._environment, start)
        self._count += 1
        return worker

    def is_up(self, worker: Worker) -> None:
        """It has the function, or cannot have it."""
        self._is_no_spare(worker)
        if self._first is not None and not self._first.done():
            self._first.set_result(worker)
        if worker.word != "ready":
            worker.guard.stop(0)
        elif worker.call is not None:
            worker.call.hand_over()
        else:
            self.is_free(worker)

    def is_free(self, worker: Worker) -> None:
        """The next call may have it."""
        worker.guard.rest()
        if len(self._idle) < IDLE_MAX:
            self._idle.append(worker)
        else:
            worker.guard.stop(0)

    def _is_no_spare(self, worker: Worker) -> None:
        if worker is self._spare:
            self._spare = None

    def is_gone(self, worker: Worker, end: End) -> None:
        self._count -= 1
        self._is_no_spare(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        call, worker.call = worker.call, None
        self._guards.give(worker.guard)
        if self._first is not None and not self._first.done():
            self._first.set_result(worker)
        if call is None:
            return
        if worker.word in ("broken", "async"):
            call.lost(Failure(f"call:{self.target} cannot be loaded: {worker.reason or 'it is async now'}"))
        else:
            how = f"code {end.code}" if end.code is not None else f"signal {end.signal}"
            call.lost(Failure(end.why or f"the worker that called the function has ended with {how}"))


class FunctionCall:
    """One call of one function. A worker that is not up yet gets the job when it is."""

    def __init__(self, source: FunctionSource, worker: Worker, key: bytes, until: Instants, done: Done) -> None:
        self._source, self._worker, self._key, self._until, self._done = source, worker, key, until, done
        self._why = ""
        worker.call = self
        if worker.word:
            self.hand_over()

    def hand_over(self) -> None:
        if not self._why:
            self._worker.guard.job(self._key, self._until)

    def extend(self, until: Instants) -> None:
        self._until = until
        if not self._why:
            self._worker.guard.extend(until)

    def stop(self, until: Instants, reason: str) -> None:
        self._why = self._why or reason
        self._worker.guard.stop(until.kill_at)

    def answered(self, answer: Answer) -> None:
        """The function has returned. A worker that was told to end meanwhile is not used again; its end is awaited."""
        if self._why:
            self._worker.call = self
            return
        self._source.is_free(self._worker)
        if answer.word == "value":
            self._done(Fetched(answer.value, answer.ttl_ms))
        else:
            self._done(Failure(answer.reason, answer.missing))

    def lost(self, why: Failure) -> None:
        """Nothing of it runs any more, and it has given no answer."""
        self._done(Failure(self._why) if self._why else why)
