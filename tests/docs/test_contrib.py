"""The files in contrib/, read by the real programs of Debian's packages; skipped, with the reason, where one lacks."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from primacy.control.control_server import PublicServer
from primacy.control.eventlog import EventLog
from primacy.control.metrics import exposition
from primacy.node.folder import Folder
from tests.support.control_harness import FOLLOWS, FakeAgent, node_status
from tests.support.ports import free_ports

pytestmark = pytest.mark.beside(order=575)

CONTRIB = Path(__file__).parents[2] / "contrib"
RULES = "prometheus-rules.yaml"
WITHIN_S = 60.0


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not here (make packages)")
    return found


def runs(*command: str, cwd: Path = CONTRIB) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_every_file_stands_in_the_page() -> None:
    named = set(re.findall(r"\]\(([\w./-]+)\)", (CONTRIB / "README.md").read_text()))
    files = {str(path.relative_to(CONTRIB)) for path in CONTRIB.rglob("*") if path.is_file()}
    assert named == {name for name in files if "__pycache__" not in name} - {"README.md"}


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    text = (CONTRIB / "primacy.service").read_text()
    (tmp_path / "primacy.service").write_text(text.replace("/usr/local/bin/primacy", "/bin/true"))
    said = runs(analyze, "verify", "--man=no", str(tmp_path / "primacy.service"))
    assert "primacy.service" not in said, "a line that systemd does not know, or does not like"


def test_prometheus_takes_the_rules_and_their_tests_hold() -> None:
    promtool = program("promtool")
    assert "SUCCESS: 8 rules found" in runs(promtool, "check", "rules", RULES)
    assert "SUCCESS" in runs(promtool, "test", "rules", "prometheus-rules-test.yaml")


def test_the_rules_ask_for_nothing_that_is_not_in_the_metrics() -> None:
    asked = set(re.findall(r"\bprimacy_\w+", "".join(re.findall(r"expr: (.*)", (CONTRIB / RULES).read_text()))))
    served = set(re.findall(r"^(primacy_\w+)", exposition([node_status()]).decode(), re.MULTILINE))
    assert asked
    assert asked <= served, asked - served


def test_logrotate_empties_a_file_under_a_command_that_appends(tmp_path: Path) -> None:
    logrotate = program("logrotate")
    file = tmp_path / "out.log"
    text = (CONTRIB / "logrotate").read_text().replace("/var/log/primacy/*.log", str(file))
    (tmp_path / "conf").write_text(text)
    (tmp_path / "conf").chmod(0o644)
    tmp_path.chmod(0o755)
    with file.open("ab", buffering=0) as command:
        command.write(b"before\n")
        runs(logrotate, "--force", "--state", str(tmp_path / "state"), str(tmp_path / "conf"))
        command.write(b"after\n")
    assert file.read_bytes() == b"after\n"
    assert (tmp_path / "out.log.1").read_bytes() == b"before\n"


def test_haproxy_sends_requests_to_the_node_that_leads(tmp_path: Path) -> None:
    haproxy = program("haproxy")
    assert not (said := runs(haproxy, "-c", "-f", "haproxy.cfg")).strip() or "valid" in said
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_follows(haproxy, tmp_path, Folder(f"{folder}/state")))


async def _follows(haproxy: str, folder: Path, state: Folder) -> None:
    front, *ports = free_ports(5)
    agents = [FakeAgent(EventLog(state, lambda _: None)) for _ in range(2)]
    agents[1].shown = node_status(FOLLOWS)
    publics = [PublicServer(agent) for agent in agents]
    text = (CONTRIB / "haproxy.cfg").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{front}")
    text = re.sub(r"^ +server c .*\n", "", text, flags=re.MULTILINE)
    for name, address, app, public in (("a", "10.0.0.1", *ports[:2]), ("b", "10.0.0.2", *ports[2:])):
        text = text.replace(f"server {name} {address}:8000", f"server {name} 127.0.0.1:{app} port {public}")
    (folder / "haproxy.cfg").write_text(text)
    servers = [
        await asyncio.start_server(_answering(name), "127.0.0.1", port)
        for name, port in (("a", ports[0]), ("b", ports[2]))
    ]
    listening = [_bound(ports[1]), _bound(ports[3])]
    for public, listens in zip(publics, listening, strict=True):
        await public.start(listens)
    process = subprocess.Popen([haproxy, "-db", "-f", str(folder / "haproxy.cfg")], stdout=subprocess.DEVNULL)
    try:
        async with aiohttp.ClientSession() as http:

            async def is_answered_by(name: str) -> bool:
                try:
                    async with http.get(f"http://127.0.0.1:{front}/") as answer:
                        return answer.status == 200 and await answer.text() == name
                except aiohttp.ClientError:
                    return False

            await _until(lambda: is_answered_by("a"))
            agents[0].shown, agents[1].shown = agents[1].shown, agents[0].shown
            await _until(lambda: is_answered_by("b"))
    finally:
        process.kill()
        process.wait()
        for server in servers:
            server.close()
        for public in publics:
            await public.close()
        for listens in listening:
            listens.close()


def _bound(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def _answering(name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """An application that says where it runs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n" + name.encode())
        await writer.drain()
        writer.close()

    return answer


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await check():
            await asyncio.sleep(0.05)
