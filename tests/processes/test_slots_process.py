"""`primacy slots` as a process: started as a user would, spoken to as a client would, ended by a signal."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.canary import beside_a_canary
from tests.support.ports import free_port
from tests.support.safety_checks import safe
from tests.support.slots_harness import LIMIT_S
from tests.support.slots_served import PRIMACY, served

pytestmark = pytest.mark.beside(order=210)

FILES = Path(__file__).parents[1] / "files"


def test_a_file_of_ghoti_is_served_and_what_does_not_count_is_said(tmp_path: Path) -> None:
    with served("--config", str(FILES / "ghoti_slots.yaml"), environment={"GHOTI_ADDR": "localhost:1"}) as found:
        found.until(r"GHOTI_ADDR: variables of Ghoti do not count")
        found.until(r"metrics\) is read and not acted on")
        found.until(rf"serves 3 slots on 127\.0\.0\.1:{found.port}, protocol telnet")
        with found.open() as client:
            client.ask(b"w000hi\r\nr000\r\n", b"v000hi\nv000hi\n")
            client.ask(b"w001x\r\nupepe\r\np12345\r\nw001x\r\n", b"e001006\nvpepe\nvpepe\nv001x\n")
            client.ask(b"r999\r\n", b"e999005\n")
            assert found.end(signal.SIGTERM) == 0
            client.expect(b"exxx000\n")
            client.closed()


def test_ctrl_c_ends_it_with_130_and_clients_are_told() -> None:
    with served("--config", str(FILES / "ghoti_slots.yaml"), "--protocol", "standard") as found:
        found.until("serves 3 slots")
        with found.open() as client:
            client.ask(b"r000\n", b"v000\n")
            assert found.end(signal.SIGINT) == 130
            client.expect(b"exxx000\n")
            client.closed()


def test_a_taken_port_is_said_and_ends_with_4() -> None:
    with served() as found:
        found.until("serves no slot, for none is configured")
        call = [*PRIMACY, "slots", "serve", "--addr", f"127.0.0.1:{found.port}"]
        second = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert second.returncode == 4
        assert f"slots.addr = 127.0.0.1:{found.port}: Address already in use" in second.stderr
        assert "--addr" in second.stderr
        assert found.end(signal.SIGTERM) == 0


def test_a_slot_that_is_wrong_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    """Ghoti drops it without a word, and answers 005 for ever."""
    (tmp_path / "wrong.yaml").write_text("slot_021: {kind: memory}\nslot_022: {kind: token_bucket, bucket_size: 3}\n")
    call = [*PRIMACY, "slots", "serve", "--config", str(tmp_path / "wrong.yaml")]
    done = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 2
    assert "slots.021.kind = memory" in done.stderr
    assert "slots.022.period: is missing" in done.stderr


def test_check_says_what_of_ghoti_does_not_count() -> None:
    call = [*PRIMACY, "check", str(FILES / "ghoti_slots.yaml")]
    environment = {**os.environ, "GHOTI_LOG_LEVEL": "debug"}
    done = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    assert done.returncode == 0
    assert "GHOTI_LOG_LEVEL: variables of Ghoti do not count" in done.stderr
    assert "read and not acted on" in done.stderr


def test_check_without_a_file_says_which_of_ghoti_it_passes_by(tmp_path: Path) -> None:
    (tmp_path / ".ghoti").mkdir()
    (tmp_path / ".ghoti" / "config.yaml").write_text("slot_000: {kind: atomic}\n")
    environment = {**os.environ, "HOME": str(tmp_path)}
    call = [*PRIMACY, "check"]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "there is no primacy.yaml here" in done.stderr
    assert f"{tmp_path}/.ghoti/config.yaml is not read: folders are not searched" in done.stderr


def primacy(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    more = {**os.environ, **(environment or {})}
    return subprocess.run(
        [*PRIMACY, *arguments],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # no terminal, whoever runs the tests
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
        env=more,
    )


def test_the_commands_of_the_client(tmp_path: Path) -> None:
    file = tmp_path / "slots.yaml"
    text = (FILES / "ghoti_slots.yaml").read_text() + "slot_014: {kind: broadcast}\n"
    file.write_text(text.replace("telnet", "standard"))
    with served("--config", str(file)) as found:
        found.until("serves 4 slots")
        at = ["--addr", f"127.0.0.1:{found.port}", "--within-ms", "30000"]
        done = primacy("slots", "set", "0", "héllo", *at)
        assert (done.returncode, done.stdout) == (0, "héllo\n"), done.stderr
        done = primacy("slots", "get", "000", *at, "--json")
        assert json.loads(done.stdout) == {"api": 1, "slot": "000", "value": "héllo"}
        done = primacy("slots", "get", "1", *at)
        assert done.returncode == 1
        assert "slot 001 refuses with 008: no permission to read" in done.stderr
        done = primacy("slots", "get", "1", *at, "--user", "pepe", environment={"PRIMACY_SLOTS_PASSWORD": "12345"})
        assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
        done = primacy("slots", "get", "1", *at, "--user", "pepe", environment={"PRIMACY_SLOTS_PASSWORD": "wrong"})
        assert done.returncode == 1
        assert primacy("slots", "get", "1000", *at).returncode == 2
        assert primacy("slots", "get", "0", "--addr", "nowhere").returncode == 2
        done = primacy("slots", "bench", *at[:2], "--seconds", "1", "--connections", "5", "--depth", "4", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["requests"] > 0
        assert primacy("slots", "bench", *at[:2], "--slot", "7777").returncode == 2
        assert primacy("slots", "bench", *at[:2], "--slot", "777").returncode == 1
        watching = subprocess.Popen(
            [*PRIMACY, "slots", "watch", "14", *at, "--count", "2"], stdout=subprocess.PIPE, text=True
        )
        while watching.poll() is None:
            primacy("slots", "set", "14", "news", *at)
        assert watching.stdout is not None
        assert watching.stdout.read() == "news\nnews\n"
        watching.stdout.close()
        assert watching.returncode == 0
    done = primacy("slots", "get", "0", *at[:2], "--within-ms", "200")
    assert done.returncode == 3
    assert "no node that leads answered" in done.stderr


def test_calls_that_cannot_succeed_are_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "slots.yaml"
    file.write_text("slots: {tls: {cert: cert.pem, key: key.pem}, '000': {kind: simple_memory}}\n")
    at = ["--config", str(file)]
    for call, said in (
        (["get", "0", *at], "slots.tls: the server of this file speaks TLS; say whom to trust: --ca FILE"),
        (["bench", *at], "slots.tls: this measures without TLS"),
        (["watch", "0", *at], "slot 0 is a simple_memory: it sends nothing; broadcast, multicast, random do"),
        (["bench", "--write", "x" * 37], "a value has at most 36 bytes and no line feed; this has 37"),
        (["set", "0", "a\nb"], "a value has at most 36 bytes and no line feed; this has 3"),
        (["get", "0", "--addr", "a..b:1"], "--addr a..b:1: a host is a name or an address"),
        (["serve", "--addr", "a..b:1"], "--addr a..b:1: a host is a name or an address"),
        (["get", "0", "--user", "pepe"], "--user: there is no terminal to ask for the password on; it may be in"),
    ):
        done = primacy("slots", *call)
        assert (done.returncode, said in done.stderr) == (2, True), done


def test_a_bench_of_a_file_with_telnet_speaks_it(tmp_path: Path) -> None:
    served_file, file = tmp_path / "served.yaml", tmp_path / "slots.yaml"
    served_file.write_text("protocol: telnet\nslot_000: {kind: simple_memory}\n")
    with served("--config", str(served_file)) as found:
        found.until("protocol telnet")
        file.write_text(f"addr: 127.0.0.1:{found.port}\n{served_file.read_text()}")
        done = primacy("slots", "bench", "--config", str(file), "--seconds", "1", "--connections", "3", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["requests"] > 0


def test_a_bench_of_a_server_that_speaks_http_says_so(tmp_path: Path) -> None:
    file = tmp_path / "slots.yaml"
    file.write_text("protocol: http\nslot_000: {kind: simple_memory}\n")
    done = primacy("slots", "bench", "--config", str(file))
    assert done.returncode == 2
    assert "slots.protocol = http: this client speaks the line protocol" in done.stderr
    with served("--config", str(file)) as found:
        found.until("serves 1 slot")
        done = primacy("slots", "bench", "--addr", f"127.0.0.1:{found.port}", "--depth", "64")
        assert done.returncode == 1
        assert "the server speaks HTTP" in done.stderr


def test_ctrl_c_ends_a_watch_with_130(tmp_path: Path) -> None:
    (tmp_path / "slots.yaml").write_text("slot_014: {kind: broadcast}\n")
    with served("--config", str(tmp_path / "slots.yaml")) as found:
        found.until("serves 1 slot on")
        call = [*PRIMACY, "slots", "watch", "14", "--json", "--addr", f"127.0.0.1:{found.port}"]
        watching = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert watching.stdout is not None
        shown: list[str] = []
        reader = threading.Thread(target=lambda: shown.append(watching.stdout.readline()), daemon=True)
        reader.start()
        with found.open() as client:
            while reader.is_alive() and watching.poll() is None:
                client.ask(b"w014x\n", b"a014x\n")
                assert client.line().startswith(b"v014")
                reader.join(0.05)
        reader.join(LIMIT_S)
        assert shown == ['{"slot": "014", "value": "x"}\n']
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=LIMIT_S)
        assert watching.returncode == 130, said
        assert "Traceback" not in said


@beside_a_canary(500, passes_if_late=True)
def test_the_example_of_workers_runs_as_it_stands() -> None:
    """Two at once: the second has the lock when the first has ended and its time is over; no job is done twice.

    A worker whose request is not answered within two seconds ends with an error, as the example has it.
    """
    examples = Path(__file__).parents[2] / "examples"
    with served("--config", str(examples / "slots.yaml")) as found:
        found.until("serves 4 slots")
        call = [sys.executable, str(examples / "slots_worker.py"), f"127.0.0.1:{found.port}"]
        pair = [subprocess.Popen(call, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = [each.communicate(timeout=4 * LIMIT_S)[0] for each in pair]
    for process, text in zip(pair, said, strict=True):
        assert process.returncode == 0, text
        assert re.search(r"did 5 jobs|lost the lock", text), text
    done = [re.findall(rf"worker-{each.pid} does job (\d+)", text) for each, text in zip(pair, said, strict=True)]
    safe(not set(done[0]) & set(done[1]), f"a job that both did: {done}")


def test_monitors_read_the_figures_of_a_server_without_a_cluster(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "slots.yaml"
    file.write_text(f'slots: {{"000": {{kind: simple_memory}}}}\ncontrol: {{public: "127.0.0.1:{port}"}}\n')
    with served("--config", str(file)) as found:
        found.until("serves 1 slot on")
        with found.open() as client:
            client.ask(b"r000\nr000\n", b"v000\nv000\n")
            text = ""
            until = time.monotonic() + LIMIT_S
            while 'primacy_slots_total{kind="requests"} 2.0' not in text:  # it is there a moment later
                assert time.monotonic() < until, text
                with contextlib.suppress(ConnectionError):
                    text = read(port, "/metrics")
            assert "primacy_slots_open 1.0" in text, "it may fall: no counter"
            assert 'kind="open"' not in text
        assert json.loads(read(port, "/leader"))["leads"] is True
        assert found.end(signal.SIGTERM) == 0


def read(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()
