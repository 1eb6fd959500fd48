"""Real cache peers on this machine that can be killed, frozen, started again and cut off.

Each peer is reached by others through a small proxy, for its bus and for its clients, so that it can be cut off: bytes
of its connections, to it and from it, then go nowhere, and nothing is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.ports import free_ports
from tests.support.safety_checks import safe

READY_S = 60.0
"""Far more than an interpreter takes to start: only a hang reaches it."""


class Line(NamedTuple):
    """One line of the sources' log."""

    at_s: float
    pid: int
    what: str
    key: str


class Proxy:
    """Listens for one peer; passes bytes on to where it really is, unless the peer or who connected is cut off."""

    def __init__(self, crowd: Crowd, owner: int, port: int, to: int) -> None:
        self.crowd, self.owner, self.port, self.to = crowd, owner, port, to
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.to)
            port = writer.get_extra_info("peername")[1]
            ends = (self.owner, await asyncio.to_thread(self.crowd.owner_of, port, self.port))
            while self.crowd.is_cut(ends):
                await asyncio.sleep(0.02)
            copies = [
                asyncio.create_task(self._copy(reader, back, ends)),
                asyncio.create_task(self._copy(there, writer, ends)),
            ]
            try:
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for copy in copies:
                    copy.cancel()
                back.close()
        except (OSError, asyncio.CancelledError):
            pass  # only `close` cancels it; Python 3.11 complains at length about a handler that ended so
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: tuple[int, int]) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                while self.crowd.is_cut(ends):
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Crowd:
    """`count` peers; `takes_s`: what a call of the source takes; `silent`: listed, and not started here;
    `kinds`: a letter per peer, `o` for a double of an original; `under`: what stands in front of the commands that are
    started from now on."""

    def __init__(
        self,
        folder: Path,
        count: int,
        takes_s: float,
        *,
        proxied: bool = False,
        silent: int = 0,
        judged: bool = True,
        kinds: str = "",
        under: tuple[str, ...] = (),
        **more: Any,
    ) -> None:
        self.under = under
        self._kinds = kinds or "m" * count
        ports = free_ports(4 * count + 2 * silent)
        self.urls = [f"tcp://127.0.0.1:{port}" for port in ports[:count]]
        self.apis = [f"tcp://127.0.0.1:{port}" for port in ports[count : 2 * count]]
        self._ports = ports
        rest = [f"tcp://127.0.0.1:{port}" for port in ports[4 * count :]]
        self.silent_urls, self.silent_apis = rest[:silent], rest[silent:]
        self._count, self._takes_s, self._proxied, self._more = count, takes_s, proxied, more
        self.log = folder / "source.log"
        self.log.touch()
        self.processes: list[subprocess.Popen[str]] = []
        self.bound_apis = [f"tcp://127.0.0.1:{port}" for port in ports[3 * count : 4 * count]]
        """Where the peers listen for clients themselves, behind the proxies."""
        self._judged = judged
        self._cut: set[int] = set()
        self._killed: dict[int, float] = {}
        self._frozen: list[tuple[int, float]] = []
        self._proxies: list[Proxy] = []

    async def __aenter__(self) -> Self:
        try:
            if self._proxied:
                for each in range(2 * self._count):
                    proxy = Proxy(self, each % self._count, self._ports[each], self._ports[2 * self._count + each])
                    await proxy.open()
                    self._proxies.append(proxy)
            for each in range(self._count):
                self.processes.append(self._started(each))
            for each in range(self._count):
                await self.ready(each)
        except BaseException:
            await self._end_all()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        ended_s = time.monotonic()
        await self._end_all()
        if self._judged:
            self.judge(ended_s)

    async def _end_all(self) -> None:
        for process in self.processes:
            self._killed.setdefault(process.pid, time.monotonic())
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
        for proxy in self._proxies:
            await proxy.close()

    def judge(self, now_s: float) -> None:
        """S1, of all that the sources wrote down: two peers never call for one key at the same time. A call of a peer
        that was frozen meanwhile is exempt: it is fenced, and its result loses."""
        open_: dict[tuple[int, str], float] = {}
        spans: dict[str, list[tuple[float, float, int]]] = {}
        left: dict[int, float] = {}
        for line in self.calls():
            if line.what == "leave":
                left[line.pid] = line.at_s
            elif line.what == "begin":
                open_[line.pid, line.key] = line.at_s
            else:
                spans.setdefault(line.key, []).append((open_.pop((line.pid, line.key)), line.at_s, line.pid))
        for (pid, key), began_s in open_.items():
            spans.setdefault(key, []).append((began_s, left.get(pid, self._killed.get(pid, now_s)), pid))
        for key, found in spans.items():
            judged = sorted(span for span in found if not self._was_frozen(span))
            for one, other in itertools.pairwise(judged):
                over_ms = round((one[1] - other[0]) * 1_000)
                safe(over_ms <= 0, f"two peers called for {key} at once, for {over_ms} ms: {one} and {other}")

    def _was_frozen(self, span: tuple[float, float, int]) -> bool:
        return any(pid == span[2] and began_s <= span[1] for pid, began_s in self._frozen)

    def _started(self, which: int) -> subprocess.Popen[str]:
        given: dict[str, Any] = {
            "url": self.urls[which],
            "api": self.apis[which],
            "peers": list(zip(self.urls + self.silent_urls, self.apis + self.silent_apis, strict=True)),
            "takes_s": self._takes_s,
            "log": str(self.log),
            **self._more,
        }
        if self._proxied:
            given["bind_url"] = f"tcp://127.0.0.1:{self._ports[2 * self._count + which]}"
            given["bind_api"] = f"tcp://127.0.0.1:{self._ports[3 * self._count + which]}"
        program = (
            "tests.support.cache_original_peer" if self._kinds[which] == "o" else "tests.support.cache_peer_process"
        )
        command = [*self.under, sys.executable, "-m", program, json.dumps(given)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._await_end, args=(process,), daemon=True).start()
        return process

    def _await_end(self, process: subprocess.Popen[str]) -> None:
        """When it was seen to have ended, whoever ended it. A peer that ends itself writes down when: who looks may be
        late."""
        with contextlib.suppress(ChildProcessError):  # it was waited for already, by who killed it
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self._killed.setdefault(process.pid, time.monotonic())

    async def ready(self, which: int) -> None:
        assert (await self._line(which)) == "ready\n", f"peer {which} did not start"

    async def _line(self, which: int) -> str:
        out = self.processes[which].stdout
        assert out is not None
        return await asyncio.wait_for(asyncio.to_thread(out.readline), READY_S)

    async def counts(self, which: int) -> dict[str, Any]:
        into = self.processes[which].stdin
        assert into is not None
        into.write("counts\n")
        into.flush()
        found: dict[str, Any] = json.loads(await self._line(which))
        return found

    # --- what is done to them -----------------------------------------------------------------------------------------

    def kill(self, which: int) -> None:
        """It surely lived until right before this. Read afterwards, the moment would be later than its death by as long
        as this process stands still in between, in which another peer may rightly begin."""
        self._killed.setdefault(self.processes[which].pid, time.monotonic())
        self.processes[which].kill()
        self.processes[which].wait()

    def freeze(self, which: int) -> None:
        self._frozen.append((self.processes[which].pid, time.monotonic()))
        self.processes[which].send_signal(signal.SIGSTOP)

    def thaw(self, which: int) -> None:
        self.processes[which].send_signal(signal.SIGCONT)

    async def restart(self, which: int) -> None:
        for pipe in (self.processes[which].stdin, self.processes[which].stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self.processes[which] = self._started(which)
        await self.ready(which)

    def cut(self, *which: int) -> None:
        """From everybody: other peers and clients."""
        assert self._proxied
        self._cut |= set(which)

    def heal(self) -> None:
        self._cut.clear()

    # --- what is seen -------------------------------------------------------------------------------------------------

    def calls(self, key: str | None = None) -> list[Line]:
        """All lines that are whole: of one that crosses a page, a reader may see the first part alone."""
        found = []
        for text in self.log.read_text().rpartition("\n")[0].splitlines():
            at_s, pid, what, name = text.split(" ", 3)
            if key is None or name == key:
                found.append(Line(float(at_s), int(pid), what, name))
        return found

    def begun(self, key: str | None = None) -> list[Line]:
        return [line for line in self.calls(key) if line.what == "begin"]

    def which(self, pid: int) -> int:
        return [process.pid for process in self.processes].index(pid)

    def is_cut(self, ends: tuple[int, int]) -> bool:
        return bool(self._cut) and (ends[0] in self._cut) != (ends[1] in self._cut)

    def owner_of(self, port: int, to: int) -> int:
        """Which peer has the connection between these ports; -1: a client. A port alone may be that of several."""
        inode = ""
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if [int(fields[each].partition(":")[2], 16) for each in (1, 2)] == [port, to]:
                inode = fields[9]
                break
        for each, process in enumerate(self.processes):
            with contextlib.suppress(OSError):
                for name in os.listdir(f"/proc/{process.pid}/fd"):
                    with contextlib.suppress(OSError):
                        if os.readlink(f"/proc/{process.pid}/fd/{name}") == f"socket:[{inode}]":
                            return each
        return -1
