"""`lease break`: takes a lease away from its holder, in an order that keeps the promise (L7).

The row is taken without waiting, but nobody works under it: from then on the old holder's renewals fail, and its work
is dead at the end of its hold at the latest. Only when that much time has passed *after* the take was answered,
stretched by the clocks' error and not less than the table's longest wait, is the row released, and the next node takes
it at once. With `--now` nobody waits, and the operator answers for two that work at a time.

A failsafe row is taken and never released: its holder may live on by its peers alone, for as long as all of them ack.
A listed node that reaches the store sees the higher token, acks no more, and takes the row when it has watched it. Only
an operator who says that all listed nodes are stopped may have it released.
"""

from __future__ import annotations

from primacy.election.model import TOKEN_MAX
from primacy.election.store import IDLE, WAIT_MAX_MS, Look, ReleaseRow, Row, StoreAnswer, Take, list_hash
from primacy.errors import Refused
from primacy.settings.timing import DRIFT_PPM, PPM
from primacy.store.port import LeaseStore

HOLDER = "break"


def evict(store: LeaseStore, seen: StoreAnswer, name: str, unique: str, wall_ms: int, wait_ms: int) -> Row:
    """Takes the row that was seen. Its new holder never works.

    `wait_ms`: the old hold, stretched by the clocks' error. The new row's wait is what must pass before a release.
    """
    row = seen.row
    if row is None:
        raise Refused(f"there is no lease {name!r} here: nothing was done")
    floor = 0 if seen.genesis is None else seen.genesis.floor
    token = max(row.token + 1, floor + 1, min(wall_ms, TOKEN_MAX - 1), min(seen.wall_ms, TOKEN_MAX - 1))
    if token > TOKEN_MAX:
        raise Refused(f"the token of {name!r} leaves no higher one; use another name")
    longest_ms = wait_for(seen, row, wait_ms)
    # Who watches this row stretches its hold by the error of its own clock, so the hold is what asks for this wait.
    hold_ms = max(row.hold_ms, longest_ms * (PPM - DRIFT_PPM) // (PPM + DRIFT_PPM))
    new = Row(f"{HOLDER}#{unique}", token, row.seq + 1, hold_ms, longest_ms, False, row.members)
    (answer,) = store.take([Take(name, row, seen.server, new)])
    if not answer.done or answer.row is None:
        raise Refused(f"the lease {name!r} was renewed in this moment; nothing was done, try again")
    return answer.row


def wait_for(seen: StoreAnswer, row: Row, wait_ms: int) -> int:
    """How long after the take was answered its old holder may still work, whatever the store forgot (L3, L7)."""
    wait_max_ms = WAIT_MAX_MS if seen.genesis is None else seen.genesis.wait_max_ms
    return max(row.wait_ms, wait_ms, wait_max_ms)


def is_whole_list(row: Row, nodes: tuple[str, ...]) -> bool:
    """Whether these are all nodes of the failsafe list whose hash stands in the row."""
    return bool(nodes) and list_hash(nodes) == row.members


def let_go(store: LeaseStore, name: str, row: Row) -> bool:
    """Releases what `evict` took. False: it was not to be released, as somebody has it or another server answers.

    Nothing ran under it, and nobody has seen the old work end: who has a `fence_command` runs it (G8).
    """
    (answer,) = store.release([ReleaseRow(name, row.holder, row.token, row.seq, IDLE)])
    return answer.done


def seen(store: LeaseStore, name: str) -> StoreAnswer:
    (answer,) = store.look([Look(name)])
    return answer
