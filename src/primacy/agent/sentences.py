"""What the log says of the work, as sentences."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from primacy.control import Approve, Order, Remove
from primacy.control.members import difference
from primacy.election.inputs import CancelChange, ChangeMembers, ForceMembers, Init, Pause, Rejoin, Resume, StepDown
from primacy.election.model import Register
from primacy.node.log import Level
from primacy.supervise.vocabulary import Happened, Note


def note_sentence(note: Note) -> tuple[Level, str]:
    """How grave, and a sentence."""
    number, run = note.number, note.run
    match note.what:
        case Happened.RUNNING:
            return Level.INFO, f"the command runs: process {number}, run {run}"
        case Happened.NOT_STARTED:
            return Level.WARN, f"the command could not be started (run {run}): {note.detail}"
        case Happened.EXITED:
            return Level.INFO, f"the command ended {exit_sentence(number)} (run {run})"
        case Happened.RESTARTS:
            return Level.INFO, f"starts it again {f'in {number:,} ms' if number else 'at once'} (run {run})"
        case Happened.GAVE_UP:
            return Level.ERROR, f"gives up: the command ended {number} times in a row soon after its start"
        case Happened.DONE:
            return Level.INFO, "the command is done and is not started again"
        case Happened.STOPPING:
            return (
                Level.INFO,
                f"the command is told to end, and is killed if it lasts {max(0, number):,} ms more",
            )
        case Happened.GONE:
            return Level.INFO, f"nothing of the command is left (run {run})"
        case Happened.LOCKED:
            whose = f"process {number}" if number else "another process"
            return Level.WARN, f"cannot start the command: {whose} holds the run lock of this election"
        case Happened.LOCK_FREE:
            return Level.INFO, "the run lock is free"
        case Happened.GUARD_LOST:
            return Level.ERROR, f"lost the guard of run {run}: what it held dies with it"
        case Happened.STUCK:
            return Level.ERROR, f"process {number or '?'} was killed and does not end: the kernel keeps it (a disk?)"
        case Happened.AWAITS:
            return Level.WARN, f"waits for an approval before it starts: primacy approve {note.detail} --term {number}"
        case Happened.APPROVED:
            return Level.INFO, f"the start in term {number} was approved by {note.detail}"
        case Happened.FENCING:
            return Level.INFO, f"runs the fence command before the start, try {number}"
        case Happened.FENCED:
            return Level.INFO, "the fence command ended well: the start may follow"
        case Happened.FENCE_FAILED:
            return (
                Level.ERROR,
                f"the fence command failed: {note.detail}; again in {number:,} ms, nothing starts before",
            )


def request_sentence(node: str, given: Order, said_at: str = "", register: Register | None = None) -> str:
    """What an operator asked for, and at which other node, if that was so. `register`: the members before it."""
    who = "an operator"
    match given:
        case StepDown(successor, _):
            what = f"step down in favour of {successor}" if successor else "step down"
        case Pause():
            what = "pause"
        case Resume():
            what = "resume"
        case Remove(gone):
            what = f"remove {gone} from the list"
        case Approve(term, by):
            said = f"{by} approves a start of {node} in term {term}"
            return said + (f" (said at {said_at})" if said_at else "")
        case Init(_, without):
            what = "begin the cluster" + (f" without {', '.join(without)}" if without else "")
        case Rejoin(without, others_stopped):
            what = "rejoin" + (f" without {', '.join(without)}" if without else "")
            what += ", for all others of the lease of before are stopped" if others_stopped else ""
        case ChangeMembers(members, by):
            lines = difference(members, register) if register is not None else ()
            who, what = by or who, f"change the members: {'; '.join(lines)}" if lines else "change the members"
        case CancelChange(by):
            who, what = by or who, "give up the change of the members"
        case ForceMembers(without):
            what = f"go on without the members {', '.join(without)}, which are gone for good"
        case _:
            what = type(given).__name__
    return f"{node} is told by {who} to {what}" + (f" (said at {said_at})" if said_at else "")


def exit_sentence(code: int) -> str:
    """An exit code as a shell gives it, in words."""
    if code > 128:
        try:
            return f"by signal {signal.Signals(code - 128).name}"
        except ValueError:
            return f"by signal {code - 128}"
    return f"with code {code}"


def links_sentence(node: str, links: Mapping[str, str]) -> str:
    """Which of its links are cut by a lab, `in` being what it would hear; `primacy.timeline.fold` reads it."""
    words = {"both": "with", "in": "from", "out": "to"}
    cut = ", ".join(f"{words[way]} {name}" for name, way in links.items() if way != "none")
    return f"{node} has its links cut: {cut}" if cut else f"{node} has all its links again"
