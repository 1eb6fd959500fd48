"""The pages Elections, Leases and Slots in a real Chromium: of a real agent, a real store and real slots."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from primacy.slots.threads import SlotsClient
from tests.browser.test_dashboard_browser import CROWDED, count, expect, overflow
from tests.processes.test_dashboard_command import PRIMACY, command
from tests.support.browser import Tab, real_browser
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=148)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (390, 900, 1440)
HOLDER = """
import sys
from primacy import blocking
with blocking.Lock(sys.argv[2], store=sys.argv[1], profile=sys.argv[3]):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as one:
        yield one


def fits(page: Page) -> None:
    """Nothing is wider than the screen, and no text stands on another one."""
    size = page.viewport_size
    assert size is not None
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for _ in range(50):  # until it is drawn
            page.wait_for_timeout(100)
            if overflow(page) <= 0 and page.evaluate(CROWDED) == []:
                break
        assert (overflow(page) <= 0, page.evaluate(CROWDED)) == (True, []), width
    page.set_viewport_size(size)


@contextlib.contextmanager
def agent(folder: Path, names: list[str], port: int, own: int) -> Iterator[subprocess.Popen[bytes]]:
    """One node that leads all of them."""
    run = {"command": ["sleep", "600"]}
    said = {
        "state_dir": "state",
        "cluster": {"name": "billing"},
        "elections": {name: {"run": run} for name in names},
        "control": {"listen": f"127.0.0.1:{own}", "dashboard": f"127.0.0.1:{port}"},
    }
    (folder / "primacy.yaml").write_text(json.dumps(said))
    with subprocess.Popen([*PRIMACY, "--node", "a", "agent"], cwd=folder, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)


def test_an_agent_serves_a_page_of_all_its_elections(browser: Browser, tmp_path: Path) -> None:
    own, port = free_ports(2)
    names = ["mail", "reports", "z" * 40]
    with agent(tmp_path, names, port, own) as process:
        tab = Tab(browser, f"http://127.0.0.1:{port}/dashboard")
        page = tab.page
        wait_until(lambda: _opens(tab), "the page of the agent")
        page.wait_for_selector('.live[data-state="live"]')
        expect(page, "h1", "Elections")
        expect(page, ".strip-holder", "3 elections: 3 held by one node")
        for name in names:
            expect(page, f'tr[data-election="{name}"]', f"{name}held.*a.*runs on a")
        count(page, "nav a", 2)
        for asked in (["pause", "--election", "mail"], ["resume", "--election", "mail"], ["reload"]):
            subprocess.run([*PRIMACY, *asked], cwd=tmp_path, check=True, capture_output=True)
        page.click('nav a[data-page="audit"]')
        expect(page, "table.audit thead", "WhatElectionNode")
        expect(page, "table.audit tbody tr >> nth=0", "reload.*all.*a.*done")
        expect(page, "table.audit tbody tr >> nth=1", "resume.*mail.*a.*done")
        expect(page, "table.audit tbody tr >> nth=2", "pause.*mail.*a.*done")
        fits(page)
        page.click('nav a[data-page="elections"]')
        page.click('tr[data-election="mail"] a')
        expect(page, "h1", "Overview")
        expect(page, ".hero-title", "Running on a")
        assert "election=mail" in page.url
        page.click('nav a[data-page="nodes"]')
        expect(page, ".node-title", "Node a")
        assert "election=mail" in page.url
        expect(page, ".where", "mail")
        page.reload()
        expect(page, ".node-title", "Node a")
        page.click('nav a[data-page="elections"]')
        page.click('tr[data-election="reports"] a')
        expect(page, ".where", "reports")
        page.click('nav a[data-page="elections"]')
        expect(page, 'tr[data-election="mail"]', "held")
        fits(page)
        count(page, ".elections .chip[data-tone=ok]", 3)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        expect(page, ".strip-holder", "Not known")
        page.wait_for_function("() => !document.querySelector('.elections .chip[data-tone=ok]')")
        expect(page, 'tr[data-election="mail"]', "not known.*before: runs on a")
        tab.close()


def _opens(tab: Tab) -> bool:
    from playwright.sync_api import Error

    try:
        answer = tab.page.goto(tab.url)
    except Error:
        tab.said.clear()
        return False
    return answer is not None and answer.ok


@contextlib.contextmanager
def holder(url: str, name: str, profile: str) -> Iterator[subprocess.Popen[str]]:
    """A program that uses the library alone."""
    call = [sys.executable, "-c", HOLDER, url, name, profile]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().strip() == "held"
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(60)


def test_the_leases_of_programs_are_shown_without_any_node(browser: Browser, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    with holder(url, "invoices", "lan") as first, holder(url, "nightly", "wan") as second:
        said = ["dashboard", "--store", url, "--state-dir", str(tmp_path / "s"), "--listen", "127.0.0.1:0"]
        with command(*said, "--no-browser") as lines:
            found = re.search(r"http://\S+", lines[0])
            assert found is not None
            tab = Tab(browser, found[0])
            page = tab.open("leases")
            count(page, "nav a", 2)
            expect(page, 'tr[data-lease="nightly"]', r"nightlyheld.*not told.* ms ago, every [\d,]+ ms")
            expect(page, ".store .chip", "answers")
            first.kill()  # the last words: it may be killed as it writes
            over = "not renewed.*was .*(free for the next that asks|the next that asks watches it first)"
            expect(page, 'tr[data-lease="invoices"]', over)
            expect(page, ".strip-holder", "2 leases: 1 held, 1 not renewed")
            assert page.evaluate("() => document.documentElement.dataset.state") == "warn"
            second.communicate("\n", timeout=60)
            expect(page, 'tr[data-lease="nightly"]', "free.*nobody.*released it")
            expect(page, ".strip-holder", "2 leases: 1 not renewed, 1 free")
            page.fill("#lease-search", "night")
            count(page, ".leases tbody tr", 1)
            fits(page)
            Path(tmp_path / "leases.db").rename(tmp_path / "elsewhere.db")
            expect(page, ".store .outcome.bad", "Since .*")
            expect(page, 'tr[data-lease="nightly"]', "not known")
            expect(page, ".strip-holder", "Not known: .* does not answer")
            assert tab.said == []
            tab.close()


def test_the_slots_of_a_real_server_are_read_and_not_changed(browser: Browser, tmp_path: Path) -> None:
    own, port, udp = free_ports(3)
    said = {
        "state_dir": "state",
        "cluster": {"manager": {"nodes": {"a": {"addr": f"127.0.0.1:{udp}"}}}},
        "slots": {
            "addr": f"localhost:{port}",
            "000": {"kind": "simple_memory"},
            "001": {"kind": "atomic"},
            "002": {"kind": "simple_memory", "users": {"alice": "a"}},
            "users": {"alice": "password"},
        },
        "control": {"listen": f"127.0.0.1:{own}"},
    }
    file = tmp_path / "primacy.yaml"
    file.write_text(json.dumps(said))
    where = ["--config", str(file)]
    serve = [*PRIMACY, "--node", "a", "slots", "serve", *where]
    with subprocess.Popen(serve, stderr=subprocess.DEVNULL, cwd=tmp_path) as server:
        try:
            with SlotsClient(f"localhost:{port}", within_ms=60_000) as client:
                client.set("000", "hello")
                look_at_slots(browser, client, where)
        finally:
            server.terminate()
            server.wait(60)


def look_at_slots(browser: Browser, client: SlotsClient, where: list[str]) -> None:
    with command("--node", "a", "dashboard", *where, "--listen", "127.0.0.1:0", "--no-browser") as lines:
        found = re.search(r"http://\S+", lines[0])
        assert found is not None
        tab = Tab(browser, found[0], width=390)
        page = tab.open("slots")
        value = page.locator('tr[data-slot="000"] .slot-value')

        def becomes(text: str) -> bool:
            """The next leadership begins with empty slots: then it is said again."""
            return client.set("000", text) == text.encode() and value.inner_text() == text

        value.wait_for()
        wait_until(lambda: becomes("hello"), "hello", every_s=0.3)
        expect(page, 'tr[data-slot="001"] .slot-value', "not read: a read would change it")
        expect(page, 'tr[data-slot="002"] .slot-value', "not read: it is for its users")
        expect(page, '[data-rate="requests"] .big', r"^\d")
        wait_until(lambda: becomes("<b>7</b>"), "text, and no markup", every_s=0.3)
        expect(page, 'tr[data-slot="000"]', r"ago, \d+ seen")
        fits(page)
        assert client.get("001") == b"1", "nobody has read the counter before"
        assert tab.said == []
        tab.close()
