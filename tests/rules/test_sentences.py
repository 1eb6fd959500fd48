"""Sentences that no screen says any more: the fifteen worst that a review of the pages found, and others of their kind.

They are looked for as templates, for a name or a number in them differs: in every text of the program and of the pages,
in what an event of any code says, and in what the lab and the timeline say of each fault.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from primacy.agent.sentences import links_sentence
from primacy.dashboard.clicks import SHAPES as CLICKED
from primacy.dashboard.source import _why
from primacy.election.events import RECOVERS, Code, Event, sentence
from primacy.lab.network import SHAPES, WAYS, link_text, shape_text
from primacy.timeline.lab_faults import CUT_BEFORE, lab_faults
from primacy.timeline.schema import Told

SOURCE = Path(__file__).resolve().parents[2] / "src" / "primacy"
SAID = {
    r"\belecting:|\bd, e stands\b": "Electing: d, e stands",
    r"anywhere that is seen|seen from here\b(?!: who)": "not running anywhere that is seen from here",
    r"\bnot known: no node answers": "Not known: no node answers",
    r"\bconnect call failed": "Connect call failed ('127.0.0.1', 7400)",
    r"\bsaid nothing before": "a takes the release by e; it said nothing before",
    r"\bspeaks? again\b|\bbeing mute\b": "a speaks again after being mute: no-memory",
    r"\bhears? nothing of .* any more": "b hears nothing of a any more",
    r"\bmargin of the contract": "Margin of the contract",
    r"\bold work dead": "Old work dead, latest",
    r"\bkilled in (\{\}|[\d,]+) ms": "the command is told to end, and killed in 300 ms",
    r"^break it\??$|^do it$": "Do it",
    r"(?<![\d/])2/3(?![\d/])": "the lab divides the network: 2/3",
    r"\bhalves\b": "Halves",
    r"\bproofs? of two signers": "1 proofs of two signers",
    r"\bsearch the sentences": "Search the sentences",
    r"\bsets the link of\b": "the lab sets the link of b with c: cut in",
    r"\blinks cut: \S+ (both|in|out)\b": "a has its links cut: b both, c in",
}
"""What finds it, and the sentence."""
NAMES = {"2/3", "halves"}
"""The lab's shapes as a person types them: no sentence is one of them alone."""
READ = {CUT_BEFORE.pattern}
"""What is looked for in events that an earlier version has kept."""


def refused(text: str) -> list[str]:
    return [was for found, was in SAID.items() if re.search(found, text, re.IGNORECASE)]


def python_texts() -> Iterator[tuple[str, str]]:
    """Texts of the program; what is filled in is {}. Of documentation only what the command line shows is a text."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent | inside:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node.value


def page_texts() -> Iterator[tuple[str, str]]:
    for path in sorted(each for each in SOURCE.rglob("*") if each.suffix in (".js", ".html")):
        code = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            yield from ((str(path.relative_to(SOURCE)), text.strip()) for text in re.findall(r">([^<]+)<", code))
            continue
        for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`', code):
            yield str(path.relative_to(SOURCE)), re.sub(r"\$\{[^}]*\}", "{}", match[1] or match[2] or "")


@pytest.mark.parametrize("was", list(SAID.values()))
def test_each_of_them_is_found_by_its_template(was: str) -> None:
    assert refused(was) == [was]


def test_no_text_of_the_program_or_of_the_pages_is_one_of_them() -> None:
    texts = [*python_texts(), *page_texts()]
    assert len(texts) > 5_000, "they are read at all"
    assert any(text == "Search in what happened" for _, text in texts), "those of the pages too"
    assert [(where, text) for where, text in texts if text not in NAMES | READ and refused(text)] == []


def test_no_event_says_one_of_them() -> None:
    for code in Code:
        for detail in ("", "an operator asked for it", *RECOVERS):
            said = sentence("a", Event(code, 7, "b", detail, 300))
            assert refused(said) == [], said


@pytest.mark.parametrize("shape", SHAPES)
def test_a_division_is_said_in_words(shape: str) -> None:
    """By the lab, on the timeline, and to whom clicked: who reads it did not type the name of the shape."""
    text = f"the lab divides the network: {shape_text(shape)}, asked for by the dashboard"
    [fault] = lab_faults([Told(5, "", 0, "lab", text)], 9)
    for said in (text, fault.text, CLICKED[shape]):
        assert refused(said) == [], said
        assert shape not in said
    assert fault.text == f"divided: {shape_text(shape)}"


@pytest.mark.parametrize("way", WAYS)
def test_a_link_that_is_cut_is_said_in_words(way: str) -> None:
    """Also on the timeline, and by a node of its own links: who reads it sees the link from neither end."""
    text = f"{link_text('b', 'c', way)}, asked for by the dashboard"
    [*faults] = lab_faults([Told(5, "", 0, "lab", text)], 9)
    assert len(faults) == (way != "none")
    for said in (text, links_sentence("b", {"c": way}), *(fault.text for fault in faults)):
        assert refused(said) == [], said
        assert not re.search(rf"\b{way}\b", said), said


def test_a_closed_port_is_said_in_the_words_of_the_system() -> None:
    assert refused(_why(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 7400)"))) == []
