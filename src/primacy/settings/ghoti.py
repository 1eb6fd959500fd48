"""A Ghoti file is a valid file of ours: its top-level words move to where ours stand.

`addr`, `protocol`, `users`, `metrics`, `telemetry` and `slot_NNN` are accepted spellings of `slots.*`. The keys under
`cluster` are our own keys already. Nothing else of the file changes; a word that stands in both places is a problem.
"""

from __future__ import annotations

import re

from primacy.errors import Problem
from primacy.settings.tree import Entries, Scalar, Tree

MOVED = ("addr", "protocol", "users", "telemetry")
SLOT = re.compile(r"slot_([0-9]{3})")


def moved(tree: Entries) -> tuple[Entries, list[Problem]]:
    """The tree in our own spelling, and the problems that its moving brought to light."""
    ours: dict[str, tuple[Scalar, Tree]] = {}
    theirs: dict[str, tuple[Scalar, Tree]] = {}
    for word, entry in tree.items.items():
        slot = SLOT.fullmatch(word)
        if slot:
            theirs[slot[1]] = entry
        elif word in MOVED or word == "metrics":
            theirs[word] = entry
        else:
            ours[word] = entry
    if not theirs:
        return tree, []
    if "metrics" in theirs and "telemetry" in theirs:  # Ghoti reads the values from `telemetry` alone
        del theirs["metrics"]
    key, slots = ours.get("slots", (Scalar("slots", plain=True), Entries()))
    if isinstance(slots, Scalar) and slots.nothing:
        slots = Entries(line=slots.line)
    if not isinstance(slots, Entries):
        return tree, []  # the walker says what is wrong with `slots`
    problems = []
    merged = dict(slots.items)
    for word, (their_key, value) in theirs.items():
        if word in merged:
            wrong = f"is set twice: here and as slots.{word}; keep one"
            problems.append(Problem(their_key.text, "", wrong, their_key.line))
        else:
            merged[word] = (their_key, value)
    ours["slots"] = (key, Entries(merged, slots.line))
    return Entries(ours, tree.line), problems
