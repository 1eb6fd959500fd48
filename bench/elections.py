"""`python -m bench.elections [COUNT ...]`: what many elections in one agent cost while nothing happens.

Three agents on this machine, each with the same raft elections, whose commands sleep. Once all of them run: processor
time of the three agents and, apart, of all their guards, those in reserve included; datagrams and bytes between the
agents; memory of agents and guards, shared pages counted in part. The commands are not counted. A count for which this
machine lacks memory is skipped, and so is all where the kernel does not tell what is measured. docs/scale.md says what
was found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.ports import free_ports

from bench.processes import children, cpu_ns, name_of, tree
from primacy.agent.state import AGENT
from primacy.cli.new import write_secret
from primacy.control.client import ask, find
from primacy.errors import PrimacyError

COUNTS = (1, 10, 100, 300)
GOALS = {10: 2.0, 100: 12.0}
"""At most so many times the processor time of one."""
NODES = ("a", "b", "c")
CLUSTER = "bench"
SETTLE_S, MEASURE_S = 10.0, 20.0
START_S = 1_200.0
"""Three hundred elections start more than five hundred guards."""
AGENT_MIB, ELECTION_MIB = 150, 30
"""What three agents need at most, and what each of their elections adds: guards, one of them in use, and a command."""
NEEDED = (
    Path("/proc/self/smaps_rollup"),
    Path("/proc/self/schedstat"),
    Path(f"/proc/self/task/{os.getpid()}/children"),
)
"""Not every kernel has them."""
COMMAND = ("sleep", "36000")
ENDED_OR_COMMAND = ("", COMMAND[0])


class Cost(NamedTuple):
    """Of all three agents together, per second; memory at the end."""

    elections: int
    started_s: float
    cpu_ms: float
    guards_cpu_ms: float
    datagrams: float
    kib: float
    agents_mib: float
    guards: int
    """In use and in reserve; a guard in use may have processes of its own besides."""
    guards_mib: float


class Agents:
    """Three of them, with so many elections."""

    def __init__(self, folder: Path, elections: int) -> None:
        self.folder = folder
        self.elections = elections
        write_secret(folder / "secret")
        nodes = {name: {"addr": f"127.0.0.1:{port}"} for name, port in zip(NODES, free_ports(3), strict=True)}
        cluster = {"name": CLUSTER, "secret_file": "secret", "first_start": "auto", "manager": {"nodes": nodes}}
        run = {"command": [*COMMAND]}
        entries: dict[str, Any] = {f"e{n}": {} for n in range(elections)}
        whole = {"cluster": cluster, "run": run, "elections": entries, "log": {"level": "error"}}
        (folder / "primacy.yaml").write_text(json.dumps(whole))
        self.processes = {name: self._start(name) for name in NODES}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        call = [sys.executable, "-m", "primacy.cli.main", "--node", name, "agent"]
        call += ["--config", str(self.folder / "primacy.yaml"), "--state-dir", str(self.folder / name)]
        return subprocess.Popen(call, stdin=subprocess.DEVNULL)

    def document(self, name: str) -> dict[str, Any] | None:
        found = find(str(self.folder / name / CLUSTER / AGENT))
        try:
            return ask(found, "/v1/elections", within_s=30.0) if found is not None else None
        except PrimacyError:
            return None

    def wait(self) -> float:
        """Until every command runs somewhere; how long that took."""
        began_s = time.monotonic()
        while True:
            said = self.document("a")
            if said is not None and sum(bool(row.get("acting")) for row in said["elections"]) == self.elections:
                return time.monotonic() - began_s
            if time.monotonic() - began_s > START_S:
                raise SystemExit(f"{self.elections} elections did not all run within {START_S:.0f} s")
            time.sleep(1.0)

    def sent(self) -> tuple[int, int]:
        said = [self.document(name) or {"datagrams": {}} for name in NODES]
        each = [one["datagrams"] for one in said]
        return sum(one.get("sent", 0) for one in each), sum(one.get("sent_bytes", 0) for one in each)

    def cpu_s(self) -> float:
        return sum(cpu_ns(process.pid) for process in self.processes.values()) / 1e9

    def guards(self) -> list[int]:
        return [child for process in self.processes.values() for child in children(process.pid)]

    def of_guards(self) -> list[int]:
        """The guards, and what a guard has between itself and the command."""
        found = [each for guard in self.guards() for each in tree(guard)]
        return [each for each in found if name_of(each) not in ENDED_OR_COMMAND]

    def guards_cpu_s(self) -> float:
        return sum(map(cpu_ns, self.of_guards())) / 1e9

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(120)


def measured(count: int) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        agents = Agents(Path(folder), count)
        try:
            started_s = agents.wait()
            time.sleep(SETTLE_S)
            datagrams, sent = agents.sent()
            began_s, cpu_s, guards_s = time.monotonic(), agents.cpu_s(), agents.guards_cpu_s()
            time.sleep(MEASURE_S)
            cpu_s, guards_s = agents.cpu_s() - cpu_s, agents.guards_cpu_s() - guards_s
            took_s = time.monotonic() - began_s
            datagrams, sent = (now - then for now, then in zip(agents.sent(), (datagrams, sent), strict=True))
            pids = [process.pid for process in agents.processes.values()]
            return Cost(
                count,
                started_s,
                1_000 * cpu_s / took_s,
                1_000 * guards_s / took_s,
                datagrams / took_s,
                sent / took_s / 1_024,
                sum(map(_pss_mib, pids)),
                len(agents.guards()),
                sum(map(_pss_mib, agents.of_guards())),
            )
        finally:
            agents.close()


def _pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0.0
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("Pss:")), 0.0)


def lacks(count: int) -> str:
    """Why this machine cannot measure so many; empty if it can."""
    for path in NEEDED:
        if not path.exists():
            return f"this kernel has no {path}"
    lines = Path("/proc/meminfo").read_text().splitlines()
    free_mib = next(int(line.split()[1]) // 1_024 for line in lines if line.startswith("MemAvailable:"))
    needs_mib = AGENT_MIB + count * ELECTION_MIB
    return "" if needs_mib <= free_mib else f"it may need {needs_mib:,} MiB of memory; {free_mib:,} are free"


def table(costs: list[Cost]) -> str:
    """For docs/scale.md."""
    rows = [
        "| elections | agents, ms/s | times one | guards, ms/s | datagrams/s | KiB/s | three agents, MiB | guards "
        "| guards, MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        rows.append(
            f"| {cost.elections} | {cost.cpu_ms:.1f} | {_times(cost, costs[0]):.1f} | {cost.guards_cpu_ms:.1f} "
            f"| {cost.datagrams:.0f} | {cost.kib:.1f} | {cost.agents_mib:.0f} | {cost.guards} | {cost.guards_mib:.0f} |"
        )
    return "\n".join(rows)


def goals(costs: list[Cost]) -> list[str]:
    """For those counts that have one, beside one election."""
    found = []
    for cost in costs:
        if cost.elections in GOALS and costs[0].elections == 1:
            most, times = GOALS[cost.elections], _times(cost, costs[0])
            kept = "kept" if times <= most else "NOT KEPT"
            found.append(f"{cost.elections} elections: {times:.1f} times one, goal {most:g}: {kept}")
    return found


def _times(cost: Cost, first: Cost) -> float:
    return cost.cpu_ms / first.cpu_ms if first.cpu_ms else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.elections", description=__doc__.splitlines()[0])
    parser.add_argument("counts", nargs="*", type=int, default=list(COUNTS), help="how many elections, one by one")
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    costs = []
    for count in said.counts:
        if why := lacks(count):
            print(f"{count} elections are skipped: {why}", file=sys.stderr)
            continue
        began_s = time.monotonic()
        costs.append(measured(count))
        took_s = time.monotonic() - began_s
        print(f"{count} elections: all ran after {costs[-1].started_s:.0f} s, {took_s:.0f} s in all", file=sys.stderr)
    print(json.dumps([cost._asdict() for cost in costs], indent=2) if said.json else "\n".join(told(costs)))
    return 0


def told(costs: list[Cost]) -> list[str]:
    load = os.getloadavg()[0]
    return [table(costs), *goals(costs), f"load average at the end: {load:.1f}"]


if __name__ == "__main__":
    sys.exit(main())
