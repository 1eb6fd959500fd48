"""The check of the modules of the pages finds what is wrong with them, and nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import page_code

needs_deno = pytest.mark.skipif(not page_code.DENO.exists(), reason="Deno is not here: make page-tools")
PLANTED = {
    "a name that there is not": ("strip.js", "nobody();", "Cannot find name 'nobody'"),
    "a variable that nobody reads": ("pages/audit.js", "function f() { const left = 1; }", "never read"),
    "a call with too much": ("drill-report.js", 'place("verdict", 2, 3);', "Expected"),
    "an assignment for a question": ("embed.js", "let a = 1; if (a = 2) a += 1;", "no-cond-assign"),
}


@needs_deno
def test_the_modules_as_a_browser_gets_them_are_sound(tmp_path: Path) -> None:
    page_code.laid_out(tmp_path)
    assert len([*tmp_path.rglob("*.js")]) > 25
    assert page_code.found_in(tmp_path) == ""


@needs_deno
def test_each_kind_of_mistake_is_found(tmp_path: Path) -> None:
    page_code.laid_out(tmp_path)
    for name, line, _ in PLANTED.values():
        with (tmp_path / name).open("a", encoding="utf-8") as module:
            module.write(f"\n{line}\n")
    found = page_code.found_in(tmp_path)
    for what, (_, _, words) in PLANTED.items():
        assert words in found, f"{what}: {found}"


def test_without_the_tool_it_is_said_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(page_code, "DENO", tmp_path / "deno")
    assert page_code.main() == 0
    assert "make page-tools" in capsys.readouterr().out
