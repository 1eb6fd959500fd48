"""`python -m bench.elections [COUNT ...]`: what many elections in one agent cost while nothing happens.

Three agents on this machine, each with the same raft elections, whose commands sleep. Once all of them run: processor
time of the three agents, datagrams and bytes between them, and memory of agents and guards, shared pages counted in
part. docs/scale.md says what was found.
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

from bench.processes import children
from primacy.agent.state import AGENT
from primacy.cli.new import write_secret
from primacy.control.client import ask, find
from primacy.errors import PrimacyError

COUNTS = (1, 10, 100)
NODES = ("a", "b", "c")
CLUSTER = "bench"
SETTLE_S, MEASURE_S = 10.0, 20.0
START_S = 600.0
"""A hundred elections start four hundred guards."""
TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """Of all three agents together, per second; memory at the end."""

    elections: int
    started_s: float
    cpu_ms: float
    datagrams: float
    kib: float
    agents_mib: float
    guards: int
    guards_mib: float


class Agents:
    """Three of them, with so many elections."""

    def __init__(self, folder: Path, elections: int) -> None:
        self.folder = folder
        self.elections = elections
        write_secret(folder / "secret")
        nodes = {name: {"addr": f"127.0.0.1:{port}"} for name, port in zip(NODES, free_ports(3), strict=True)}
        cluster = {"name": CLUSTER, "secret_file": "secret", "first_start": "auto", "manager": {"nodes": nodes}}
        run = {"command": ["sleep", "36000"]}
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
        return sum(_cpu_s(process.pid) for process in self.processes.values())

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
            began_s, cpu_s = time.monotonic(), agents.cpu_s()
            time.sleep(MEASURE_S)
            cpu_s, took_s = agents.cpu_s() - cpu_s, time.monotonic() - began_s
            datagrams, sent = (now - then for now, then in zip(agents.sent(), (datagrams, sent), strict=True))
            pids = [process.pid for process in agents.processes.values()]
            guards = [child for pid in pids for child in children(pid)]
            return Cost(
                count,
                started_s,
                1_000 * cpu_s / took_s,
                datagrams / took_s,
                sent / took_s / 1_024,
                sum(map(_pss_mib, pids)),
                len(guards),
                sum(map(_pss_mib, guards)),
            )
        finally:
            agents.close()


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def _pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0.0
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("Pss:")), 0.0)


def table(costs: list[Cost]) -> str:
    """For docs/scale.md."""
    rows = [
        "| elections | processor, ms/s | times one | datagrams/s | KiB/s | three agents, MiB | guards | guards, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        times = cost.cpu_ms / costs[0].cpu_ms if costs[0].cpu_ms else 0.0
        rows.append(
            f"| {cost.elections} | {cost.cpu_ms:.1f} | {times:.1f} | {cost.datagrams:.0f} | {cost.kib:.1f} | "
            f"{cost.agents_mib:.0f} | {cost.guards} | {cost.guards_mib:.0f} |"
        )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.elections", description=__doc__)
    parser.add_argument("counts", nargs="*", type=int, default=list(COUNTS), help="how many elections, one by one")
    parser.add_argument("--json", action="store_true")
    said = parser.parse_args()
    costs = [measured(count) for count in said.counts]
    print(json.dumps([cost._asdict() for cost in costs], indent=2) if said.json else table(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
