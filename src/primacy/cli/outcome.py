"""Waiting until an order has had its outcome: who leads now, and whether its command runs.

The node of this machine is asked, as `primacy status` does. Time does not count while the command that was told to end
is ending: it may take minutes, and the leadership is kept meanwhile (G9).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from primacy.cli.call import SpanMs
from primacy.cli.local import Local
from primacy.control.acting import ACTS
from primacy.errors import Later, NotReached, Refused

EVERY_S = 0.05
ANSWERS_S = 2.0
AGAIN_S = 0.5
"""Between two tries: each one is an entry of the audit trail."""
WITHIN = "15s"
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def wait_options(command: F) -> F:
    """What all orders share that wait for their outcome."""
    for option in (
        click.option("--no-wait", is_flag=True, help="Do not wait for the outcome."),
        click.option(
            "--within",
            "within_ms",
            default=WITHIN,
            type=SpanMs(),
            metavar="SPAN",
            help=f"Wait at most so long once the command has ended; default: {WITHIN}.",
        ),
    ):
        command = option(command)
    return command


def wait_for_leader(here: Local, before: dict[str, Any], within_ms: int, wanted: str = "") -> dict[str, Any]:
    """Until a node leads in a later term, and its work runs or waits for an operator. Raises `Refused` with the reason
    if that is not the node that was wanted, or not in time."""
    patience = Patience(within_ms)
    while True:
        state, rows = look(here)
        leader, row = leader_of(state, rows)
        later = leader and state["term"] > before["term"]
        if later and is_settled(row):
            if wanted and leader != wanted:
                raise Refused(f"node {leader} leads (term {state['term']}), not {wanted}: {why_not(rows.get(wanted))}")
            return state
        patience.spend(rows.get(before["leader"]), _late(state, leader if later else ""))


def wait_for_end(here: Local, node: str, within_ms: int) -> dict[str, Any]:
    """Until this node says that it neither leads nor runs anything; what it said before it was told counts for
    nothing, for it may have begun to lead since."""
    patience, told_s = Patience(within_ms), time.monotonic()
    while True:
        since_ms = (time.monotonic() - told_s) * 1_000
        state, rows = look(here)
        row = rows.get(node)
        if row is None or row["told_ms"] is None:
            return state  # it tells nothing here
        is_over = row["role"] != "leader" and not _acts(row)
        if is_over and row["told_ms"] <= since_ms:
            return state
        late = "has said nothing since" if is_over else "still leads"
        patience.spend(row, f"node {node} {late}; see: primacy status")


@contextlib.contextmanager
def goes_on(see: str) -> Iterator[None]:
    """What was asked for is not taken back because nobody waits for it any more: Ctrl-C, or the node asked is gone."""
    sentence = f"what was asked for goes on; see: {see}"
    try:
        yield
    except KeyboardInterrupt:
        click.echo(sentence, err=True)
        raise
    except NotReached as error:
        raise NotReached(f"{error}; {sentence}") from None


def when_taken(ask: Callable[[], T], within_ms: int) -> T:
    """Asks again while the answer is "not yet", for so long. Says once what it waits for."""
    ends, said = time.monotonic() + within_ms / 1_000, False
    while True:
        try:
            return ask()
        except Later as why:
            if time.monotonic() >= ends:
                raise
            if not said:
                click.echo(f"waits: {why}", err=True)
                said = True
        time.sleep(AGAIN_S)


def wait_for_answers(here: Local, state: dict[str, Any]) -> dict[str, Any]:
    """A first start asks all nodes anew: who has not answered is known a moment later."""
    ends = time.monotonic() + ANSWERS_S
    while "not heard yet" in (state["waits_for"] or "") and time.monotonic() < ends:
        time.sleep(EVERY_S)
        state = here.get("/v1/state")
    return state


class Patience:
    """How long a command waits, and what it says meanwhile, once."""

    def __init__(self, within_ms: int) -> None:
        self.within_ms = within_ms
        self._ends = time.monotonic() + within_ms / 1_000
        self._said = False

    def spend(self, old: dict[str, Any] | None, late: str) -> None:
        """A moment passes. Raises `Refused` after the last; none counts while the old command ends."""
        if old is not None and old["workload"] and old["workload"]["state"] == "stopping":
            self._ends = time.monotonic() + self.within_ms / 1_000
            if not self._said:
                click.echo(f"waits: the command on {old['node']} is ending", err=True)
                self._said = True
        elif time.monotonic() > self._ends:
            raise Refused(f"not within {self.within_ms} ms: {late}")
        time.sleep(EVERY_S)


def look(here: Local) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The state document, and what is known of each node."""
    whole = here.get("/v1/cluster")
    return here.get("/v1/state"), {row["node"]: row for row in whole["nodes"]}


def leader_of(state: dict[str, Any], rows: dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """Whom this node believes to lead, and what that node says of itself if it says that it leads."""
    leader = state["leader"] or ""
    row = rows.get(leader)
    if row is None or row["role"] is None:
        return leader, None  # on a lease without a list, and of Ghoti, nothing more is known here
    return (leader, row) if row["role"] == "leader" and row["term"] >= state["term"] else ("", row)


def is_settled(row: dict[str, Any] | None) -> bool:
    """It runs, or has nothing to run, or waits for a person."""
    if row is None or row["workload"] is None or row["workload"]["kind"] == "none":
        return True
    return row["workload"]["state"] == "running" or "primacy approve" in (row["waits_for"] or "")


def why_not(row: dict[str, Any] | None) -> str:
    """Why a node does not lead that was asked to, as far as it is known here."""
    if row is None or row["role"] is None:
        return "it is not heard; see: primacy status"
    if row["role"] == "paused":
        return "it is paused, or stopping; to end a pause: primacy resume"
    if row["health"] not in (None, "ok"):
        return f"it is not well: {row['health']}"
    if row["waits_for"]:
        return f"it waits for {row['waits_for']}"
    return "it did not get the votes in time; primacy why says what happened"


def sentence(state: dict[str, Any], row: dict[str, Any] | None = None) -> str:
    """The outcome."""
    waits = row["waits_for"] if row is not None and row["workload"]["state"] != "running" else None
    runs = f", and waits for {waits}" if waits else ""
    if not waits and row is not None and row["workload"]["kind"] == "process":
        runs = ", and runs the command"
    return f"node {state['leader']} leads (term {state['term']}){runs}"


def _late(state: dict[str, Any], leader: str) -> str:
    if leader:
        return f"node {leader} leads (term {state['term']}), and its command does not run; see: primacy status"
    return "nobody leads; primacy status says what the nodes wait for"


def _acts(row: dict[str, Any]) -> bool:
    return bool(row["workload"]) and row["workload"]["state"] in ACTS
