"""A lab as the target of a drill: faults and looks through its API. Every fault has its end with the lab itself."""

from __future__ import annotations

import time
from typing import Any

from primacy.control.client import FoundNode, ask
from primacy.drill.catalogue import Promise, Scenario
from primacy.drill.record import Record, Standing
from primacy.drill.target import DRILL, Span, Subject
from primacy.errors import NotReached, Refused

ORDER_S = 60.0
"""A node that is stopped or started takes its time, on a busy machine more."""
ASK_S = 20.0
LAB = "lab"
LINKS = ("link", "one-way", "minority", "halves")
FROZEN = ("hang", "freeze")
STALL_PART = 0.5
"""Of what a holder may stand still: the lab ends a fault some milliseconds late."""


class LabTarget:
    """One lab."""

    one_machine = True
    reader = ""

    def __init__(self, found: FoundNode, subject: Subject) -> None:
        self.found, self.subject = found, subject
        self.disk = subject.where if subject.strategy == "lease" else ""
        self.chain: FoundNode | None = None

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, record: Record) -> Standing:
        now_ms = time.time_ns() // 1_000_000
        document = ask(self.found, "/v1/lab", within_s=ASK_S)
        record.add_events(ask(self.found, f"/v1/events?after={record.newest_event}", within_s=ASK_S))
        states = {row["node"]: row["state"] for row in document["nodes"] if row["state"] is not None}
        for state in states.values():
            record.add_state(state, now_ms, self.subject.timing.hold_ms)
        signer = self._read_chain(document["chain"], record)
        names = tuple(row["node"] for row in document["nodes"])
        leader = document["leader"] or ""
        token = states[leader]["token"] or 0 if leader in states else 0
        record.names = names
        record.acting = dict.fromkeys(document["acting"], now_ms)
        return Standing(
            leader=leader if token else "",
            token=token,
            up=tuple(name for name in names if name in states),
            voters=len(names),
            names=names,
            disturbed=_disturbed(document, states, leader, token if signer else 0, signer),
        )

    def _read_chain(self, chain: dict[str, Any] | None, record: Record) -> int:
        """The token of its signer; 0 if there is none."""
        if chain is None or "counters" not in chain:
            return 0
        if self.chain is None:
            host, _, port = chain["address"].rpartition(":")
            self.chain = FoundNode(host, int(port), "")
        record.add_signatures(ask(self.chain, f"/v1/signatures?after={record.newest_signature}", within_s=ASK_S))
        record.add_doubles(chain["counters"]["double_signatures"], chain["alerts"])
        return int(chain["signer"]["token"]) if chain["signer"] else 0

    # --- faults -------------------------------------------------------------------------------------------------------

    def wants(self, scenario: Scenario, before: Standing) -> str:  # noqa: ARG002
        return ""

    def refuses(self, scenario: Scenario, before: Standing) -> str:
        """Never beyond the majority by accident: a fault is played only if enough nodes are left."""
        up, count = len(before.up), before.voters
        most = count // 2 + 1 if self.subject.strategy == "raft" else 1
        if scenario.beyond_quorum:
            return "" if up == count else f"{up} of {count} nodes are up; it begins with all of them"
        taken = (max(1, (count - 1) // 2) if scenario.name == "minority" else 1) if scenario.takes_node else 0
        if up - taken < most:
            return f"{up} of {count} nodes are up, it takes {taken}, and {most} are needed"
        if scenario.name == "link" and count < 3:
            return "it needs three nodes: with two, one link is the majority"
        return ""

    def strike(self, scenario: Scenario, before: Standing, for_ms: int) -> Span:
        leader = before.leader
        others = [name for name in before.names if name != leader]
        timed = {"for_ms": for_ms}
        match scenario.name:
            case "stop" | "kill":
                return self._order(f"/{leader}/{scenario.name}", timed)
            case "power":
                return self._order(f"/{leader}/kill", {"whole": True, **timed})
            case "child":
                return self._order(f"/{leader}/kill-command", {})
            case "hang":
                return self._order(f"/{leader}/freeze", timed)
            case "freeze":
                return self._order(f"/{leader}/freeze", {"guard": True, **timed})
            case "stall":
                still_ms = max(1, int(self.subject.contract.tolerated_stall_ms * STALL_PART))
                return self._order(f"/{leader}/freeze", {"for_ms": still_ms})
            case "link":
                return self._order("/links", {"node": leader, "with": others[0], "cut": "both", **timed})
            case "one-way":
                spans = [
                    self._order("/links", {"node": leader, "with": other, "cut": "in", **timed}) for other in others
                ]
                return Span(spans[0].from_ms, spans[-1].done_ms)
            case "minority":
                return self._order("/partition", {"shape": "2/3", **timed})
            case "halves":
                return self._order("/partition", {"shape": "halves", **timed})
            case "store-away":
                return self._order("/store", {"away": True, **timed})
        raise AssertionError(f"no way to play {scenario.name} on a lab")

    def mend(self, scenario: Scenario, before: Standing) -> Span:
        """What the lab has ended itself meanwhile is refused, and over."""
        leader = before.leader
        if scenario.promise is Promise.STEADY and scenario.name != "link":
            return self._ended(f"the lab thaws node {leader}" if scenario.name == "stall" else "")
        path, body = f"/{leader}/start", {}
        if scenario.name in LINKS:
            path = "/heal"
        elif scenario.name in FROZEN:
            path = f"/{leader}/thaw"
        elif scenario.name == "store-away":
            path, body = "/store", {"away": False}
        try:
            return self._order(path, body)
        except Refused:
            return self._ended("")

    def _order(self, path: str, body: dict[str, Any]) -> Span:
        """As the lab's own event says: when it was begun, and how long it took."""
        before_ms = time.time_ns() // 1_000_000
        ask(self.found, f"/v1/lab{path}", body, within_s=ORDER_S, by=DRILL)
        for row in reversed(ask(self.found, "/v1/events?last=200", within_s=ASK_S)):
            if row["code"] == LAB and row["at_unix_ms"] >= before_ms - 1 and row["text"].endswith(DRILL):
                return Span(row["at_unix_ms"], row["at_unix_ms"] + row["value"])
        raise NotReached(f"the lab has no event of its own order {path}")

    def _ended(self, text: str) -> Span:
        """When the lab itself ended it; of a moment, now."""
        now_ms = time.time_ns() // 1_000_000
        rows = ask(self.found, "/v1/events?last=200", within_s=ASK_S) if text else []
        at_ms = next((row["at_unix_ms"] for row in reversed(rows) if row["text"].startswith(text)), now_ms)
        return Span(at_ms, at_ms)


def _disturbed(
    document: dict[str, Any], states: dict[str, dict[str, Any]], leader: str, token: int, signer: int
) -> str:
    """What a drill waits for before a fault: all nodes up, of one mind, links whole, and the command at work."""
    missing = [f"node {row['node']} is {row['process']}" for row in document["nodes"] if row["node"] not in states]
    if missing:
        return missing[0]
    if document["cuts"]:
        return "links are cut"
    if not leader:
        return "nobody runs the command"
    others = [f"node {name} follows {state['leader'] or 'nobody'}" for name, state in states.items()]
    wrong = [said for said, state in zip(others, states.values(), strict=True) if state["leader"] != leader]
    if wrong:
        return f"{wrong[0]}, and not {leader}"
    return "the command of the leader has not signed yet" if signer != token else ""
