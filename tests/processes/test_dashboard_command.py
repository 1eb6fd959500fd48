"""`primacy dashboard` and a node that serves its own page, as processes: addresses, TLS, keys, ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from primacy.cli.dashboard import greeting, tunnel
from tests.support.dashboard_feed import Feed
from tests.support.ports import free_port, free_ports
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=280)

PRIMACY = [sys.executable, "-m", "primacy.cli.main"]


@pytest.fixture
def feed() -> Iterator[Feed]:
    one = Feed(list("abc")).start()
    one.story()
    yield one
    one.close()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    made = ["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"]
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *made]
    subprocess.run(openssl, check=True, capture_output=True)
    return cert, key


WITHIN_S = 180.0
"""Far more than anything here takes: only a hang reaches it."""
until = partial(wait_until, within_s=WITHIN_S, every_s=0.05)


@contextlib.contextmanager
def command(*arguments: str, ends: int = 130) -> Iterator[list[str]]:
    """Its first lines, while it runs."""
    with subprocess.Popen([*PRIMACY, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield [process.stdout.readline().strip() for _ in range(3)]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == ends


def first_frame(port: int, context: ssl.SSLContext | None = None) -> dict[str, Any]:
    connection: http.client.HTTPConnection
    if context is not None:
        connection = http.client.HTTPSConnection("localhost", port, timeout=WITHIN_S, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    with contextlib.closing(connection):
        connection.request("GET", "/dashboard/stream")
        answer = connection.getresponse()
        if answer.status != 200:
            return {"status": answer.status}
        while not (line := answer.readline()).startswith(b"data: "):
            assert line
        found: dict[str, Any] = json.loads(line[6:])
        answer.close()
        return found


def job(port: int, context: ssl.SSLContext | None = None) -> str:
    """Where the job runs, as far as the first frame tells: the nodes may not have been read yet."""
    return str(first_frame(port, context)["parts"].get("job", {}).get("text"))


def test_a_node_that_is_named_is_read_without_its_key(feed: Feed, tmp_path: Path) -> None:
    at = ("--at", f"127.0.0.1:{feed.port}", "--state-dir", str(tmp_path))
    with command("dashboard", *at, "--listen", "127.0.0.1:0", "--no-browser") as lines:
        found = re.fullmatch(r"dashboard: http://localhost:(\d+)/dashboard", lines[0])
        assert found is not None
        assert lines[1] == "read only: no control key can be read here"
        until(lambda: job(int(found[1])) == "Running on a")


def test_a_taken_port_is_said_and_the_usual_one_gives_way(feed: Feed, tmp_path: Path) -> None:
    at = ("--at", f"127.0.0.1:{feed.port}", "--state-dir", str(tmp_path), "--no-browser")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        call = [*PRIMACY, "dashboard", *at, "--listen", listen]
        refused = subprocess.run(call, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert refused.returncode == 4
    assert listen in refused.stderr
    with contextlib.ExitStack() as ends:

        def usual_one_is_taken() -> bool:
            """By us: a demo of a test beside this one would give it back at any moment."""
            with contextlib.suppress(OSError):
                ends.enter_context(socket.create_server(("127.0.0.1", 8081)))
                return True
            return False

        last_s = time.monotonic() + 300  # longer than any test: who keeps it for longer keeps it for this one as well
        while not usual_one_is_taken() and time.monotonic() < last_s:
            time.sleep(0.05)
        lines = ends.enter_context(command("dashboard", *at))
        assert ":8081/" not in lines[0]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--listen", "0.0.0.0:0"], 2, "--tls-cert"),
        (["--listen", "nonsense"], 2, "HOST:PORT"),
        (["--tls-cert", "cert.pem"], 2, "go together"),
        (["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.pem"], 2, "nowhere.pem"),
        (["--lab", "nowhere"], 3, "primacy lab up"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(tmp_path: Path, arguments: list[str], code: int, why: str) -> None:
    at = ["--at", "127.0.0.1:1", "--state-dir", str(tmp_path), "--no-browser"]
    call = [*PRIMACY, "dashboard", *at, *arguments]
    refused = subprocess.run(call, capture_output=True, text=True, check=False, timeout=WITHIN_S, cwd=tmp_path)
    assert refused.returncode == code, refused.stderr
    assert why in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_no_node_here_is_said_with_the_command_that_starts_one(tmp_path: Path) -> None:
    call = [*PRIMACY, "dashboard", "--state-dir", str(tmp_path), "--no-browser"]
    refused = subprocess.run(call, capture_output=True, text=True, check=False, timeout=WITHIN_S, cwd=tmp_path)
    assert refused.returncode == 3
    assert "primacy run -- CMD" in refused.stderr


def test_the_greeting_has_the_link_and_over_ssh_the_tunnel() -> None:
    ssh = {"SSH_CONNECTION": "10.0.0.9 50022 10.0.0.1 22", "USER": "ann"}
    lines = greeting("http://localhost:8081/dashboard", "abc", 8081, ssh, lab=False)
    assert lines[1].endswith("http://localhost:8081/dashboard#enter=abc")
    assert "ssh -L 8081:127.0.0.1:8081 ann@10.0.0.1" in lines[2]
    assert tunnel(8081, {}) == ""


# --- a node that serves its page --------------------------------------------------------------------------------------


def test_a_node_whose_file_says_so_serves_the_page_and_takes_it_along(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    """Its own API speaks TLS here, which the page's process trusts by the fingerprint in the state folder alone."""
    own, port = free_ports(2)
    (tmp_path / "primacy.yaml").write_text(
        json.dumps(
            {
                "state_dir": "state",
                "election": {"profile": "lab"},
                "control": {
                    "listen": f"127.0.0.1:{own}",
                    "dashboard": f"127.0.0.1:{port}",
                    "tls": {"cert": "cert.pem", "key": "key.pem"},
                },
            }
        )
    )
    trust = ssl.create_default_context(cafile=certificate[0])
    trust.check_hostname = False
    call = [*PRIMACY, "--node", "a", "run", "--", "sleep", "60"]
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(call, cwd=tmp_path, stderr=subprocess.DEVNULL) as node:
            try:
                until(lambda: _listens(port))
                until(lambda: job(port, trust) == "Running on a")
            finally:
                node.send_signal(ending)
                node.wait(WITHIN_S)
        until(lambda: not _listens(port))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_page_that_cannot_be_served_stops_no_node(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        control = {"listen": f"127.0.0.1:{free_port()}", "dashboard": f"127.0.0.1:{taken.getsockname()[1]}"}
        settings = {"state_dir": "state", "election": {"profile": "lab"}, "control": control}
        (tmp_path / "primacy.yaml").write_text(json.dumps(settings))
        call = [*PRIMACY, "--node", "a", "run", "--", "sleep", "60"]
        with (tmp_path / "log").open("wb") as log, subprocess.Popen(call, cwd=tmp_path, stderr=log) as node:
            try:
                until(lambda: "the dashboard has ended with 4" in (tmp_path / "log").read_text())
                assert node.poll() is None
            finally:
                node.terminate()
                assert node.wait(WITHIN_S) == 0
    text = (tmp_path / "log").read_text()
    assert "Traceback" not in text


def test_off_loopback_it_speaks_tls_and_everybody_signs_in(tmp_path: Path, certificate: tuple[str, str]) -> None:
    (tmp_path / "primacy.yaml").write_text(json.dumps({"state_dir": "state", "election": {"profile": "lab"}}))
    trust = ssl.create_default_context(cafile=certificate[0])
    trust.check_hostname = False
    run = [*PRIMACY, "--node", "a", "run", "--", "sleep", "60"]
    with subprocess.Popen(run, cwd=tmp_path, stderr=subprocess.DEVNULL) as node:
        try:
            until(lambda: list(tmp_path.glob("state/*/*/control.json")))
            where = ("--config", str(tmp_path / "primacy.yaml"))
            tls = ("--tls-cert", certificate[0], "--tls-key", certificate[1])
            listen = ("--listen", "0.0.0.0:0", "--no-browser", "--host", "board.example")
            with command("--node", "a", "dashboard", *where, *tls, *listen) as lines:
                found = re.search(r"https://0\.0\.0\.0:(\d+)/dashboard#enter=(\S+)", lines[1])
                assert found is not None
                port = int(found[1])
                assert first_frame(port, trust) == {"status": 401}
                connection = http.client.HTTPSConnection("localhost", port, timeout=WITHIN_S, context=trust)
                headers = {"X-Primacy": "1", "Host": "board.example", "Origin": "https://board.example"}
                with contextlib.closing(connection):
                    connection.request("POST", "/dashboard/login", json.dumps({"code": found[2]}), headers)
                    answer = connection.getresponse()
                    assert answer.status == 200, answer.read()
                    assert "Secure" in answer.headers["Set-Cookie"]
        finally:
            node.terminate()
            node.wait(WITHIN_S)


def test_ending_the_dashboard_leaves_nothing(feed: Feed, tmp_path: Path) -> None:
    at = ("--at", f"127.0.0.1:{feed.port}", "--state-dir", str(tmp_path / "state"), "--no-browser")
    with command("dashboard", *at, "--listen", "127.0.0.1:0"):
        pass
    assert not list(tmp_path.glob("state/**/*"))
    assert os.listdir(tmp_path) in ([], ["state"])
