"""`primacy cache` as a user types it: real peers, by file and by options, with each kind of security; and nonsense."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_ports

pytestmark = pytest.mark.beside(order=450)

LIMIT_S = 90.0
"""Only a hang reaches it."""
CANARY_HEARTBEAT_MS = 100
"""That a source is called once, and that all peers are told in time, is asked of a machine that lets peers run."""
PATIENT = ("--within-ms", "30000")
"""Where a peer that is late is no news."""
FETCH = """#!/bin/sh
echo "$1" >> calls
sleep 0.2
case "$1" in bad*) echo "no such rate" >&2; exit 3;; esac
printf 'value of %s' "$1"
"""


class Here:
    """A folder with a source, peers and commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PRIMACY_STATE_DIR": str(folder / "state")}
        self.environment.pop("PRIMACY_CACHE", None)
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "fetch").write_text(FETCH)
        (folder / "fetch").chmod(0o755)

    def primacy(self, *words: str, code: int | None = 0, more: dict[str, str] | None = None) -> str:
        told = subprocess.run(
            [sys.executable, "-m", "primacy.cli.main", *words],
            cwd=self.folder,
            env={**self.environment, **(more or {})},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert code is None or told.returncode == code, f"{words}: {told.returncode}\n{told.stdout}\n{told.stderr}"
        return told.stdout + told.stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "primacy.cli.main", "cache", "serve", *words],
            cwd=self.folder,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if "clients at" in line:
                return process
        raise AssertionError(f"the peer ended with {process.wait()}")

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        """One that goes on beside others."""
        return subprocess.Popen(
            [sys.executable, "-m", "primacy.cli.main", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LIMIT_S)
            process.kill()
            assert process.stderr is not None
            process.stderr.close()

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().split() if (self.folder / "calls").exists() else []


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    made = Here(tmp_path)
    yield made
    made.end()


def file_of(here: Here, security: str, count: int = 3, clients: str = "") -> list[str]:
    """A file with peers a, b, c; gives their apis."""
    ports = free_ports(2 * count)
    peers = {
        name: {"url": f"tcp://127.0.0.1:{ports[2 * i]}", "api": f"tcp://127.0.0.1:{ports[2 * i + 1]}"}
        for i, name in enumerate("abcde"[:count])
    }
    lines = ["cluster: {name: rates, secret_file: secret}" if security != "none" else "cluster: {name: rates}"]
    lines += [f"cache: {json.dumps({'peers': peers, 'source': 'cmd:./fetch {key}', 'security': security})[:-1]}"]
    lines[-1] += f', "clients": {clients}}}' if clients else "}"
    (here.folder / "primacy.yaml").write_text("\n".join(lines) + "\n")
    if security != "none" and not (here.folder / "secret").exists():
        here.primacy("keygen", "secret")
    return [peer["api"] for peer in peers.values()]


def test_one_peer_without_a_file(here: Here) -> None:
    url, api, http = (f"127.0.0.1:{port}" for port in free_ports(3))
    here.start("--source", "cmd:./fetch {key}", "--url", f"tcp://{url}", "--api", f"tcp://{api}", "--http", http)
    at = ("--api", f"tcp://{api}")
    assert here.primacy("cache", "get", "EUR", *at) == "value of EUR"
    assert here.primacy("cache", "get", "EUR", *at) == "value of EUR"
    assert here.calls() == ["EUR"]
    said = json.loads(here.primacy("cache", "get", "EUR", "--json", *at))
    assert (said["found"], said["stale"], said["value"]) == (True, False, "value of EUR")
    assert "value of EUR" in here.primacy("cache", "get", "EUR", more={"PRIMACY_CACHE": f"tcp://{api}"})
    assert "EUR" in here.primacy("cache", "keys", *at)
    assert "1 of 1 peers answer" in here.primacy("cache", "status", *PATIENT, *at)
    nobody = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    for asked, words, code in ((f"tcp://{api}", PATIENT, 0), (nobody, ("--within-ms", "100"), 3)):
        (one,) = json.loads(here.primacy("cache", "status", "--json", *words, "--api", asked, code=code))["peers"]
        assert (one["clients_at"], bool(one["error"])) == (asked, code == 3)
    assert "nothing to read again" in here.primacy("cache", "reload", code=2)
    assert "EUR is invalidated" in here.primacy("cache", "invalidate", "EUR", *at)
    assert "every key is invalidated" in here.primacy("cache", "invalidate", "", "--prefix", *at)
    assert "has EUR" in here.primacy("cache", "get", "EUR", "--no-fetch", *at, code=1)
    assert "was fetched anew" in here.primacy("cache", "refresh", "EUR", *at)
    assert here.calls() == ["EUR", "EUR"]
    told = here.primacy("cache", "get", "bad", *at, code=None)
    assert "no such rate" in told
    with urllib.request.urlopen(f"http://{http}/cache/EUR", timeout=LIMIT_S) as answer:
        assert (answer.read(), answer.headers["X-Cache"]) == (b"value of EUR", "HIT")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"http://{http}/cache/EUR", method="DELETE"), timeout=LIMIT_S)
    assert refused.value.code == 403
    refused.value.close()
    assert "reads a second" in here.primacy("cache", "bench", "--requests", "200", "--keys", "5", *at)


@pytest.mark.parametrize("security", ["secret", "curve", "none"])
def test_three_peers_by_a_file(here: Here, security: str) -> None:
    apis = file_of(here, security, clients='["reports", "primacy-command"]' if security != "none" else "")
    for node in "abc":
        here.start("--node", node)
    in_touch(here)
    assert here.primacy("cache", "get", "EUR") == "value of EUR"
    for api in apis:
        assert here.primacy("cache", "get", "EUR", "--api", api) == "value of EUR"
    assert here.calls() == ["EUR"]
    status = here.primacy("cache", "status", "--key", "EUR", *PATIENT)
    assert "3 of 3 peers answer" in status
    assert status.count("fresh") == 3
    said = json.loads(here.primacy("cache", "invalidate", "EU", "--prefix", "--json"))
    assert said == {"ok": True, "reason": "", "not_told": []}
    if security == "none":
        return
    here.primacy("cache", "key", "reports")
    other = here.folder / "other"
    other.mkdir()
    asks = ("cache", "get", "EUR", "--api", apis[0])
    (other / "primacy.yaml").write_text(f"cache: {{security: {security}}}\ncluster: {{secret_file: none}}\n")
    with_key = ("--config", "other/primacy.yaml", "--key-file", "reports.key")
    assert here.primacy(*asks, *with_key) == "value of EUR"
    (other / "plain.yaml").write_text("cache: {security: none}\n")
    assert "no answer" in here.primacy(*asks, "--within-ms", "2000", "--config", "other/plain.yaml", code=3)
    assert "is there already" in here.primacy("cache", "key", "reports", code=2)
    assert "not in cache.clients" in here.primacy("cache", "key", "billing", code=2)


def in_touch(here: Here, count: int = 3) -> None:
    until_s = time.monotonic() + LIMIT_S
    while here.primacy("cache", "status", code=None).count(": in touch") < count:
        assert time.monotonic() < until_s, f"{count} peers do not find each other"


def test_a_peer_is_removed_and_added_by_a_reload(here: Here) -> None:
    file_of(here, "secret", 4)
    text = (here.folder / "primacy.yaml").read_text()
    for node in "abcd":
        here.start("--node", node)
    in_touch(here, 4)
    assert here.primacy("cache", "get", "EUR") == "value of EUR"
    document = json.loads(text.splitlines()[1].removeprefix("cache: "))
    del document["peers"]["d"]
    (here.folder / "primacy.yaml").write_text(text.splitlines()[0] + "\ncache: " + json.dumps(document) + "\n")
    here.processes[3].send_signal(signal.SIGTERM)
    here.processes[3].wait(LIMIT_S)
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "primacy.cli.main", "cache", "reload", "--node", node],
            cwd=here.folder,
            env=here.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for node in "abc"
    ]
    told = [command.communicate(timeout=90)[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0, 0], told
    assert "3 of 3 peers answer" in here.primacy("cache", "status", *PATIENT)
    assert here.primacy("cache", "get", "EUR") == "value of EUR"
    assert here.calls() == ["EUR"]


def test_a_peer_that_is_removed_sends_its_clients_to_the_others(here: Here) -> None:
    """C10, by command: the file does not name it any more, and it is told to read the file."""
    apis = file_of(here, "none")
    text = (here.folder / "primacy.yaml").read_text()
    for node in "abc":
        here.start("--node", node)
    in_touch(here)
    assert here.primacy("cache", "get", "EUR", "--api", apis[2]) == "value of EUR"
    document = json.loads(text.splitlines()[1].removeprefix("cache: "))
    del document["peers"]["c"]
    without_c = text.splitlines()[0] + "\ncache: " + json.dumps(document) + "\n"
    (here.folder / "primacy.yaml").write_text(without_c)
    told = here.primacy("cache", "reload", "--node", "c")
    assert "this peer is not in the list any more: it sends its clients to the others" in told
    assert "no answer" in here.primacy("cache", "get", "EUR", "--api", apis[2], "--within-ms", "800", code=3)
    assert "not in its list" in here.primacy("cache", "status", "--api", apis[2])
    assert "not in its own list" in here.primacy("cache", "invalidate", "EUR", "--api", apis[2], code=1)
    for node in "ab":
        here.primacy("cache", "reload", "--node", node)
    assert here.primacy("cache", "get", "EUR", "--api", apis[2], "--api", apis[0]) == "value of EUR"
    assert here.calls() == ["EUR"]
    assert "not in cache.peers" in here.primacy("cache", "serve", "--node", "c", code=2)
    # and back
    (here.folder / "primacy.yaml").write_text(text)
    commands = [here.command("cache", "reload", "--node", node) for node in "cab"]
    for command in commands:
        assert command.wait(90) == 0
    in_touch(here)
    assert here.primacy("cache", "get", "EUR", "--api", apis[2]) == "value of EUR"
    assert here.calls() == ["EUR"]


NONSENSE: list[tuple[tuple[str, ...], int, str]] = [
    (("cache", "serve", "--source", "gopher:x"), 2, "--source"),
    (("cache", "serve", "--peer", "tcp://127.0.0.1:1"), 2, "URL,API"),
    (("cache", "serve", "--url", "nonsense"), 2, "url"),
    (("cache", "serve", "--url", "tcp://10.1.2.3:1", "--api", "tcp://10.1.2.3:2"), 2, "secret"),
    (("cache", "get", ""), 2, "empty"),
    (("cache", "get", "k", "--api", "nonsense"), 2, "nonsense"),
    (("cache", "get", "k", "--api", "tcp://127.0.0.1:1", "--within-ms", "300"), 3, "no answer"),
    (("cache", "get", "k", "--key-file", "none"), 2, "primacy cache key"),
    (("cache", "status", "--api", "tcp://127.0.0.1:1"), 3, "0 of 1 peers answer"),
    (("cache", "key", "a b"), 2, "letters"),
    (("cache", "key", "reports"), 2, "primacy keygen"),
    (("cache", "reload"), 2, "--config FILE"),
    (("cache", "nonsense"), 2, "nonsense"),
]


@pytest.mark.parametrize(("words", "code", "says"), NONSENSE, ids=[" ".join(words) for words, _, _ in NONSENSE])
def test_nonsense_gets_a_sentence(here: Here, words: tuple[str, ...], code: int, says: str) -> None:
    told = here.primacy(*words, code=code)
    assert says in told
    assert "Traceback" not in told


def test_keys_that_are_no_text_are_shown_escaped(here: Here) -> None:
    url, api = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    here.start("--url", url, "--api", api, "--source", "cmd:./fetch {key}")
    key = os.fsdecode(b"a\xff")
    assert "no peer that was asked has a\\xff\n" in here.primacy(
        "cache", "get", "--no-fetch", key, "--api", api, *PATIENT, code=1
    )
    assert here.primacy("cache", "refresh", key, "--api", api, *PATIENT) == "a\\xff was fetched anew\n"
    assert here.primacy("cache", "invalidate", key, "--api", api, *PATIENT) == "a\\xff is invalidated\n"


def test_a_second_peer_of_one_id_is_refused(here: Here) -> None:
    file_of(here, "none")
    here.start("--node", "a")
    assert "runs on this machine already" in here.primacy("cache", "serve", "--node", "a", code=4)
    assert "Say --node ID" in here.primacy("cache", "serve", code=2)
    assert "is not in cache.peers" in here.primacy("cache", "serve", "--node", "x", code=2)


def test_every_command_has_help(here: Here) -> None:
    listed: dict[str, Any] = {}
    for word in ("serve", "get", "keys", "status", "invalidate", "refresh", "bench", "key", "reload"):
        listed[word] = here.primacy("cache", word, "--help")
        assert "Usage: primacy cache" in listed[word]
