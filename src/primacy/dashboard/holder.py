"""Where the command runs, in one sentence and one colour. Pure.

Green is said of one case only: somebody acts, alone, and is heard. What is not known is grey. Nobody, with a majority
that can elect somebody, is yellow; nobody without one, two at once and a command that does not end are red.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from primacy.control.acting import Acting
from primacy.dashboard.islands import Island, told
from primacy.dashboard.known import Known, Model
from primacy.dashboard.quorum import Quorum
from primacy.dashboard.rows import Said
from primacy.dashboard.standing import DOWN, Seen, hold_left

Headline = tuple[str, str, str]
"""State, level, sentence."""


def job(
    known: Known,
    seen: Mapping[str, Seen],
    there: Mapping[str, str],
    shown: Mapping[str, Acting],
    votes: Quorum,
    parts: Sequence[Island],
) -> Model:
    """Is the command running, where, since when."""
    acting = [each.said for name, each in seen.items() if shown[name] is Acting.ACTS]
    lost = [each.said for name, each in seen.items() if shown[name] is Acting.UNKNOWN]
    leading = [each.said for name, each in seen.items() if there[name] == "here" and each.said.role == "leader"]
    holder = _newest(acting) or _newest(leading) or _newest(lost)
    state, level, text = _headline(known, seen, there, shown, votes, parts, holder)
    found: Model = {"state": state, "level": level, "text": text, "node": None}
    if holder is not None and state != "islands":  # of several the values of one would mislead
        acts = shown[holder.node]
        found.update(
            node=holder.node,
            acts=str(acts),
            since_unix_ms=holder.since_unix_ms if acts is not Acting.NO else 0,
            pid=holder.pid,
            containment=holder.containment,
            kind=holder.workload_kind,
            token=holder.token,
            term=holder.term,
            hold_left_ms=hold_left(seen[holder.node]),
        )
    return found


def _newest(rows: Sequence[Said]) -> Said | None:
    return max(rows, key=lambda said: (said.term, said.since_unix_ms), default=None)


def _headline(
    known: Known,
    seen: Mapping[str, Seen],
    there: Mapping[str, str],
    shown: Mapping[str, Acting],
    votes: Quorum,
    parts: Sequence[Island],
    holder: Said | None,
) -> Headline:
    if known.overlapping and known.at_most_one:
        return "overlap", "bad", f"Two nodes claimed to run the command: {', '.join(known.overlapping)}"
    if parts:
        return "islands", "bad", told(parts)
    if len(acting := [name for name, acts in shown.items() if acts is Acting.ACTS]) > 1:
        what = "lead" if seen[acting[0]].said.workload_kind == "none" else "run the command"
        return "overlap", "bad", f"{' and '.join(acting)} {what} at the same time"
    if holder is not None and shown[holder.node] is Acting.ACTS:
        return _acts(holder)
    if seen and all(where in DOWN for where in there.values()):
        return "all-stopped", "bad", f"{_all_down(there)}: nobody runs the command"
    if holder is not None and shown[holder.node] is Acting.UNKNOWN:
        return _lost(seen[holder.node], there[holder.node])
    if not any(where == "here" for where in there.values()):
        return "unknown", "unknown", "No node answers: whether the command runs is not known"
    if holder is not None:
        return _leads(holder)
    return _nobody(seen, there, votes)


def _acts(holder: Said) -> Headline:
    if holder.workload_kind == "none":
        return "leading", "ok", f"{holder.node} leads"
    words = {"running": "Running on", "starting": "Starting on", "stopping": "Stopping on"}
    if holder.workload == "stuck":
        return "stuck", "bad", f"The command on {holder.node} was killed and does not end"
    return holder.workload, "ok" if holder.workload == "running" else "warn", f"{words[holder.workload]} {holder.node}"


def _lost(seen: Seen, there: str) -> Headline:
    """It said that it acts, and says nothing more."""
    node = seen.said.node
    why = {
        "frozen": f"{node} is frozen",
        "killed": f"the agent of {node} was killed",
        "ended": f"the agent of {node} ended",
        "starting": f"{node} starts again",
    }.get(there, f"{node} is not heard")
    return "unknown", "unknown", f"Not known whether the command runs: {why}"


def _leads(holder: Said) -> Headline:
    if holder.workload_kind == "none":
        return "leading", "ok", f"{holder.node} leads"
    wait = f": it waits for {holder.waits_for}" if holder.waits_for else ""
    return "waiting", "warn", f"{holder.node} leads, and does not run the command yet{wait}"


def _nobody(seen: Mapping[str, Seen], there: Mapping[str, str], votes: Quorum) -> Headline:
    if not votes.has_majority:
        elsewhere = "" if votes.sure or votes.up >= votes.needed else "; the others may run it where they are not heard"
        return "outage", "bad", f"Nobody runs the command: {votes.text}{elsewhere}"
    campaign = [name for name, each in seen.items() if there[name] == "here" and each.said.role == "candidate"]
    if campaign:
        words = "campaigns" if len(campaign) == 1 else "campaign"
        return "electing", "warn", f"Nobody runs the command: {', '.join(campaign)} {words}"
    return "nobody", "warn", "Nobody runs the command: no node leads yet"


def _all_down(there: Mapping[str, str]) -> str:
    many = len(there)
    words = {"stopped": "stopped", "killed": "killed", "ended": "gone", "restarting": "restarting"}
    kinds = {words[where] for where in there.values()}
    what = kinds.pop() if len(kinds) == 1 else "down"
    return f"All {many} nodes are {what}" if many > 1 else f"The only node is {what}"
