"""How a raft node stands, for people: its view, and what it waits for, in one phrase with the next command in it.

Nothing here changes or decides anything. docs/operate.md explains every sentence.
"""

from __future__ import annotations

from primacy.election.inputs import Init
from primacy.election.model import DOUBLED, UNLISTED, UNLISTED_STOPPED, Register, Role, View, replaced_sentence
from primacy.election.raft.memory import TWO_BOOTS
from primacy.election.raft.register import is_voter
from primacy.election.raft.roles import Leader
from primacy.election.raft.state import RaftState


def hold_left_ms(state: RaftState, now_ms: int) -> int:
    leader = state.leader_state
    if leader is None or leader.progress.proved == 0:
        return 0
    return max(0, leader.progress.hold_from_ms + state.timing.hold_ms - now_ms)


def view_of(state: RaftState, now_ms: int) -> View:
    leader, heard = state.leader_state, state.heard_at_ms
    recent = tuple(n for n in sorted(heard) if now_ms - heard[n] <= state.timing.hold_ms)
    return View(
        role=state.role,
        leader=state.leader,
        term=state.term,
        voted_for=state.ballot.voted_for if state.ballot is not None else "",
        token=leader.token if leader is not None else 0,
        hold_left_ms=hold_left_ms(state, now_ms),
        alive=tuple(sorted((state.node, *recent))),
        waits_for=waits_for(state, now_ms),
    )


def waits_for(state: RaftState, now_ms: int) -> str:
    """What this node waits for; empty if nothing is amiss."""
    disk, recovery, leader = state.disk, state.recovery, state.leader_state
    to_save = state.ballot is not None or recovery.mark_due or disk.void_due or not recovery.reports
    if disk.fault and to_save and leader is None:
        return f"its disk to take the ballot ({disk.fault})"
    if state.muted:
        return waits_muted(state, now_ms)
    if state.register is not None and not state.register.named(state.node):
        return waits_outside(state.node, state.register)
    if leader is not None:
        return waits_leading(state, leader, now_ms)
    if state.work_unconfirmed():
        return "the run lock: work of an earlier term on this machine is not confirmed gone"
    if state.paused:
        return state.pause_ends_by or "an operator: primacy resume"
    if not state.healthy:
        return f"its health to return: {state.ill}"
    if state.leader:
        return ""
    left_ms = state.promise_left(now_ms)
    if left_ms:
        return f"{left_ms} ms of silence to pass before it may vote"
    if state.role is Role.CANDIDATE:
        since_ms, elsewhere = now_ms - state.timing.promise_ms, state.peers.elsewhere
        others = ", ".join(name for name in sorted(elsewhere) if elsewhere[name] > since_ms)
        differs = f"; under another list or timing: {others} (give all nodes the same file)" if others else ""
        return f"votes of a majority: {enough(state)}{differs}"
    return "a leader to be elected" if state.quorum.votes else ""


def waits_outside(node: str, register: Register) -> str:
    """What a node does that finds itself outside of the newest register (R10)."""
    return (
        f"nothing: it is not among the members (version {register.id.version}); primacy members add {node}, or stop it"
    )


def enough(state: RaftState) -> str:
    """How many voters are needed; of each half, while the members change (R2)."""
    quorum = state.quorum
    if len(quorum.halves) < 2:
        return f"{quorum.majority} of {len(quorum.voters)} voting nodes"
    return " and ".join(f"{len(half) // 2 + 1} of {', '.join(half)}" for half in quorum.halves)


def waits_leading(state: RaftState, leader: Leader, now_ms: int) -> str:
    if leader.closed:
        return "its work to end, then it releases the role"
    if leader.ordered:
        return "" if leader.ran else leader.deferred or "its work to start"
    if state.work_unconfirmed():
        return "the run lock: work of an earlier term on this machine is not confirmed gone"
    if now_ms < leader.start_at_ms:
        return f"{leader.start_at_ms - now_ms} ms, until any earlier holder's work is surely over"
    return "the first heartbeat that a majority acks"


def waits_forgotten(state: RaftState) -> str:
    """What a node without memory waits for, by the members that it was told of (R8, R9); empty if it was told none that
    were ever used."""
    recovery, node = state.recovery, state.node
    newest = recovery.newest()
    if newest is None or recovery.is_never_used():
        return ""
    if recovery.is_lone_file(newest):
        return "an operator: its file names nobody but itself; write the other nodes into it, and start it again"
    if not newest.named(node):
        return _operator_adds(state, f" (version {newest.id.version})")
    if not is_voter(newest, node):
        return "the leader to admit it"
    if recovery.is_alone(newest):
        return "an operator: nobody else knows what it voted for, as it voted alone"
    missing = recovery.missing(None)
    if all(name in recovery.reports for name in missing) and (starts := recovery.starts_in_use()):
        return waits_two_starts(starts)
    if force := _too_few_remember(state, newest):
        return force
    gone = f" (gone for good: primacy members remove {missing[0]})" if missing else ""
    if not all(newest.named(name) for name in missing):  # out already, by what others have told since
        gone = f" (gone for good: primacy members renew {node}, on another node)"
    return f"answers from memory, for its own is lost, by {', '.join(missing) or 'nobody'}{gone}"


def _too_few_remember(state: RaftState, newest: Register) -> str:
    """All voters have answered, and those that remember cannot elect anybody: only the last resort helps (R14)."""
    recovery = state.recovery
    voters = sorted({name for half in newest.halves for name in half})
    remember = [name for name in recovery.remembering() if name in voters]
    enough_left = all(2 * sum(name in remember for name in half) > len(half) for half in newest.halves)
    if enough_left or not all(name in recovery.reports for name in voters if name != state.node):
        return ""
    without = "".join(f" --without {name}" for name in voters if name not in remember)
    return (
        f"an operator: too few remember to elect a leader; on {recovery.knows_newest(newest)}: primacy members force"
        f"{without}, then primacy members add for each"
    )


def waits_muted(state: RaftState, now_ms: int) -> str:
    recovery = state.recovery
    if state.muted == TWO_BOOTS:
        return f"{DOUBLED}, or this disk is a copy; stop one, restart the other"
    if state.ballot is None:
        told = waits_forgotten(state)
        if told:
            return told
    missing = recovery.missing(state.ballot)
    names = ", ".join(missing) or "nobody"
    gone = "".join(f" --without {name}" for name in missing)
    remedy = f" (gone for good: primacy rejoin{gone})" if gone else ""
    if state.ballot is None and (state.options.joins or state.seat.membership.get(state.node) is None):
        return _operator_adds(state) if recovery.reports else waits_unanswered(state, now_ms)
    if state.muted == "other-list" and is_first(state):
        return waits_first(state, now_ms)
    if state.muted == "other-list":
        return waits_changed(state, names, remedy)
    if any(report.memory and report.used for report in recovery.reports.values()):
        if not missing and (starts := recovery.starts_in_use()):
            return waits_two_starts(starts)
        return f"answers from memory, for its own is lost, by {names}{remedy}"
    return waits_first(state, now_ms)


def waits_two_starts(starts: tuple[tuple[str, ...], ...]) -> str:
    """Of two first starts that are in use, the nodes of one must give it up (M3)."""
    kept, *others = starts
    given_up = ", ".join(name for names in others for name in names)
    used = f"two first starts are in use, by {', '.join(kept)} and by {given_up}"
    return f"an operator: {used}; on {given_up}: stop the agent, remove its file ballot, start it again"


def is_first(state: RaftState) -> bool:
    """Its ballot was never used, nor was any that it heard of, so that a first start may still replace it (M3)."""
    if state.ballot is None or not state.recovery.is_first(state.ballot):
        return False
    return not any(report.memory and report.used for report in state.recovery.reports.values())


def waits_first(state: RaftState, now_ms: int) -> str:
    """What the first start of the cluster waits for."""
    recovery = state.recovery
    init = recovery.init
    refused = recovery.first_refused(init or Init(0))
    if refused:
        return f"the first start of the cluster; {refused}: give all nodes the same file"
    if strangers := state.first.speaking_since(now_ms - state.timing.promise_ms):
        return waits_stranger(strangers[0])
    left_ms = state.read_at_ms + state.timing.promise_ms - now_ms
    if left_ms > 0 and (init is not None or state.options.auto) and not recovery.is_by_itself:
        return f"the first start of the cluster; for {left_ms} ms more it listens whether the cluster runs already"
    missing = recovery.first_missing(init or Init(0))
    earlier = "".join(f" --without {name}" for name in missing if name in recovery.behind)
    if init is None and not earlier and recovery.is_unlisted:
        return f"the first start of the cluster: primacy init, once, on one node, when {UNLISTED_STOPPED}"
    if init is None and not earlier and (recovery.is_tainted or not state.options.auto):
        return "the first start of the cluster: primacy init, once, on one node"
    remedy = f" (of an earlier list; gone for good: primacy init{earlier})" if earlier else ""
    heard = f"not heard yet: {', '.join(missing)}{remedy}" if missing else "all nodes were heard"
    runs = f" (if it runs already, there: {_add(state)})" if missing else ""
    return f"the first start of the cluster; {heard}{runs}"


def _operator_adds(state: RaftState, members: str = "") -> str:
    return f"an operator to add it to the members{members}, on one of their nodes: {_add(state)}"


def waits_stranger(node: str) -> str:
    """Somebody outside of the list speaks for the cluster that is to begin (M3)."""
    return (
        f"the first start of the cluster; node {node} speaks for it already, and is not in the file's list: write it "
        f"into all files, or stop it (it is of no use any more: primacy init --without {node})"
    )


def waits_unanswered(state: RaftState, now_ms: int) -> str:
    """A node that begins nothing, and that nobody has answered: for a moment that is as it should be."""
    asked = [name for name in state.seat.membership.ids if name != state.node]
    if now_ms - state.read_at_ms < state.timing.promise_ms:
        return f"an answer of {', '.join(asked)}"
    up = f"{'are' if len(asked) > 1 else 'is'} {', '.join(asked)} up"
    return (
        f"{_operator_adds(state)}; nobody answers: {up}, with the same secret, and is {state.node} a name of its own?"
    )


def waits_changed(state: RaftState, names: str, remedy: str) -> str:
    """Who has still to report the configuration that this node was started with (M1)."""
    ballot = state.ballot
    assert ballot is not None
    replaced_by = state.recovery.replaced_by()
    if replaced_by:
        return replaced_sentence(replaced_by)
    if not state.recovery.leases:
        return f"its new times to be reported by {names}{remedy}"
    if state.recovery.missing(ballot) or not state.recovery.is_unlisted:
        return f"its new strategy to be reported by {names}{remedy}"
    return UNLISTED


def _add(state: RaftState) -> str:
    """The command that takes this node in."""
    mine = state.seat.membership.get(state.node)
    address = mine.address if mine is not None else ""
    return f"primacy members add {state.node} --addr {address or 'HOST:PORT'}"
