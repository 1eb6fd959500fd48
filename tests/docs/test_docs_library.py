"""The programs in the library's documents are run, and its table of endings is the tests' own."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import primacy
from primacy import blocking
from primacy.settings.timing import PROFILES
from tests.support.canary import beside_a_canary
from tests.support.programs import need

WITHIN_S = 300
"""Only a hang reaches it."""
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("library.md", "cron.md", "fencing.md", "schedulers.md")]
BLOCK = re.compile(r"(<!-- runnable -->\n)?```python\n(.*?)```", re.DOTALL)
BLOCKS = [
    pytest.param(bool(run), code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, (run, code) in enumerate(BLOCK.findall(page.read_text()))
]


@pytest.mark.later
@pytest.mark.parametrize(("runnable", "code"), BLOCKS)
@beside_a_canary(PROFILES["lan"].heartbeat_ms, passes_if_late=True)
def test_programs_in_the_documents(runnable: bool, code: str, tmp_path: Path) -> None:
    ast.parse(code if runnable else f"async def body():\n{re.sub('^', '    ', code, flags=re.MULTILINE)}")
    if not runnable:
        return
    if "apscheduler" in code:
        need("apscheduler")
    quick = code.replace("at_least_ms=1_000", "at_least_ms=100")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", quick],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"token \d+", done.stdout), done.stdout


def test_the_documents_run_programs() -> None:
    assert sum("runnable -->" in page.read_text() for page in PAGES) == 4


TYPED = """
import asyncio
from typing import assert_type
import primacy
from primacy import blocking

@primacy.singleton("a", store="memory:")
async def serve(port: int) -> str: return str(port)

@primacy.once("b", store="memory:", at_least_ms=5)
def report(day: str) -> int: return len(day)

async def main() -> None:
    assert_type(await serve(1), str)
    assert_type(report("x"), int | None)
    async with primacy.Election("c", store="memory:", state_dir="s") as election:
        async for leadership in election:
            async with leadership:
                assert_type(leadership.token, int)
    with blocking.Lock("d", store="memory:") as held:
        assert_type(held.left_ms(), int)
"""


@pytest.mark.later
def test_the_types_are_those_that_a_user_sees(tmp_path: Path) -> None:
    """The package says that it is typed, and the recipes keep a function's own types."""
    program = tmp_path / "program.py"
    for text, wrong in ((TYPED, ""), (TYPED + "serve('x')\nreport(day=1)\nprimacy.Election('e')\n", "4 errors")):
        program.write_text(text)
        call = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode != 0, wrong in done.stdout) == (bool(wrong), True), done.stdout


def test_every_option_of_an_election_has_its_row() -> None:
    text = (ROOT / "docs/library.md").read_text()
    for name in inspect.signature(primacy.Election).parameters:
        assert name in ("name", "store") or f"| `{name}` |" in text, name
    more = (
        inspect.signature(blocking.Election).parameters.keys() - inspect.signature(primacy.Election).parameters.keys()
    )
    assert more == {"check_within_ms"}


def test_the_holds_that_are_named_are_those_of_the_profiles() -> None:
    row = re.search(r"\| `profile` \|.*", (ROOT / "docs/library.md").read_text())
    assert row is not None
    said = {"lan": "hold 3 s", "fast": "`fast` 1 s", "wan": "`wan` 10 s", "lab": "`lab` 0.5 s"}
    for profile, words in said.items():
        assert words in row[0]
        assert float(re.findall(r"[\d.]+", words)[0]) * 1_000 == PROFILES[profile].hold_ms


def test_every_example_stands_in_their_list() -> None:
    listed = (ROOT / "examples/README.md").read_text()
    for name in os.listdir(ROOT / "examples"):
        assert f"`{name}`" in listed or f"`{name}/`" in listed or name in ("README.md", "__pycache__"), name
