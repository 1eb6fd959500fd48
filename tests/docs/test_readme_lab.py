"""The first block of README with a real lab: what is printed is what the page shows, but for the figures and for which
node leads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.settings.timing import PROFILES
from tests.support.canary import beside_a_canary
from tests.support.page_blocks import ROOT, blocks
from tests.support.page_shell import Shell, is_shown, steps
from tests.support.safety_checks import safe
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=588)

BLOCK = next(blocks(ROOT / "README.md")).text
EXACT = ("1 handover", "0 double signatures")
"""Figures that are the point of the block."""
LED, LEADS = "c", "a"
"""On the page: who is killed, and who leads then."""
AGREES_S = 10.0
"""A reader types the second command later than this test; and on a busy machine all of it takes longer."""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path)
    yield found
    found.run("primacy lab down", code=None)


def leader(shell: Shell) -> str:
    return str(json.loads(shell.run("primacy lab status --json").said)["leader"] or "")


def renamed(text: str, names: dict[str, str]) -> str:
    """The nodes, wherever one is named by itself."""
    return re.sub(r"\b[abc]\b", lambda found: names[found[0]], text)


@beside_a_canary(PROFILES["lan"].heartbeat_ms, passes_if_late=True)
def test_the_first_block_of_the_readme_is_what_a_reader_sees(shell: Shell) -> None:
    kill, status = steps(BLOCK)
    (up,) = re.findall(r"primacy lab up .*$", kill.command)
    assert is_shown(("the lab is up in …", "look: primacy lab status …"), shell.run(up).said)
    led = wait_until(lambda: leader(shell), "a leader", within_s=60)
    rest = [name for name in "abc" if name != led]
    killed = shell.run(renamed(kill.command, dict(zip("cab", [led, *rest], strict=True))))
    assert is_shown(kill.shown, killed.said)
    assert f"{led} killed" in " ".join(killed.said.split())
    leads = wait_until(lambda: leader(shell).replace(led, ""), "another leader", within_s=60)
    (other,) = set(rest) - {leads}
    names = {LED: led, LEADS: leads, "b": other}
    # the table is in the order of the names; on the page those who are left come first
    shown = sorted((renamed(line, names) for line in status.shown[1:4]), key=lambda line: line.split()[0])
    shown = [status.shown[0], *shown, *(renamed(line, names) for line in status.shown[4:])]
    said = ""

    def agrees() -> bool:
        nonlocal said
        said = shell.run(status.command).said
        safe(" 0 double signatures" in said, said)
        return is_shown(tuple(shown), said, EXACT)

    wait_until(agrees, "what the page shows", within_s=AGREES_S, told=lambda: f"{shown}\n{said}")


def test_what_a_page_shows_is_compared_line_by_line() -> None:
    assert is_shown(("a  1,200 ms", "…", "b…"), "a 7 ms\nx\ny\nb c\n")
    assert is_shown(("a", "…"), "a\n")
    assert not is_shown(("a",), "a\nb\n")
    assert not is_shown(("a  1 ms", "b"), "a 7 s\nb\n")
    assert not is_shown(("c stopped",), "c killed\n")
    assert is_shown(("1 handover, 2 ms",), "1 handover, 30 ms\n", ("1 handover",))
    assert not is_shown(("1 handover, 2 ms",), "3 handover, 30 ms\n", ("1 handover",))
