"""Which states of a machine are one: what can decide nothing any more is struck out before a machine is numbered.

`snapshot.UNSEEN` leaves out fields that never decide anything. Here stand values that decided something once and cannot
again, because of the moment or because of how the small world works. `settle` puts a value in their place that is the
same for all such machines. The argument for each stands beside it. What all have in common: (1) from the settled
machine every input gives the same effects as from the original, but for what is only recorded, and (2) the two machines
after it are settled alike. So, input by input, no history tells them apart, and to search one is to search both.

`tests/simulation/test_exhaustive.py` looks at both: it compares machines that are merged, with every input that the
search knows, and it compares what a search sees with and without settling.
"""

from __future__ import annotations

from primacy.election.model import Strategy
from primacy.election.raft.state import RaftState
from primacy.election.raft.strategy import RaftStrategy


def settle(machine: Strategy, now_ms: int) -> None:
    """Strikes out, in place, what can decide nothing from `now_ms` on. Only raft has any."""
    if not isinstance(machine, RaftStrategy):
        return
    state = machine.state
    _save_arrived(state)
    # E1: a step forgets first of all what was refused a heartbeat ago or earlier, and only steps look at refusals. Time
    # does not go back, so it may as well be forgotten as soon as it is that old.
    state.forget_refusals(now_ms)
    if not state.options.auto and not state.file_ask_at_ms:
        # It says since when a first start by itself may be tried, and until when the nodes of the file are asked (R12):
        # nobody asks for it where there is neither.
        state.read_at_ms = 0
    promise = state.promise
    if promise.acked_of[0] < state.term:
        # Q4: a heartbeat is compared with it in its own term only, and a term that was left does not come back.
        promise.acked_of, promise.acked_number = (0, 0), 0


def will_settle(machine: Strategy) -> bool:
    """Time alone will strike something out of it."""
    return isinstance(machine, RaftStrategy) and bool(machine.state.peers.refused)


def _save_arrived(state: RaftState) -> None:
    """The small world says that a save failed within the very step that asked for it, and never later (`_step`).

    A machine that is numbered was not told so. The next step would find out first of all that all is saved; what it
    would do then can be done now. `starts` is asked for only when a save fails, after the step has written it.
    """
    disk = state.disk
    if disk.saving or disk.marking:
        state.saved()
    disk.saving = disk.starts = False
