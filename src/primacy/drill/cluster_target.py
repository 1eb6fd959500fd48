"""A real cluster as the target of a drill: requests of an operator, through the control API of one of its agents.

Nothing is done here that an operator could not do with `primacy step-down`, `transfer` and `pause`. What the agents
have no request for is not offered (docs/drills.md). A pause would outlast this process: a second one, which does
nothing else, ends it if this one dies (mender.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from primacy.control.acting import ACTS
from primacy.control.client import FoundNode, ask
from primacy.drill.catalogue import Scenario
from primacy.drill.mender import Mender
from primacy.drill.record import Record, Standing
from primacy.drill.target import DRILL, Span, Subject
from primacy.errors import NotReached, PrimacyError, Refused

ASK_S = 10.0
HEARD_MS = 3_000
"""Who was heard within this time is up: a node says something of itself every second."""
VOTES = ("voter", "witness")
RUNNING, GONE = "running", "gone"


class ClusterTarget:
    """One election of one cluster, seen and asked through one agent."""

    def __init__(
        self, find: Callable[[], FoundNode | None], subject: Subject, *, one_machine: bool, reader: str
    ) -> None:
        """`find`: where the agent listens now."""
        self.find, self.subject = find, subject
        self.one_machine, self.reader = one_machine, "" if one_machine else reader
        self._mender: Mender | None = None
        self.disk = ""
        self._asked_for = ""
        """To whom the role was to be handed over last."""

    def _ask(self, path: str, order: dict[str, Any] | None = None) -> Any:
        found = self.find()
        if found is None:
            raise NotReached("the agent of this machine does not run any more")
        return ask(found, path, order, within_s=ASK_S, by=DRILL)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, record: Record) -> Standing:
        now_ms = time.time_ns() // 1_000_000
        rows = {row["node"]: row for row in self._ask("/v1/cluster")["nodes"]}
        state = self._ask("/v1/state")
        record.add_events(self._ask(f"/v1/events?after={record.newest_event}"))
        for row in rows.values():
            record.add_state(row, now_ms - (row["told_ms"] or 0), self.subject.timing.hold_ms)
        record.names = tuple(rows)
        record.acting = {name: now_ms - (row["told_ms"] or 0) for name, row in rows.items() if row["acting"] == "acts"}
        voters = {name: row for name, row in rows.items() if row["kind"] in VOTES}
        up = tuple(name for name, row in voters.items() if row["heard_ms"] is not None and row["heard_ms"] <= HEARD_MS)
        holder = rows.get(state["leader"] or "")
        acts = holder is not None and holder["role"] == "leader" and _acts(holder) and bool(holder["token"])
        return Standing(
            leader=holder["node"] if holder is not None and acts else "",
            token=holder["token"] if holder is not None and acts else 0,
            up=up,
            voters=len(voters),
            names=tuple(rows),
            disturbed="" if acts else "nobody is known to lead and to run the command",
        )

    # --- faults -------------------------------------------------------------------------------------------------------

    def wants(self, scenario: Scenario, before: Standing) -> str:  # noqa: ARG002
        return self._asked_for if scenario.name == "transfer" else ""

    def refuses(self, scenario: Scenario, before: Standing) -> str:
        """Somebody else must be there who can take over, and a majority to elect it."""
        most = before.voters // 2 + 1 if self.subject.strategy == "raft" else 1
        if len(before.up) < most:
            return f"{len(before.up)} of {before.voters} nodes are heard, and {most} are needed"
        if scenario.name != "step-down" and not self._heir(before):
            return f"no other node than {before.leader} can take over"
        return ""

    def _heir(self, before: Standing) -> str:
        rows = {row["node"]: row for row in self._ask("/v1/cluster")["nodes"]}
        able = [
            name
            for name in before.up
            if name != before.leader and rows[name]["kind"] == "voter" and rows[name]["role"] == "follower"
        ]
        return able[0] if able else ""

    def strike(self, scenario: Scenario, before: Standing, for_ms: int) -> Span:
        from_ms = time.time_ns() // 1_000_000
        match scenario.name:
            case "step-down":
                self._ask("/v1/step-down", {})
            case "transfer":
                self._asked_for = self._heir(before)
                self._ask("/v1/transfer", {"to": self._asked_for})
            case "pause":
                found = self.find()
                if found is None:
                    raise NotReached("the agent of this machine does not run any more")
                self._mender = Mender(found, "/v1/resume", {"node": before.leader}, for_ms)
                self._ask("/v1/pause", {"node": before.leader})
            case _:
                raise AssertionError(f"no way to play {scenario.name} on a cluster")
        return Span(from_ms, time.time_ns() // 1_000_000)

    def mend(self, scenario: Scenario, before: Standing) -> Span:
        from_ms = time.time_ns() // 1_000_000
        if scenario.name == "pause":
            try:
                with contextlib.suppress(Refused):  # it is no longer paused
                    self._ask("/v1/resume", {"node": before.leader})
            except PrimacyError:
                if self._mender is not None:
                    self._mender.mend_now()  # it tries for longer than we do
                raise
            if self._mender is not None:
                self._mender.dismiss()
                self._mender = None
        return Span(from_ms, time.time_ns() // 1_000_000)


def _acts(row: dict[str, Any]) -> bool:
    return row["workload"] is not None and row["workload"]["state"] in ACTS and row["workload"]["state"] == RUNNING
