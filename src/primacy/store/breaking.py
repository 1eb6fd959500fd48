"""`lease break`: takes a lease away from whoever has it, in an order that keeps the promise.

The row is taken without waiting, but nobody works under it: from then on the old holder's renewals fail, and its work
is dead at the end of its hold at the latest. Only when that much time has passed *after* the take was answered,
stretched by the clocks' error, is the row released, and the next node takes it at once. Whoever cannot wait may say so,
and then answers for two workers at a time.
"""

from __future__ import annotations

from primacy.election.model import TOKEN_MAX
from primacy.election.store import IDLE, Look, ReleaseRow, Row, StoreAnswer, Take
from primacy.errors import Refused
from primacy.store.port import LeaseStore

HOLDER = "break"


def evict(store: LeaseStore, seen: StoreAnswer, name: str, unique: str, wall_ms: int, wait_ms: int) -> Row:
    """Takes the row that was seen. Its new holder never works."""
    row = seen.row
    if row is None:
        raise Refused(f"there is no lease {name!r} here: nothing was done")
    token = max(row.token + 1, min(wall_ms, TOKEN_MAX - 1))
    if token > TOKEN_MAX:
        raise Refused(f"the token of {name!r} leaves no higher one; use another name")
    new = Row(f"{HOLDER}#{unique}", token, row.seq + 1, row.hold_ms, max(row.wait_ms, wait_ms), False, row.members)
    (answer,) = store.take([Take(name, row.token, row.seq, seen.server, new, row.members)])
    if not answer.done or answer.row is None:
        raise Refused(f"the lease {name!r} was renewed in this moment; nothing was done, try again")
    return answer.row


def let_go(store: LeaseStore, name: str, row: Row) -> bool:
    """Releases what `evict` took. False: somebody has it already, which is what was wanted.

    Nothing ran under it, and nobody has seen the old work end: whoever has a `fence_command` runs it (G8).
    """
    (answer,) = store.release([ReleaseRow(name, row.holder, row.token, row.seq, IDLE)])
    return answer.done


def seen(store: LeaseStore, name: str) -> StoreAnswer:
    (answer,) = store.look([Look(name)])
    return answer
