"""Slots of several real nodes: only the leader answers, and a former one never does, however it was stopped."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.slots_harness import LIMIT_S, Client
from tests.support.store_harness import made_new

pytestmark = pytest.mark.beside(order=40)

PRIMACY = [sys.executable, "-m", "primacy.cli.main"]


class Crowd:
    """Three nodes with one file."""

    def __init__(self, folder: Path, file: str | dict[str, str], names: str, ports: list[int] | None = None) -> None:
        """`file`: of all nodes, or of each."""
        self.folder = folder
        for name in names:
            (folder / f"{name}.yaml").write_text(file if isinstance(file, str) else file[name])
        subprocess.run([*PRIMACY, "keygen", str(folder / "secret")], check=True, capture_output=True)
        self.ports = dict(zip(names, ports or free_ports(len(names)), strict=True))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        call = [*PRIMACY, "slots", "serve", "--config", str(self.folder / f"{name}.yaml"), "--node", name]
        call += ["--addr", f"127.0.0.1:{self.ports[name]}", "--state-dir", str(self.folder / f"state-{name}")]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(call, stdin=subprocess.DEVNULL, stderr=log, cwd=self.folder)

    def open(self, name: str) -> Client:
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                return Client(socket.create_connection(("127.0.0.1", self.ports[name]), timeout=LIMIT_S))
            except ConnectionRefusedError:
                assert time.monotonic() < until, f"{name} does not listen"
                time.sleep(0.02)

    def said(self, name: str, line: bytes) -> bytes:
        """One answer on a new connection; empty if it broke off."""
        with contextlib.suppress(OSError), self.open(name) as client:
            client.send(line)
            return client.line()
        return b""

    def leader(self, names: str) -> str:
        """Who answers, and whom the others of these name."""
        until = time.monotonic() + 2 * LIMIT_S
        while time.monotonic() < until:
            said = {name: self.said(name, b"r000\n") for name in names}
            leads = [name for name, line in said.items() if line.startswith(b"v000")]
            named = {line for name, line in said.items() if name not in leads}
            if len(leads) == 1 and named <= {b"exxx000" + leads[0].encode() + b"\n"}:
                return leads[0]
            time.sleep(0.05)
        raise AssertionError(f"no leader: {said}")

    @contextlib.contextmanager
    def led(self, names: str, line: bytes, wanted: bytes) -> Iterator[tuple[str, Client]]:
        """The leader of these, once it has answered so. On a machine that stalls the role may move meanwhile."""
        leader, client = self._led(names, line, wanted)
        with client:
            yield leader, client

    def _led(self, names: str, line: bytes, wanted: bytes) -> tuple[str, Client]:
        until = time.monotonic() + 2 * LIMIT_S
        while time.monotonic() < until:
            leader = self.leader(names)
            client = self.open(leader)
            got = b""
            with contextlib.suppress(ConnectionError):
                client.send(line)
                while len(got) < len(wanted) and (more := client.line()):  # answers may come one by one
                    got += more
            if got == wanted:
                return leader, client
            client.close()
            assert wanted.startswith(got) or b"exxx000" in got, got
        raise AssertionError(f"nobody answered {wanted!r}")

    def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@contextlib.contextmanager
def crowd(folder: Path, file: str | dict[str, str], names: str, ports: list[int] | None = None) -> Iterator[Crowd]:
    made = Crowd(folder, file, names, ports)
    try:
        yield made
    except BaseException:
        for log in sorted(folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()}")
        raise
    finally:
        made.close()


def raft_file() -> str:
    a, b, c = free_ports(3)
    nodes = "".join(
        f'      {name}: {{addr: "127.0.0.1:{port}"}}\n' for name, port in zip("abc", (a, b, c), strict=True)
    )
    return (
        f"cluster:\n  secret_file: secret\n  first_start: auto\n  manager:\n    nodes:\n{nodes}"
        'election: {profile: fast}\ncontrol: {listen: "127.0.0.1:7480"}\n'
        'slots: {"000": {kind: simple_memory}, "003": {kind: timeout_memory, timeout: 3600}}\n'
    )


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Crowd]:
    with crowd(tmp_path, raft_file(), "abc") as made:
        yield made


def gone(client: Client) -> None:
    """The server is dead, and said nothing before; or only that it leads no more, if a stall had cost it its role."""
    said = client.rest()
    assert not said or (said.startswith(b"exxx000") and said.count(b"\n") == 1), said


def test_only_the_leader_answers_and_a_new_one_starts_clean(three: Crowd) -> None:
    with three.led("abc", b"w000kept\nw003mine\n", b"v000kept\nv003mine\n") as (first, client):
        three.processes[first].kill()
        three.processes[first].wait()
        gone(client)
    with three.led("abc".replace(first, ""), b"r000\nw003theirs\n", b"v000\nv003theirs\n"):
        three.start(first)
    three.leader("abc")  # all three agree again


def test_a_planned_end_tells_the_clients_and_another_one_leads(three: Crowd) -> None:
    with three.led("abc", b"w000x\n", b"v000x\n") as (first, client):
        three.processes[first].send_signal(signal.SIGTERM)
        said = client.rest()
        assert said.startswith(b"exxx000")  # and the successor's id, if it was known already
        assert said.endswith(b"\n")
        assert len(said.splitlines()) == 1
        assert three.processes[first].wait(LIMIT_S) == 0
    three.leader("abc".replace(first, ""))


def test_a_leader_that_was_frozen_never_answers_again_under_its_old_hold(three: Crowd) -> None:
    with three.led("abc", b"w000old\n", b"v000old\n") as (first, client), three.open(first) as idle:
        idle.send(b"?\n")
        idle.line()  # the server has taken it
        three.processes[first].send_signal(signal.SIGSTOP)
        client.send(b"r000\nw000stale\n")  # waits in the kernel while others elect
        with three.led("abc".replace(first, ""), b"w000new\n", b"v000new\n"):
            three.processes[first].send_signal(signal.SIGCONT)
            said = client.rest()
            assert all(line.startswith(b"exxx000") for line in said.splitlines()), said
            assert b"v" not in idle.rest()
        three.leader("abc")


def test_slots_on_a_lease_are_served_by_its_holder(tmp_path: Path) -> None:
    file = (
        "election: {strategy: lease, profile: fast, store: {url: sqlite:///leases.db}}\n"
        'slots: {"000": {kind: simple_memory}}\n'
    )
    made_new(f"sqlite:///{tmp_path}/leases.db")
    with crowd(tmp_path, file, "ab") as two:
        with two.led("ab", b"w000x\n", b"v000x\n") as (first, _):
            two.processes[first].kill()
            two.processes[first].wait()
        with two.led("ab".replace(first, ""), b"r000\n", b"v000\n"):
            pass


def seeds_files(names: str, managers: list[int], more: str = "") -> dict[str, str]:
    """Both example files of Ghoti, with free ports; all but the first join."""
    files = Path(__file__).parents[1] / "files"
    found = {}
    for place, name in enumerate(names):
        text = (files / ("ghoti_joining.yaml" if place else "ghoti_first.yaml")).read_text()
        text = text.replace("localhost:2223", f"127.0.0.1:{managers[place]}")
        text = text.replace("localhost:2222", f"127.0.0.1:{managers[0]}")
        found[name] = text + "slot_000: {kind: simple_memory}\nslot_014: {kind: broadcast}\n" + more
    return found


def test_the_files_of_seed_000_make_a_cluster_that_fails_over(tmp_path: Path) -> None:
    ports = free_ports(6)
    with crowd(tmp_path, seeds_files("abc", ports[:3]), "abc", ports[3:]) as three:
        with three.led("abc", b"w000kept\n", b"v000kept\n") as (first, client):
            three.processes[first].kill()
            three.processes[first].wait()
            gone(client)
        with three.led("abc".replace(first, ""), b"r000\n", b"v000\n") as (second, client):
            three.processes[second].send_signal(signal.SIGTERM)
            assert client.rest().startswith(b"exxx000")
            assert three.processes[second].wait(LIMIT_S) == 0


def test_two_files_of_one_machine_need_no_word_about_folders(tmp_path: Path) -> None:
    """As Ghoti's text has them started: each with its file and nothing else."""
    ports = free_ports(4)
    files = seeds_files("ab", ports[:2])
    system = f"import primacy.agent.state as state; state.SYSTEM = {str(tmp_path / 'system')!r}"
    code = f"{system}; from primacy.cli.main import main; main()"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "user")}
    del environment["PRIMACY_STATE_DIR"]  # it would go before the machine's own
    primacy = [sys.executable, "-c", code]

    def asked(*words: str) -> str:
        done = subprocess.run([*primacy, *words], capture_output=True, text=True, check=False, env=environment)
        return done.stdout + done.stderr

    with contextlib.ExitStack() as ends:
        nodes = {}
        for name, port in zip("ab", ports[2:], strict=True):
            text = "".join(line for line in files[name].splitlines(True) if "bind:" not in line)
            node = {"a": "node1", "b": "node2"}[name]
            file = tmp_path / f"{node}.yaml"
            file.write_text(text + f"addr: 127.0.0.1:{port}\n")
            call = [*primacy, "slots", "serve", "--config", str(file)]
            nodes[node] = subprocess.Popen(call, stderr=subprocess.DEVNULL, env=environment)
            ends.callback(nodes[node].wait)
            ends.callback(nodes[node].kill)
        for node in nodes:
            until = time.monotonic() + 2 * LIMIT_S
            while True:  # as long as this node is on its way up, the other one answers for it
                said = asked("status", "--config", str(tmp_path / f"{node}.yaml"))
                if f"seen from {node}" in said and "the slot server runs on node" in said:
                    break
                assert time.monotonic() < until, said
        assert "node node1 ended" in asked("node", "stop", "--config", str(tmp_path / "node1.yaml"))
        assert nodes["node1"].wait(LIMIT_S) == 0
        assert nodes["node2"].poll() is None
        said = asked("pause", "--config", str(tmp_path / "node1.yaml"))
        assert "node node1 does not run here; node2 does" in said


def test_over_http_a_follower_redirects_to_where_the_leader_said_its_slots_are(tmp_path: Path) -> None:
    ports = free_ports(4)
    with crowd(tmp_path, seeds_files("ab", ports[:2], "protocol: http\n"), "ab", ports[2:]) as two:
        until = time.monotonic() + 2 * LIMIT_S
        while True:
            said = {name: answered(two, name) for name in "ab"}
            leads = [name for name, (status, _) in said.items() if status == 200]
            others = [found for name, found in said.items() if name not in leads]
            if len(leads) == 1 and others == [(307, f"http://127.0.0.1:{two.ports[leads[0]]}/000")]:
                break
            assert time.monotonic() < until, said
            time.sleep(0.05)


def answered(crowd: Crowd, name: str) -> tuple[int, str]:
    """Status, and where it sends the client."""
    crowd.open(name).close()  # until it listens
    connection = http.client.HTTPConnection("127.0.0.1", crowd.ports[name], timeout=LIMIT_S)
    try:
        connection.request("GET", "/000")
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("Location") or ""
    finally:
        connection.close()


def test_status_speaks_of_slots_and_counts_what_clients_did(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with crowd(tmp_path, seeds_files("a", [port]), "a") as one, one.led("a", b"w000x\n", b"v000x\n"):
        call = [*PRIMACY, "--config", str(tmp_path / "a.yaml"), "status", "--state-dir", str(tmp_path / "state-a")]
        until = time.monotonic() + LIMIT_S
        while True:  # its API is there a moment after its slots
            done = subprocess.run([*call, "-v"], capture_output=True, text=True, check=False, timeout=LIMIT_S)
            if "the slot server runs on a" in done.stdout:
                break
            assert time.monotonic() < until, done
        assert "slots_requests" in done.stdout
        assert "command" not in done.stdout
