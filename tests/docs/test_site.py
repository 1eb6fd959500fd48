"""The site of the documents: it builds without a warning, fetches nothing from elsewhere, and its search finds."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.cli.main import COMMANDS
from tests.support.browser import real_browser
from tests.support.site import COMMANDS_PAGE, ROOT, build, lacks, lay_out, main
from tests.support.waiting import wait_until

pytestmark = pytest.mark.later

NAVIGATION = tomllib.loads((ROOT / "docs/site/zensical.toml").read_text())["project"]["nav"]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?P<src>[^"'\s>]+)"""
    r"""|<link\b[^>]*\bhref=["']?(?P<href>[^"'\s>]+)"""
    r"""|\burl\(["']?(?P<url>[^"')]+)|@import\s+["'](?P<import>[^"']+)"""
)
"""What a browser fetches by itself. A link is followed by the reader."""


def named(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else named(value)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := lacks():
        pytest.skip(reason)
    place = tmp_path_factory.mktemp("documents") / "site-source"
    lay_out(place)
    return place


@pytest.fixture(scope="module")
def site(source: Path) -> Path:
    made = source.parent / "site"
    done = build(source, made)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "warning" not in said.lower(), said
    return made


def test_every_document_has_its_place_in_the_navigation() -> None:
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "contrib/README.md",
        ROOT / "examples/README.md",
    ]
    assert sorted(named(NAVIGATION)) == sorted([COMMANDS_PAGE, *(str(page.relative_to(ROOT)) for page in pages)])


def test_every_page_is_built(site: Path) -> None:
    for page in named(NAVIGATION):
        made = site / page
        assert (made.parent / "index.html" if made.stem == "README" else made.with_suffix(".html")).is_file(), page
    for name in ("network", "overview"):
        assert (site / f"docs/pictures/{name}.png").is_file()
        assert any(f"pictures/{name}.png" in page.read_text() for page in site.rglob("*.html"))


def test_the_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    looked = 0
    for file in (*site.rglob("*.html"), *site.rglob("*.css")):
        for found in FETCHED.finditer(file.read_text()):
            address = next(part for part in found.groups() if part)
            assert address.startswith("data:") or "//" not in address, f"{file.name}: {address}"
            looked += 1
    assert looked > 100


def test_search_knows_words_of_the_documents_and_every_command(site: Path) -> None:
    items = json.loads((site / "search.json").read_text())["items"]
    assert any("dead-man" in item["text"] and item["location"].startswith("docs/config.html") for item in items)
    titles = {item["title"] for item in items if item["location"].startswith("commands.html")}
    assert titles >= {f"primacy {name}" for name in COMMANDS}


FOUND = "a[href*='commands.html']"


def finds(page: Any, words: str) -> bool:
    """By the key that opens the search. What is typed before its index is there is lost: it is typed again."""
    found = page.locator(FOUND, has_text="primacy run")
    if found.count() and found.first.is_visible():
        return True
    if page.evaluate("() => document.activeElement.shadowRoot?.activeElement?.tagName === 'INPUT'"):
        page.keyboard.press("Control+A")
        page.keyboard.type(words)
        page.wait_for_timeout(3_000)
    else:
        page.keyboard.press("/")
        page.wait_for_timeout(500)
    return False


def test_a_reader_searches_from_disk_and_no_request_leaves(site: Path) -> None:
    with real_browser() as browser:
        page = browser.new_page()
        asked: list[str] = []
        wrong: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / "docs/run.html").as_uri())
        assert page.locator(FOUND, has_text="primacy run").count() == 0, "not before it was searched for"
        wait_until(lambda: finds(page, "split-brain"), "what the search finds", 120)
        page.locator(FOUND, has_text="primacy run").first.click()
        page.wait_for_url("**/commands.html*")
        assert page.locator("h1", has_text="Commands").count() == 1
        assert not wrong
        assert asked
        assert {url.partition(":")[0] for url in asked} <= {"file", "data"}, asked


def test_a_link_that_leads_nowhere_is_refused(source: Path, site: Path) -> None:
    """After the site was built: what is laid out is changed."""
    with (source / "pages/SECURITY.md").open("a") as page:
        page.write("\n[nothing](docs/nothing.md)\n")
    done = build(source, site.parent / "refused")
    assert done.returncode != 0
    assert "SECURITY.md" in done.stdout + done.stderr
    assert not (site.parent / "refused").exists()


def test_without_its_builder_it_says_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(tmp_path) == 4
    assert "make site-tools" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
