"""The check of identifiers: what it refuses, what it lets pass, and that the rooms it names are there and clean."""

from __future__ import annotations

import pytest

from tests.support import words


@pytest.mark.parametrize(
    "source",
    [
        "class OpenDesk: ...",
        "def judge_the_reign(): ...",
        "def told(to_voice): ...",
        "self.desk = 1",
        "LIVES_MAX = 800",
        "for life in found: ...",
        "import primacy as twin",
        "class A:\n    roster: int",
    ],
)
def test_a_metaphor_is_refused(source: str) -> None:
    (found,) = words.refusals_in(source, "src/primacy/agent/new.py")
    assert found.word in words.REFUSED
    assert "docs/glossary.md" in str(found)


@pytest.mark.parametrize(
    "source",
    [
        "from typing import cast\ncast(int, 1)",
        "careful = stagecoach = lifetime = 1",
        "def told():\n    '''A life of a twin at a desk.'''",
        "found = other.desk",
    ],
)
def test_other_names_and_texts_pass(source: str) -> None:
    assert not list(words.refusals_in(source, "src/primacy/agent/new.py"))


def test_the_name_of_a_file_counts() -> None:
    (found,) = words.refusals_in("", "src/primacy/agent/voice.py")
    assert found.name == "voice"


def test_words_of_a_name() -> None:
    assert words.words_of("_process_duty") == words.words_of("ProcessDuty") == words.words_of("PROCESS_DUTY")
    assert words.words_of("HTTPDoor") == ["http", "door"]


def test_the_rooms_are_there_and_clean() -> None:
    assert words.refusals() == []
    assert len(words.files()) > 100
    for room in words.ROOMS:
        assert (words.ROOT / room).exists(), room


def test_what_is_excused_is_there() -> None:
    """An excuse goes with its name."""
    for file, names in words.EXCUSED.items():
        text = (words.ROOT / file).read_text()
        assert all(name in text for name in names), file


def test_sentences_for_users_are_plain() -> None:
    assert words.unplain() == []
    for wrong in ("It shall be.", "Such a node leads.", "a\nb Whoever asks", "one of ours", "by way of", "beside it"):
        (found,) = words.unplain_in(wrong, "docs/new.md")
        assert found.line == wrong.count("\n") + 1
    assert not list(
        words.unplain_in("Words such as these; no such file; besides. `beside`\n\n    beside\n", "docs/new.md")
    )
