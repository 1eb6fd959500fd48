"""Hits of one peer beside a bare C ROUTER, and beside the same code on zmq.asyncio: processor time per request.

The load generator is C as well (`cache_echo.c`), and replays requests that were prepared, and sealed, right before. So
all servers get the same frames, and send as many and as long ones back.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from tests.support.ports import free_ports

from bench import processes
from bench.cache_server import CLIENT, CLUSTER, KEY, OPTIONS, SECRET
from bench.report import Row, spread
from primacy.cache.model import Ballot
from primacy.cache.security import TAG_BYTES, ClientSeal, new_boot
from primacy.cache.wire_client import GetRequest, Remark, remark_frame, request_frames
from primacy.cache.zap import client_key, pair

VALUE_BYTES = 100
OUTSTANDING = 64
REQUESTS = 20_000
"""In one round, to each server."""
TURNS = 4
"""The servers take turns so often within a round: a processor changes its speed from one second to the next. Every
other turn begins with the other one, for who comes second may find it warmer."""
C_TIMES = 5
"""The C ROUTER gets all of them so often: both are measured for about as long, for processors change their speed."""
WARM = 500
AHEAD_MS = 60_000
C_RATIO = 1 / 0.20
"""A request may cost so many times what it costs the C ROUTER; 1 / 0.30 is aimed for."""
ASYNCIO_RATIO = 1 / 6
READY_S = 60.0
SECURITIES = {"hits": "none", "original": "none", "sealed": "secret", "curve": "curve"}
"""`original`: the frames of an original client, which are fewer: no options, and no remark in the answer."""


class Serves:
    """A server process. It is tied to no core: nobody's cache is."""

    def __init__(self, argv: Sequence[str], api: str = "") -> None:
        self.api = api
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            self.end()
            raise SystemExit(f"bench: {argv[0]} did not start")

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(processes.ENDS_S)
        self.process.stdout.close()


class Took(NamedTuple):
    """One run of the generator against one server, per request."""

    cpu_us: float
    per_s: float


def compiled(folder: Path) -> Path | None:
    """The C program; None: there is no compiler, or no header of libzmq."""
    program = folder / "cache_echo"
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source = str(Path(__file__).with_name("cache_echo.c"))
    done = subprocess.run(
        [compiler, "-O2", "-o", str(program), source, "-lzmq"], capture_output=True, text=True, check=False
    )
    return program if done.returncode == 0 else None


def python(**given: Any) -> list[str]:
    return [sys.executable, "-m", "bench.cache_server", json.dumps(given)]


def peer(security: str) -> Serves:
    url, api = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    return Serves(python(kind="peer", url=url, api=api, security=security, value_bytes=VALUE_BYTES), api)


def on_asyncio() -> Serves:
    url, api, behind = (f"tcp://127.0.0.1:{port}" for port in free_ports(3))
    return Serves(python(kind="asyncio", url=url, api=api, behind=behind, value_bytes=VALUE_BYTES), behind)


def bare(program: Path, security: str, own: bool = True) -> Serves:
    api = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    epoch = Ballot(1 << 40, "tcp://127.0.0.1:60000", 1 << 63)
    remark = len(remark_frame(Remark(epoch.peer, term=epoch.term, boot=epoch.boot))) if own else 0
    seal = TAG_BYTES if security == "secret" else 0
    private = [pair(SECRET, CLUSTER).private.decode()] if security == "curve" else []
    return Serves([str(program), "serve", api, str(VALUE_BYTES), f"{remark},{seal}", *private], api)


def requests(path: Path, count: int, security: str, own: bool = True) -> None:
    """As `Client.get` makes them, or an original client; sealed ones are good for half a minute, once."""
    seal = ClientSeal(CLUSTER, client_key(SECRET, CLUSTER, CLIENT), new_boot()) if security == "secret" else None
    wall_ms = time.time_ns() // 1_000_000
    with path.open("wb") as file:
        for number in range(count):
            name = b"%x" % (number + 1)
            frames = request_frames(GetRequest(name, wall_ms + AHEAD_MS, KEY, 0, OPTIONS if own else None))
            if seal is not None:
                frames.append(seal.sealed(frames, wall_ms))
            file.write(bytes((len(frames),)))
            file.writelines(len(frame).to_bytes(4, "big") + frame for frame in frames)


def asked(
    program: Path, server: Serves, security: str, folder: Path, count: int, own: bool = True, times: int = 1
) -> Took:
    """All requests, so many times. Every answer is a value, or this fails."""
    path = folder / "requests"
    requests(path, count, security, own)
    words = [str(program), "ask", server.api, str(path), str(OUTSTANDING), str(times)]
    if security == "curve":
        key = client_key(SECRET, CLUSTER, CLIENT)
        words += [key.server.decode(), key.public.decode(), key.private.decode()]
    before_ns = processes.cpu_ns(server.process.pid)
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=READY_S)
    spent_ns = processes.cpu_ns(server.process.pid) - before_ns
    heard, took_ns, wrong = map(int, done.stdout.split())
    count *= times
    assert (heard, wrong) == (count, 0), f"{heard} answers, {wrong} of them are no value"
    return Took(spent_ns / count / 1_000, count / took_ns * 1e9)


def compared(part: str, rounds: int, folder: Path, program: Path) -> tuple[list[Row], dict[str, list[float]]]:
    """Ours beside C for one kind of security; for `asyncio` beside the same code on zmq.asyncio."""
    security, own = SECURITIES.get(part, "none"), part != "original"
    servers = [peer(security)]
    took: tuple[list[Took], list[Took]] = ([], [])
    try:
        servers.append(on_asyncio() if part == "asyncio" else bare(program, security, own))
        for server in servers:
            asked(program, server, security, folder, WARM, own)
        for _ in range(rounds):
            turns: tuple[list[Took], list[Took]] = ([], [])
            for turn in range(TURNS):
                for at in (0, 1) if turn % 2 == 0 else (1, 0):
                    times = C_TIMES if at and part != "asyncio" else 1
                    turns[at].append(asked(program, servers[at], security, folder, REQUESTS // TURNS, own, times))
            for into, each in zip(took, turns, strict=True):
                into.append(Took(mean(one.cpu_us for one in each), TURNS / sum(1 / one.per_s for one in each)))
    finally:
        for server in servers:
            server.end()
    mine, their = ([one.cpu_us for one in each] for each in took)
    ratio = median(a / b for a, b in zip(mine, their, strict=True))
    beside = f"{'zmq.asyncio' if part == 'asyncio' else 'C ROUTER'} {spread(their, 'us')}"
    frames = "" if own else ", an original client's frames"
    what = f"{OUTSTANDING} outstanding, security {security}{frames}, processor time per request"
    row = Row(part, what, spread(mine, "us"), beside, ratio, ASYNCIO_RATIO if part == "asyncio" else C_RATIO)
    raw = {f"{part}_us": mine, f"{part}_beside_us": their}
    for name, each in zip(("", "_beside"), took, strict=True):
        raw[f"{part}{name}_per_s"] = [one.per_s for one in each]
    return [row], raw
