"""What people are told of a lease node: its role, whom it believes to hold, and what it waits for, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primacy.election.lease.state import TICK_MS, Sighting
from primacy.election.model import UNLISTED, Role, View, replaced_sentence
from primacy.election.store import FAILSAFE, Renew, Row, Take, heir_of, node_of

if TYPE_CHECKING:
    from primacy.election.lease.strategy import LeaseStrategy

ADDRESS = "; `primacy check` shows its address"
"""The next command, where there is a file to be checked."""


def view_of(node: LeaseStrategy, now_ms: int) -> View:
    """A look that changes nothing."""
    lead = node._lead
    row = None if node._sight is None else node._sight.row
    leader = believed(node, now_ms)
    return View(
        role=role_of(node),
        leader=leader,
        term=lead.token if lead is not None else 0 if row is None else row.token,
        voted_for="",
        token=lead.token if lead is not None else 0,
        hold_left_ms=0 if lead is None else max(0, lead.proved_ms + node.timing.hold_ms - now_ms),
        alive=tuple(sorted({node.seat.node, leader} - {""})),
        waits_for=waits_for(node, now_ms),
    )


def role_of(node: LeaseStrategy) -> Role:
    """One of the closed words."""
    if node._lead is not None:
        return Role.LEADER
    if node._changed.others:
        return Role.RECOVERING
    if not node._stands:
        return Role.OBSERVER
    if node._paused:
        return Role.PAUSED
    if node._pending is not None and isinstance(node._pending.request, Take | Renew):
        return Role.CANDIDATE
    return Role.FOLLOWER if node._ever_saw else Role.STARTING


def believed(node: LeaseStrategy, now_ms: int | None) -> str:
    """The row's holder, as long as its hold may last (None: without regard to that)."""
    if node._lead is not None:
        return node.seat.node
    sight = node._sight
    if sight is None or sight.row is None or sight.row.released or sight.row.holder == node.holder:
        return ""
    return node_of(sight.row.holder) if now_ms is None or now_ms < node._ripe_ms(sight) else ""


def waits_for(node: LeaseStrategy, now_ms: int) -> str:
    """Why this node does not lead, or why its leadership does not work: what belongs behind "waits for"."""
    lead = node._lead
    if lead is not None and lead.ending is not None:
        return "its work to end, then it releases the lease"
    if lead is not None and node._failures and not node._others:
        left_ms = max(0, lead.proved_ms + node.timing.term_at_ms - now_ms)
        return f"the store to answer ({node._failure}); unless it does, the work is told to end in {left_ms:,} ms"
    if lead is not None and lead.kept:
        return f"the store to answer ({node._failure}); {', '.join(node._others)} agree that it goes on meanwhile"
    if lead is not None:
        return "" if lead.running else lead.deferred or "its work to start"
    if node._changed.others:
        return waits_changed(node, now_ms)
    if node._work:
        return f"its own work of token {node._work} to end; `primacy status` shows it"
    if node._lock_held:
        return "the run lock: work of an earlier start is still ending here; `primacy status` shows it"
    if node._paused:
        return node._pause_ends_by or "an operator: primacy resume"
    if node._ill:
        return f"its health probes to pass ({node._ill}); `primacy status` shows them"
    if not node._stands:
        return ""
    if node._unsaved:
        return f"its disk: the largest token cannot be saved ({node._unsaved}); it tries again at each look"
    if not node._hold_admitted():
        return f"an operator: {node._too_long()}"
    if node._final:
        return f"somebody to change what the store refuses ({node._final})"
    if node._failures:
        return f"the store to answer ({node._failure}){ADDRESS}"
    return waits_for_row(node, now_ms)


def waits_changed(node: LeaseStrategy, now_ms: int) -> str:
    """Who has still to report the configuration that this node was started with (M1)."""
    changed = node._changed
    missing, over_ms, replaced_by = changed.missing(), changed.over_at_ms(), changed.replaced_by()
    if replaced_by:
        return replaced_sentence(replaced_by)
    if over_ms is not None:
        return f"{max(0, over_ms - now_ms)} ms, until any earlier holder's work is surely over"
    if not missing:
        return UNLISTED
    remedy = f"gone for good: primacy rejoin{''.join(f' --without {name}' for name in missing)}"
    if not node.options.speaks:
        remedy += "; it cannot ask them without cluster.manager.nodes and cluster.secret_file"
    return f"its new strategy or store to be reported by {', '.join(missing)} ({remedy})"


def waits_for_row(node: LeaseStrategy, now_ms: int) -> str:
    """What in the store it waits for."""
    sight = node._sight
    if sight is None:
        return "the first look at the store"
    row, left_ms = sight.row, max(0, node._ripe_ms(sight) - now_ms)
    if node._ours(sight) is not None:
        return "the store to prove its row"
    if not node._tokens_left(sight):
        return "an operator: the row's token leaves no higher one; choose another `election.name`"
    if row is None:
        return waits_for_names(node, now_ms, sight)
    if node._release_counts(sight, row) and now_ms >= node._trusted_at_ms():
        take_at_ms = node._take_at_ms()
        left_ms = 0 if take_at_ms is None else max(0, take_at_ms - now_ms)
        return f"{heir_of(row) or 'the others'} to take the released lease, at most {left_ms} ms" if left_ms else ""
    if not node._list_allows(row):
        name = node.options.name.removeprefix(FAILSAFE)
        return f"another list of nodes, which holds the lease; `primacy lease break {name}` forces it"
    if row.is_placeholder or row.released:
        return f"the longest hold of this table to run out, at most {left_ms} ms: {doubt(node, sight)}"
    why = f": {doubt(node, sight)}" if node._ripe_ms(sight) > sight.since_ms + own_wait_ms(node, row) else ""
    return f"node {node_of(row.holder)}'s hold to run out, at most {left_ms} ms{why}"


def own_wait_ms(node: LeaseStrategy, row: Row) -> int:
    """What it would wait for this holder if nothing were in doubt."""
    return max(node.timing.wait_ms, node._row_wait_ms(row)) + TICK_MS


def waits_for_names(node: LeaseStrategy, now_ms: int, sight: Sighting) -> str:
    """A name without a row: free at once, or as soon as the table is settled (L9)."""
    at_ms = node._spared_at_ms(sight)
    if at_ms is None:
        at_ms = node._settle_at_ms() or now_ms + node._settle_after_ms()
    left_ms = at_ms - now_ms
    return f"names to be free, in at most {left_ms} ms: {doubt(node, sight)}" if left_ms > 0 else ""


def doubt(node: LeaseStrategy, sight: Sighting) -> str:
    """Why what stands there, or does not stand there, is not believed at once."""
    row, genesis = sight.row, sight.genesis
    if node._fallen_until_ms() > sight.since_ms:
        return "the store went back to earlier data"
    if node._watched_from_ms() > sight.since_ms:
        if node.options.watched:
            return "every connection to the store is watched for so long (`store.trust: watched`)"
        return "the store cannot tell whether it was restored, so every connection is watched for so long"
    restored = genesis is not None and not genesis.vouches and genesis.settled
    if restored or (row is not None and not row.vouches):
        return "the table was restored, or changed by hand"
    token = row.token if row is not None else genesis.floor if genesis is not None else 0
    if not node._not_below_known(token):
        return "this machine knows a newer token than the store has"
    if row is not None and row.is_placeholder and node._written_here(sight, row):
        return "its row was made to be watched, as it was not certain who held this name before"
    if genesis is not None and genesis.settled == sight.server:
        return "rows were added to the table, or removed from it, by hand"
    return "the server of the store (re)started, or its table is new"
