"""The slot server beside redis: time per request, broadcasts to 1,000 clients, idle connections; and failover.

    python -m bench.slots [--rounds 7] [--only read,write,broadcast,idle,failover] [--json]

Both servers stand on one core, the generator on the other; they take turns, round by round, and medians are compared.
Processor time of the server is the scheduler's own account, so that whatever else this machine does matters little. The
generator keeps one batch on its way on each of 50 connections and compares every answer.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.support.ports import free_ports

from bench import processes
from bench.report import Row, measurable, spread, told
from bench.slots_failover import Cluster

PARTS = ("read", "write", "broadcast", "idle", "failover")
BESIDE_REDIS = {"read", "write", "broadcast"}
CONNECTIONS = 50
DEPTHS = {1: 1 / 0.60, 16: 1 / 0.55}
"""Requests on their way on each connection, and how much processor time each may cost, as a ratio to redis."""
BATCHES = {1: 400, 16: 100}
LISTENERS = 1_000
BROADCASTS = 40
BROADCAST_RATIO = 2.0
"""Processor time of a delivery beside redis' PUBLISH: the `send` is the same, and most of it."""
BROADCAST_LATE = 2.0
"""How much later the last client may have it. Wall time on a machine that others share: news, no promise."""
FAILOVER = 0.5
"""The default profile's share of the time that Ghoti's own times take."""
IDLE = 10_000
IDLE_KIB = 12.0
VALUE = b"a-value-of-20-bytes!"
LIMIT_S = 60.0
FILE = """
slots:
  "000": {kind: simple_memory}
  "001": {kind: simple_memory, users: {pepe: r}}
  "014": {kind: broadcast}
  users: {pepe: passw0rd}
"""


class Spoken(NamedTuple):
    """One exchange in the words of a server."""

    ask: bytes
    answer: bytes


OURS = {
    "read": Spoken(b"r000\n", b"v000" + VALUE + b"\n"),
    "write": Spoken(b"w000" + VALUE + b"\n", b"v000" + VALUE + b"\n"),
}
REDIS = {
    "read": Spoken(b"*2\r\n$3\r\nGET\r\n$4\r\ns000\r\n", b"$20\r\n" + VALUE + b"\r\n"),
    "write": Spoken(b"*3\r\n$3\r\nSET\r\n$4\r\ns000\r\n$20\r\n" + VALUE + b"\r\n", b"+OK\r\n"),
}


class Server:
    """A server process on the first core, and how it is spoken to."""

    def __init__(self, argv: list[str], port: int, folder: Path) -> None:
        self.port = port
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
        )
        until_s = time.monotonic() + LIMIT_S
        while True:
            try:
                self.dial().close()
                break
            except ConnectionRefusedError:
                if self.process.poll() is not None or time.monotonic() > until_s:
                    raise SystemExit(f"bench: {argv[0]} does not listen") from None
                time.sleep(0.05)
        os.sched_setaffinity(self.process.pid, {min(os.sched_getaffinity(0))})

    def dial(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(processes.ENDS_S)


def primacy(folder: Path) -> Server:
    (port,) = free_ports(1)
    (folder / "slots.yaml").write_text(FILE)
    argv = [sys.executable, "-m", "primacy.cli.main", "slots", "serve", "--config", "slots.yaml"]
    return Server([*argv, "--addr", f"127.0.0.1:{port}"], port, folder)


def redis(folder: Path) -> Server:
    (port,) = free_ports(1)
    argv = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    return Server([shutil.which("redis-server") or "redis-server", *argv[1:]], port, folder)


# --- requests ---------------------------------------------------------------------------------------------------------


def cost_us(server: Server, spoken: Spoken, depth: int) -> float:
    """Processor time of the server per request, in one round."""
    socks = [server.dial() for _ in range(CONNECTIONS)]
    try:
        ask, answer = spoken.ask * depth, spoken.answer * depth
        turn(socks, ask, answer, 3)
        before_ns = processes.cpu_ns(server.process.pid)
        turn(socks, ask, answer, BATCHES[depth])
        spent_ns = processes.cpu_ns(server.process.pid) - before_ns
    finally:
        for sock in socks:
            sock.close()
    return spent_ns / (BATCHES[depth] * depth * CONNECTIONS) / 1_000


def turn(socks: list[socket.socket], ask: bytes, answer: bytes, batches: int) -> None:
    """A batch on each connection; the next one as soon as that connection has answered."""
    left = {sock.fileno(): batches for sock in socks}
    by_fd = {sock.fileno(): sock for sock in socks}
    got = dict.fromkeys(by_fd, b"")
    with select.epoll() as poll:
        for fd, sock in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            sock.send(ask)
        while left:
            for fd, _ in poll.poll(LIMIT_S):
                data = got[fd] + by_fd[fd].recv(65_536)
                if len(data) < len(answer):
                    got[fd] = data
                    continue
                assert data == answer, f"{data[:60]!r} is no answer"
                got[fd] = b""
                left[fd] -= 1
                if left[fd]:
                    by_fd[fd].send(ask)
                else:
                    del left[fd]


def compared(ours: Server, theirs: Server, part: str, rounds: int) -> tuple[list[Row], dict[str, list[float]]]:
    rows, raw = [], {}
    for depth, goal in DEPTHS.items():
        mine, their = [], []
        for _ in range(rounds):
            mine.append(cost_us(ours, OURS[part], depth))
            their.append(cost_us(theirs, REDIS[part], depth))
        ratio = median(a / b for a, b in zip(mine, their, strict=True))
        what = f"{CONNECTIONS} connections, {depth} deep, processor time per request"
        rows.append(Row(part, what, spread(mine, "us"), f"redis {spread(their, 'us')}", ratio, goal))
        raw[f"{part}-{depth}"] = [*mine, *their]
    return rows, raw


# --- broadcasts and idleness ------------------------------------------------------------------------------------------


class Heard(NamedTuple):
    """A signal in the words of a server."""

    join: bytes
    """What a listener says first; empty if nothing."""
    joined: bytes
    write: bytes
    event: bytes
    answer: bytes
    alone: bytes = b""
    """What a writer hears of a signal that reaches nobody else; empty if that need not be known."""


def received(sock: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if the other end hangs up."""
    got = b""
    while len(got) < size and (more := sock.recv(size - len(got))):
        got += more
    return got


def wait_alone(writer: socket.socket, words: Heard) -> None:
    """Until the server has noticed that all who were there before are gone: it counts whom a signal reached."""
    until_s = time.monotonic() + LIMIT_S
    while words.alone:
        writer.send(words.write % 0)
        said = b""
        while said.count(b"\n") < words.alone.count(b"\n"):
            said += writer.recv(4_096)
        if said == words.alone % 0:
            return
        if time.monotonic() > until_s:
            raise SystemExit(f"bench: somebody else is still connected: {said!r}")
        time.sleep(0.01)


def signalled(server: Server, words: Heard) -> tuple[list[float], float]:
    """ms from the write to the last client's receipt, one after the other; and the server's us per delivery.

    Every client gets every value, in order, or this fails.
    """
    writer = server.dial()
    wait_alone(writer, words)
    clients = [server.dial() for _ in range(LISTENERS)]
    by_fd = {sock.fileno(): sock for sock in clients}
    took_ms = []
    try:
        for sock in clients:
            if words.join:
                sock.send(words.join)
                assert received(sock, len(words.joined)) == words.joined
        before_ns = processes.cpu_ns(server.process.pid)
        with select.epoll() as poll:
            for fd in by_fd:
                poll.register(fd, select.EPOLLIN)
            for n in range(BROADCASTS):
                event = words.event % n
                began_s = time.perf_counter()
                writer.send(words.write % n)
                waiting = dict.fromkeys(by_fd, b"")
                while waiting:
                    for fd, _ in poll.poll(LIMIT_S):
                        waiting[fd] += by_fd[fd].recv(4_096)
                        if waiting[fd] == event:
                            del waiting[fd]
                took_ms.append((time.perf_counter() - began_s) * 1_000)
                wanted, said = words.answer % n if b"%" in words.answer else words.answer, b""
                while len(said) < len(wanted):
                    said += writer.recv(4_096)
                assert said == wanted, said
        spent_ns = processes.cpu_ns(server.process.pid) - before_ns
    finally:
        for sock in (writer, *clients):
            sock.close()
    return took_ms, spent_ns / (BROADCASTS * LISTENERS) / 1_000


def broadcasts(ours: Server, theirs: Server, rounds: int) -> tuple[list[Row], dict[str, list[float]]]:
    """Beside redis' PUBLISH to as many subscribers."""
    all_of_us = b"v014%d/%d/0\n" % (LISTENERS + 1, LISTENERS + 1)
    event = b"a014%06d\n"
    mine = Heard(b"r000\n", OURS["read"].answer, b"w014%06d\n", event, event + all_of_us, event + b"v0141/1/0\n")
    subscribe = b"*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\ns014\r\n"
    subscribed = b"*3\r\n$9\r\nsubscribe\r\n$4\r\ns014\r\n:1\r\n"
    publish = b"*3\r\n$7\r\nPUBLISH\r\n$4\r\ns014\r\n$6\r\n%06d\r\n"
    message = b"*3\r\n$7\r\nmessage\r\n$4\r\ns014\r\n$6\r\n%06d\r\n"
    their = Heard(subscribe, subscribed, publish, message, b":%d\r\n" % LISTENERS)
    took: list[float] = []
    their_took: list[float] = []
    costs: list[float] = []
    their_costs: list[float] = []
    for _ in range(rounds):
        found_ms, cost = signalled(ours, mine)
        took += found_ms
        costs.append(cost)
        found_ms, cost = signalled(theirs, their)
        their_took += found_ms
        their_costs.append(cost)
    what = f"to {LISTENERS:,} clients, processor time per delivery"
    ratio = median(a / b for a, b in zip(costs, their_costs, strict=True))
    rows = [Row("broadcast", what, spread(costs, "us"), f"redis {spread(their_costs, 'us')}", ratio, BROADCAST_RATIO)]
    late = p99(took) / p99(their_took)
    what = "ms until the last of them has it, p99"
    rate = LISTENERS * 1_000 / median(took)
    shown = f"{p99(took):.1f} ms, {rate:,.0f} messages/s"
    rows.append(Row("broadcast", what, shown, f"redis {p99(their_took):.1f} ms", late, BROADCAST_LATE, promise=False))
    return rows, {"broadcast_ms": took, "redis_broadcast_ms": their_took}


def p99(values: list[float]) -> float:
    return sorted(values)[max(0, int(len(values) * 0.99) - 1)]


def idleness(folder: Path) -> tuple[list[Row], dict[str, list[float]]]:
    """What each connection costs that only stands there, of a fresh server. What the kernel needs is not counted."""
    ours = primacy(folder)
    try:
        return weighed(ours)
    finally:
        ours.end()


def weighed(ours: Server) -> tuple[list[Row], dict[str, list[float]]]:
    before_mib = processes.resident_mib(ours.process.pid)
    socks = []
    try:
        for _ in range(IDLE):
            socks.append(ours.dial())
        for sock in socks:  # the server has taken each, and each has been used
            sock.send(b"r000\n")
        for sock in socks:
            assert received(sock, 4) == b"v000"
        after_mib = processes.resident_mib(ours.process.pid)
    finally:
        for sock in socks:
            sock.close()
    each_kib = (after_mib - before_mib) * 1_024 / IDLE
    what = f"{IDLE:,} connections, KiB of memory each"
    row = Row("idle", what, f"{each_kib:.2f} KiB", f"{after_mib - before_mib:.0f} MiB in all", each_kib, IDLE_KIB)
    return [row], {"idle_kib": [each_kib]}


def failovers(rounds: int, folder: Path) -> tuple[list[Row], dict[str, list[float]]]:
    """The default profile beside the one with Ghoti's own times."""
    clusters = {}
    took: dict[str, list[float]] = {"lan": [], "ghoti": []}
    try:
        for profile in took:
            (folder / profile).mkdir()
            clusters[profile] = Cluster(folder / profile, profile)
        for _ in range(rounds):
            for profile, cluster in clusters.items():
                took[profile].append(cluster.failover_ms())
    finally:
        for cluster in clusters.values():
            cluster.end()
    ratio = max(took["lan"]) / max(took["ghoti"])  # where in a heartbeat of 2 s the kill falls decides the rest
    what = "leader killed, three nodes of bully: until a client is answered, worst"
    beside = f"profile ghoti {spread(took['ghoti'])}"
    row = Row("failover", what, spread(took["lan"]), beside, ratio, FAILOVER, promise=False)
    return [row], {f"failover_{profile}_ms": values for profile, values in took.items()}


# --- the command ------------------------------------------------------------------------------------------------------


def run(parts: tuple[str, ...], rounds: int, folder: Path) -> tuple[list[Row], dict[str, list[float]]]:
    rows: list[Row] = []
    raw: dict[str, list[float]] = {}
    ours = primacy(folder)
    theirs = redis(folder) if set(parts) & BESIDE_REDIS else None
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        os.sched_setaffinity(0, cores - {min(cores)})
    try:
        with ours.dial() as sock:
            sock.send(OURS["write"].ask)
            sock.recv(100)
        for part in parts:
            print(part, file=sys.stderr, flush=True)
            if part == "broadcast":
                assert theirs is not None
                found = broadcasts(ours, theirs, rounds)
            elif part in OURS:
                assert theirs is not None
                with theirs.dial() as sock:
                    sock.send(REDIS["write"].ask)
                    sock.recv(100)
                found = compared(ours, theirs, part, rounds)
            else:
                found = idleness(folder) if part == "idle" else failovers(rounds, folder)
            rows += found[0]
            raw |= found[1]
    finally:
        os.sched_setaffinity(0, cores)
        for server in (ours, theirs):
            if server is not None:
                server.end()
    return rows, raw


def _missing(part: str) -> str:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if part in BESIDE_REDIS and shutil.which("redis-server") is None:
        return "redis-server is not here: make peers"
    if part == "idle" and hard < IDLE + 100:
        return f"{IDLE:,} connections need as many descriptors, and the limit is {hard:,}"
    return ""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.slots", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="of each comparison (default 7)")
    parser.add_argument(
        "--only", metavar="PARTS", help=f"of {', '.join(PARTS)}; default: all that can be measured here"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    args = parser.parse_args(words)
    parts = PARTS if args.only is None else tuple(args.only.split(","))
    if unknown := [one for one in parts if one not in PARTS]:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(PARTS)}")
    if args.rounds < 1:
        parser.error("rounds must be above 0")
    possible = measurable(parts, _missing, named=args.only is not None)
    if possible is None:
        return 4
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, IDLE + 1_000)), hard))
    try:
        with processes.ended_in_order(), tempfile.TemporaryDirectory(prefix="primacy-bench-") as name:
            rows, raw = run(possible, args.rounds, Path(name))
    except KeyboardInterrupt:
        print("stopped.", file=sys.stderr)
        return 130
    return told(rows, raw, args.rounds, args.json)


if __name__ == "__main__":
    sys.exit(main())
