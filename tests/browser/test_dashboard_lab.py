"""The dashboard with real nodes: three pictures of the single executor by clicking, judged by events and the chain."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import yaml

from primacy.control.client import FoundNode, ask, find
from primacy.settings.timing import PROFILES
from tests.browser.samples import SAMPLES, greens, judged, shown, stood
from tests.support.browser import Tab, real_browser
from tests.support.canary import Canary
from tests.support.safety_checks import safe
from tests.support.waiting import wait_until

pytestmark = pytest.mark.moments(order=230)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PRIMACY = [sys.executable, "-m", "primacy.cli.main"]
CANARY_HEARTBEAT_MS = PROFILES["fast"].heartbeat_ms
"""A leader that stands still for longer than its margin is replaced, as it must be: then another picture is seen."""
Found = TypeVar("Found")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


until = partial(wait_until, every_s=0.05)


class Lab:
    """A lab in the background, asked over its API, as anybody could."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(
            [*PRIMACY, "lab", "up", "--nodes", "5", "--dir", str(folder), "--detach"], check=True, timeout=120
        )
        found = find(str(folder))
        assert found is not None
        self.at = f"http://{found.host}:{found.port}"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.at}{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def leader(self, but: str = "") -> str:
        """Empty while there is none, or only this one."""
        found = str(self.get("/v1/lab")["leader"] or "")
        return found if found != but else ""

    def codes(self, node: str, after: int) -> list[str]:
        return [row["code"] for row in self.get(f"/v1/events?after={after}") if row["node"] == node]

    def newest(self) -> int:
        return max((row["number"] for row in self.get("/v1/events")), default=0)

    def signer(self) -> str:
        signatures = self.get("/v1/lab")["chain"]["signatures"]
        return signatures[-1]["node"] if signatures else ""

    def signed(self) -> list[dict[str, Any]]:
        """All that the chain holds, oldest first."""
        host, _, port = self.get("/v1/lab")["chain"]["address"].rpartition(":")
        found: list[dict[str, Any]] = ask(FoundNode(host, int(port), ""), "/v1/signatures?after=0")
        return found

    def address(self, node: str) -> str:
        file = yaml.safe_load((self.folder / "primacy.yaml").read_text())
        return str(file["cluster"]["manager"]["nodes"][node]["addr"])

    def doubles(self) -> int:
        found = self.get("/v1/lab")["chain"]["counters"]["double_signatures"]
        assert isinstance(found, int)
        return found

    def down(self) -> None:
        doubles = self.doubles()
        subprocess.run([*PRIMACY, "lab", "down", "--dir", str(self.folder)], check=True, timeout=120)
        safe(doubles == 0, f"{doubles} double signatures")


@contextlib.contextmanager
def dashboard(*arguments: str) -> Iterator[str]:
    """The command, and the address that it prints."""
    call = [*PRIMACY, *arguments, "--no-browser", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://localhost:(\d+)/dashboard", process.stdout.readline())
            assert found is not None
            yield f"http://127.0.0.1:{found[1]}/dashboard"
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130


def test_the_three_figures_of_the_single_executor(browser: Browser, tmp_path: Path) -> None:
    lab = Lab(Path(tempfile.mkdtemp(dir=tmp_path)) / "lab")
    ended = False
    try:
        with dashboard("dashboard", "--lab", str(lab.folder)) as url, contextlib.ExitStack() as watching:
            first = until(lab.leader, "a leader")
            until(lab.signer, "a signature")
            tab = Tab(browser, url)
            page = tab.open("network")
            page.wait_for_selector(f'.knot[data-node="{first}"][data-tone="leader"]')

            # Where each node listens, as its own file says.
            page.goto(f"{url}#/nodes")
            for name in "abcde":
                page.click(f'.tab[data-node="{name}"]')
                page.wait_for_selector(f".node-title >> text=Node {name}")
                page.wait_for_selector(f'.fact:has(dt:text-is("Address")) dd >> text={lab.address(name)}')
            page.goto(f"{url}#/network")
            page.wait_for_selector(f'.knot[data-node="{first}"][data-tone="leader"]')
            page.evaluate(SAMPLES)
            canary = watching.enter_context(Canary(CANARY_HEARTBEAT_MS))

            # 1. Stop the leader: another one leads, and signs.
            mark = lab.newest()
            page.click('[data-picture="stop-leader"]')
            page.click("dialog button[type=submit]")
            second = until(lambda: lab.leader(but=first), "another leader")
            page.wait_for_selector(f'.knot[data-node="{first}"][data-tone="down"]')
            page.wait_for_selector(f'.knot[data-node="{second}"][data-tone="leader"]')
            until(lambda: lab.signer() == second, "a signature by the new one")
            until(lambda: "gone" in lab.codes(first, mark), "the confirmed end of the old work")
            until(lambda: "elected" in lab.codes(second, mark), "the election, as an event")
            asked = [row["text"] for row in lab.get(f"/v1/events?after={mark}") if row["code"] == "lab"]
            assert asked == [f"the lab stops node {first}, asked for by the dashboard"]

            # 3. Mend: it comes back as a follower, and the leader stays.
            page.wait_for_selector('[data-picture="mend"]:not(:disabled)')
            page.click('[data-picture="mend"]')
            page.wait_for_selector(f'.knot[data-node="{first}"][data-tone="follower"]')
            assert lab.leader() == second

            # 2. Cut the leader off: it loses its majority, its work ends, and a third one leads.
            mark = lab.newest()
            page.wait_for_selector('[data-picture="cut-leader"]:not(:disabled)')
            page.click('[data-picture="cut-leader"]')
            page.click("dialog button[type=submit]")
            third = until(lambda: lab.leader(but=second), "a third leader")
            until(lambda: "majority-lost" in lab.codes(second, mark), "the lost majority")
            until(lambda: "gone" in lab.codes(second, mark), "the confirmed end of its work")
            until(lambda: lab.signer() == third, "a signature by the third")
            page.wait_for_function("() => document.querySelectorAll('.map .link[data-state=cut]').length === 3")
            assert len(lab.get("/v1/lab")["cuts"]) == 6

            page.wait_for_selector('[data-picture="mend"]:not(:disabled)')
            page.click('[data-picture="mend"]')
            until(lambda: lab.get("/v1/lab")["cuts"] == [], "whole links")
            page.wait_for_selector('.map .link[data-state="cut"]', state="detached")
            samples, still = shown(page), stood(page)
            watching.close()
            assert {green.node for green in greens(samples)} >= {first, second, third}
            assert any("; never two" in one["change"] for one in samples), "no gap was ever shown"
            judged(samples, lab.signed(), still, canary)
            page.goto(f"{url}#/overview")
            page.wait_for_selector(f"text=Running on {third}")
            page.wait_for_selector("text=never two signers at once")
            assert tab.said == []

            # An order for the election, and the end of everything while the page is open.
            page.goto(f"{url}#/network")
            heir = next(name for name in "abcde" if name not in (first, second, third))  # heard all the time
            page.click(f'.knot[data-node="{heir}"]')
            page.click('[data-act="Transfer here"]')
            page.click("dialog button[type=submit]")
            until(lambda: lab.leader() == heir, "the one to whom it was handed")
            lab.down()
            ended = True
            page.wait_for_selector("text=The cluster is not seen")
            tab.close()
    finally:
        if not ended:
            lab.down()


def test_one_real_node_is_enough_to_see_all_and_to_sign_in(browser: Browser, tmp_path: Path) -> None:
    """Without the lab's help: `primacy dashboard` beside one node, whose key signs in, and which passes orders on."""
    lab = Lab(Path(tempfile.mkdtemp(dir=tmp_path)) / "lab")
    try:
        leader = until(lab.leader, "a leader")
        here = next(name for name in "abcde" if name != leader)
        other = next(name for name in "edcba" if name not in (leader, here))
        where = ("--config", str(lab.folder / "primacy.yaml"), "--state-dir", str(lab.folder / "nodes" / here))
        with dashboard("--node", here, "dashboard", *where) as url:
            tab = Tab(browser, url)
            page = tab.open()
            page.wait_for_selector(f"text=Running on {leader}")
            page.wait_for_function("() => document.querySelectorAll('.card tbody tr[data-node]').length === 5")
            page.click("text=Show the file, without its secrets")
            page.wait_for_selector("pre.code >> text=profile: fast")
            key = (lab.folder / "nodes" / here / "lab" / "main" / "control.key").read_text().strip()
            page.click("text=Sign in")
            page.fill("#control-key", key)
            page.keyboard.press("Enter")
            page.wait_for_selector("text=Sign out")
            page.goto(f"{url}#/network")
            page.click(f'.knot[data-node="{other}"]')
            page.click('[data-act="Pause"]')
            page.click("dialog button[type=submit]")
            until(lambda: "paused" in _role(lab, other), f"{other} to be paused, by {here}'s word")
            page.wait_for_selector(f'.knot[data-node="{other}"][data-tone="paused"]')
            assert tab.said == []
            tab.close()
    finally:
        lab.down()


def _role(lab: Lab, node: str) -> str:
    row = next(row for row in lab.get("/v1/lab")["nodes"] if row["node"] == node)
    return str((row["state"] or {}).get("role"))


def test_the_demo_serves_its_page_and_takes_it_along_when_it_ends(browser: Browser, tmp_path: Path) -> None:
    folder = tempfile.mkdtemp(dir=tmp_path)
    call = [*PRIMACY, "demo", "--scenario", "calm", "--seconds", "600", "--no-browser", "--dir", f"{folder}/demo"]
    environment = {**os.environ, "SSH_CONNECTION": "10.0.0.9 50022 10.0.0.1 22", "USER": "ann"}
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            link = next(found[0] for line in lines if (found := re.search(r"http://localhost:\d+/dashboard", line)))
            port = int(re.findall(r":(\d+)/", link)[0])
            assert f"ssh -L {port}:127.0.0.1:{port} ann@10.0.0.1" in "".join(lines)
            tab = Tab(browser, link)
            page = tab.open()
            page.wait_for_selector("text=5 real processes on this machine")
            page.wait_for_selector("text=Running on")
            process.send_signal(signal.SIGTERM)
            page.wait_for_selector("text=The dashboard's server does not answer")
            tab.close()
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    until(lambda: not _left_behind(folder), "the end of all that it started")


def _left_behind(word: str) -> list[str]:
    """Processes that name this folder."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and word.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
    return found
