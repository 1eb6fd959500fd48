"""The files in contrib/, read by the real programs of Debian's packages; skipped, with the reason, where one lacks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from primacy.control.client import FoundNode, find
from primacy.control.control_server import PublicServer
from primacy.control.eventlog import EventLog
from primacy.control.metrics import exposition
from primacy.node.folder import Folder
from tests.support.control_harness import FOLLOWS, FakeAgent, node_status
from tests.support.many_agents import agents_in
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=24)

CONTRIB = Path(__file__).parents[2] / "contrib"
RULES = "prometheus-rules.yaml"
DASHBOARD: dict[str, Any] = json.loads((CONTRIB / "grafana-dashboard.json").read_text())
WITHIN_S = 60.0
HANGS_S = 180.0
"""Several agents start on a machine with much else to do: only a hang reaches it."""


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


# --- the dashboard ----------------------------------------------------------------------------------------------------

CHOSEN = {"job": ".+", "election": ".*", "agent": ".+", "__range": "1h", "__rate_interval": "1m"}
"""What Grafana puts in the place of each variable where nothing is chosen."""
OF_PROMETHEUS = {"job", "instance"}
"""Labels that it adds to all that it reads."""


def shown() -> list[dict[str, Any]]:
    """The panels, without the headings."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """As Grafana sends them."""
    found = [target["expr"] for panel in shown() for target in panel["targets"]]
    return [re.sub(r"\$(\w+)", lambda variable: CHOSEN[variable[1]], expr) for expr in found]


def test_the_dashboard_can_be_imported() -> None:
    """By the form of Grafana's own exports; every panel asks the data source that is chosen at the import."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert DASHBOARD["uid"]
    assert DASHBOARD["schemaVersion"] >= 36
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables.keys() - {"datasource"} == {name for name in CHOSEN if not name.startswith("__")}
    for name, each in variables.items():
        if name != "datasource":
            assert (each["datasource"]["uid"], each["allValue"]) == ("${datasource}", CHOSEN[name]), name
    for panel in shown():
        assert panel["title"], panel["id"]
        assert panel["description"].endswith("."), panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${datasource}", panel["title"]
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        x, y, w, h = (panel["gridPos"][name] for name in "xywh")
        cells = {(column, line) for column in range(x, x + w) for line in range(y, y + h)}
        assert x + w <= 24, panel["title"]
        assert not taken & cells, panel["title"]
        taken |= cells


def test_prometheus_takes_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    promtool = program("promtool")
    rules = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(queries())]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in runs(promtool, "check", "rules", "rules.yaml", cwd=tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Addresses of real `/metrics`, by job: two agents with two elections, one with a single one, a cache peer."""
    folder = tmp_path_factory.mktemp("served")
    with contextlib.ExitStack() as stack:
        elections = {"by-raft": {}, "by-lease": {"store": {"url": "sqlite:///leases.db"}}}
        agents = stack.enter_context(agents_in(folder, elections, names="ab"))
        stack.enter_context(_started(folder, "run", "--state-dir", "single", "--", "sleep", "600"))
        ports = [f"tcp://127.0.0.1:{port}" for port in free_ports(2)]
        peer = ("--url", ports[0], "--api", ports[1], "--source", "cmd:echo {key}", "--state-dir", "cache")
        stack.enter_context(_started(folder, "cache", "serve", *peer))
        agents.all_run(*elections)

        def found() -> dict[str, str]:
            nodes = {f"many-{agent.name}": agent.found() for agent in agents.up}
            nodes |= {"single": _in(folder / "single"), "cache": _in(folder / "cache")}
            return {job: f"{one.host}:{one.port}" for job, one in nodes.items() if one is not None}

        def told() -> str:
            return "".join(log.read_text()[-2_000:] for log in folder.glob("log-*"))

        yield wait_until(lambda: where if len(where := found()) == 4 else {}, "four addresses", HANGS_S, 0.1, told)


@contextlib.contextmanager
def _started(folder: Path, *words: str) -> Iterator[None]:
    call = [sys.executable, "-m", "primacy.cli.main", *words]
    with (folder / f"log-{words[0]}").open("wb") as log:
        process = subprocess.Popen(call, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(HANGS_S)


def _in(state: Path) -> FoundNode | None:
    """The one that runs in a state folder."""
    return next((one for each in state.rglob("control.json") if (one := find(str(each.parent))) is not None), None)


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        text: str = answer.read().decode()
        return text


def test_the_dashboard_asks_for_nothing_that_is_not_in_the_metrics(served: dict[str, str]) -> None:
    """Names, labels, and words that a label may have; of an agent with a single election and of one with several."""
    known: dict[str, dict[str, set[str]]] = {"up": {}}
    for where in served.values():
        for family in text_string_to_metric_families(read(f"http://{where}/metrics")):
            for sample in family.samples:
                labels = known.setdefault(sample.name, {})
                for name, value in sample.labels.items():
                    labels.setdefault(name, set()).add(value)
    listed = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    texts = [re.sub(r"\$(\w+)", lambda variable: CHOSEN[variable[1]], text) for text in listed] + queries()
    names = set(re.findall(r"\bprimacy_\w+", "".join(texts)))
    assert names <= known.keys(), names - known.keys()
    for text in texts:
        asked = {name for name in known if re.search(rf"\b{name}\b", text)}
        has = OF_PROMETHEUS.union(*(known[name] for name in asked))
        for name, inside in re.findall(r"\b(primacy_\w+)\{([^}]*)\}", text):
            for label, how, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', inside):
                assert label in known[name].keys() | OF_PROMETHEUS | {"election"}, (name, label)
                assert how == "=~" or value in known[name][label], (name, label, value)
        for labels in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", text):
            for label in labels.replace(" ", "").split(","):
                assert label in has | {"election"}, (text, label)


def test_every_panel_of_the_dashboard_shows_something(served: dict[str, str], tmp_path: Path) -> None:
    """A real Prometheus reads the real agents, and answers each query."""
    prometheus = program("prometheus")
    jobs: dict[str, list[str]] = {}
    for name, where in served.items():
        jobs.setdefault(name.partition("-")[0], []).append(where)
    scraped = [{"job_name": job, "static_configs": [{"targets": where}]} for job, where in jobs.items()]
    settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": scraped}
    (tmp_path / "prometheus.yaml").write_text(json.dumps(settings))
    (port,) = free_ports(1)
    call = [prometheus, "--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--log.level=warn"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*call, f"--web.listen-address=127.0.0.1:{port}"], cwd=tmp_path, stdout=log, stderr=log
        )

    def rows(query: str) -> list[dict[str, Any]]:
        asked = urllib.parse.urlencode({"query": query})
        with contextlib.suppress(OSError):
            answer = json.loads(read(f"http://127.0.0.1:{port}/api/v1/query?{asked}"))
            return list(answer["data"]["result"])
        return []

    try:
        for query in queries():
            wait_until(lambda: rows(query), query, HANGS_S, 0.2, (tmp_path / "log").read_text)  # noqa: B023
        runs_it = {(row["metric"]["job"], row["metric"].get("election", "")) for row in rows(queries()[0])}
        assert runs_it == {("many", "by-raft"), ("many", "by-lease"), ("single", "")}
    finally:
        process.kill()
        process.wait(WITHIN_S)


# --- others -----------------------------------------------------------------------------------------------------------


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
