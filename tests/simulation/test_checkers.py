"""The checkers of real processes: what each of them must see, planted by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import stamp
from tests.support.holder_harness import judge as judge_holders
from tests.support.holder_process import state_of
from tests.support.safety_checks import SafetyViolation, one_at_a_time
from tests.support.store_race import judge as judge_race

MS = 1_000_000
LOOKS = 2_000
KILLS = 20
BUSY = """
ballast = bytearray(64 * 1024 * 1024)
print(flush=True)
while True:
    pass
"""
STAMPS_ALL_THE_TIME = """
import stamp, sys
slot = stamp.Slot(sys.argv[1], stamp.COMMAND)
print(flush=True)
while True:
    slot.stamp()
"""


def stamped(
    node: str, start: int, mark: tuple[int, int], first: int, last: int, kind: int = stamp.COMMAND
) -> stamp.Stamp:
    return stamp.Stamp(node.encode(), start, *mark, kind, 2, first, last)


FIRST = stamped("a", 1, (7, 1), 5, 9)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (stamped("b", 2, (8, 1), 10, 12), ""),
        (stamped("a", 2, (7, 2), 10, 12), ""),
        (stamped("a", 1, (7, 1), 6, 20, stamp.ESCAPED), ""),
        (stamped("b", 2, (8, 1), 9, 12), stamp.TWO_AT_ONCE),
        (stamped("b", 2, (8, 1), 6, 7), stamp.TWO_AT_ONCE),
        (stamped("a", 2, (7, 2), 9, 12), stamp.TWO_AT_ONCE),
        (stamped("b", 2, (7, 1), 6, 12), stamp.TWO_AT_ONCE),
        (stamped("a", 2, (7, 1), 6, 12), stamp.TWO_AT_ONCE),
        (stamped("b", 2, (7, 1), 10, 12), stamp.ONE_MARK),
        (stamped("a", 2, (7, 1), 10, 12), stamp.ONE_MARK),
        (stamped("b", 2, (6, 9), 10, 12), stamp.BACKWARDS),
        (stamped("a", 2, (7, 0), 10, 12), stamp.BACKWARDS),
    ],
)
def test_stamps_of_any_two_starts_are_compared(other: stamp.Stamp, what: str) -> None:
    found = stamp.violations([other, FIRST])
    assert [one.what for one in found] == [what] * bool(what)
    if what:
        with pytest.raises(SafetyViolation, match=what):
            one_at_a_time([FIRST, other])


def test_a_tree_lasts_until_its_last_process_is_gone() -> None:
    escaped = stamped("a", 1, (7, 1), 6, 30, stamp.ESCAPED)
    assert [one.what for one in stamp.violations([FIRST, escaped, stamped("b", 2, (8, 1), 20, 25)])] == [
        stamp.TWO_AT_ONCE
    ]


def test_whoever_has_stamped_once_is_seen_by_every_look(tmp_path: Path) -> None:
    """Also by one in the middle of the next stamp, and no stamp is seen in part."""
    path = str(tmp_path / "stamps")
    stamp.make_file(path)
    command = [sys.executable, "-c", STAMPS_ALL_THE_TIME, path]
    with subprocess.Popen(command, cwd=Path(stamp.__file__).parent, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen_ns = [[one.last_ns for one in stamp.read(path)] for _ in range(LOOKS)]
        process.kill()
    assert [len(each) for each in seen_ns] == [1] * LOOKS
    assert seen_ns == sorted(seen_ns)
    assert seen_ns[-1][0] <= stamp.now_ns()


def race(folder: Path, *lines: tuple[int, str, int, str, int, dict[str, Any]]) -> Any:
    with (folder / "log").open("w") as file:
        for at_ms, node, pid, what, token, more in lines:
            line = {"at": at_ms * MS, "node": node, "pid": pid, "what": what, "token": token, **more}
            file.write(json.dumps(line) + "\n")
    return judge_race(folder)


def hold(until_ms: int, first: bool = True) -> dict[str, Any]:
    return {"until_ms": until_ms, "first": first}


@pytest.mark.parametrize(
    ("node", "pid", "token", "at_ms", "is_safe"),
    [
        ("b", 2, 6, 60, True),
        ("b", 2, 6, 30, False),
        ("b", 2, 5, 60, False),
        ("b", 2, 4, 60, False),
        ("a", 3, 6, 30, False),
        ("a", 1, 6, 30, False),
        ("a", 1, 5, 60, False),
    ],
)
def test_holds_of_a_race_are_all_told_apart(
    node: str, pid: int, token: int, at_ms: int, is_safe: bool, tmp_path: Path
) -> None:
    """Of another node, of another process of the node, of the same process: at once, or under one token."""
    verdict = race(
        tmp_path,
        (1, "a", 1, "hold", 5, hold(40)),
        (20, "a", 1, "hold", 5, hold(50, first=False)),
        (at_ms, node, pid, "hold", token, hold(at_ms + 40)),
    )
    assert len(verdict.holds) == 2
    if is_safe:
        verdict.one_at_a_time()
    else:
        with pytest.raises(SafetyViolation):
            verdict.one_at_a_time()


def says(word: str, at: int, token: int, pid: int, until: int = 0) -> dict[str, Any]:
    return {"is": word, "at": at, "token": token, "pid": pid, "until": until, "hold_until": until + 300}


@pytest.mark.parametrize(
    ("said", "is_safe"),
    [
        ([says("leads", 600, 6, 2, 800)], True),  # after the hold
        ([says("leads", 599, 6, 2, 800)], False),  # within it
        ([says("leads", 600, 5, 2, 800)], False),  # the same token
        ([says("leads", 600, 4, 2, 800)], False),  # a smaller one
    ],
)
def test_holders_of_the_library_are_judged_by_their_own_claims(said: list[dict[str, Any]], is_safe: bool) -> None:
    old = [says("leads", 0, 5, 1, 200), says("works", 100, 5, 1, 300)]
    if is_safe:
        judge_holders([old, said])
        judge_holders([[*old, says("over", 150, 5, 1)], [says("leads", 151, 6, 2, 400)]])
    else:
        with pytest.raises(SafetyViolation):
            judge_holders([old, said])


def test_a_body_that_is_over_frees_the_lease_also_after_a_loss_and_one_that_runs_on_does_not() -> None:
    old = [says("leads", 0, 5, 1, 200), says("over", 210, 5, 1)]
    for next_one in (1, 2):
        judge_holders(
            [[*old, says("leads", 211, 6, 1, 600)]] if next_one == 1 else [old, [says("leads", 211, 6, 2, 600)]]
        )
    late = [says("leads", 0, 5, 1, 200), says("over", 700, 5, 1)]
    judge_holders([late, [says("leads", 500, 6, 2, 900)]])  # its hold was over: what it does then is U1's
    for wrong in (
        [old, [says("leads", 209, 6, 2, 600)]],
        [late, [says("leads", 499, 6, 2, 900)]],
        [[*old, says("leads", 209, 6, 1, 600)]],
        [[old[0], says("leads", 211, 6, 1, 600)]],
    ):
        with pytest.raises(SafetyViolation):
            judge_holders(wrong)


def test_a_renewal_moves_the_claim_of_a_holder_whose_body_had_no_turn_since() -> None:
    renewed = [says("leads", 0, 5, 1, 200), {**says("renews", 100, 5, 1, 300), "hold_end": 600}]
    judge_holders([[*renewed, says("over", 250, 5, 1)], [says("leads", 251, 6, 2, 400)]])
    judge_holders([renewed, [says("leads", 600, 6, 2, 800)]])
    for wrong in (
        [[*renewed, says("over", 250, 5, 1)], [says("leads", 249, 6, 2, 400)]],
        [renewed, [says("leads", 599, 6, 2, 800)]],
        [[*renewed, says("over", 610, 5, 1)], [says("leads", 599, 6, 2, 800)]],
    ):
        with pytest.raises(SafetyViolation):
            judge_holders(wrong)


def test_whoever_is_killed_is_never_seen_as_one_that_could_go_on() -> None:
    """Not even before it had a processor to die on."""
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", BUSY], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert state_of(str(process.pid)) in ("R", "S")
            process.kill()
            assert state_of(str(process.pid)) in ("K", "Z")
        assert state_of(str(process.pid)) == ""
