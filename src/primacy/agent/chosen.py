"""The strategy that the settings name, with what it remembers and, on a lease, its store.

What only one strategy needs is loaded by its nodes only: a start is short, and an idle node small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from primacy.agent.assemble import holding_times, is_alone, lease_of, lease_record, raft_of, seat_of
from primacy.agent.state import claim
from primacy.agent.stored import OwnThreads, Stored, Threads, earlier_holders, seen_in_store
from primacy.control import Heard
from primacy.control.eventlog import EventLog
from primacy.election.lease.strategy import LeaseStrategy
from primacy.election.model import Ballot, Register, Seat
from primacy.election.raft.strategy import RaftStrategy
from primacy.election.remembered import Kept, for_lease, for_raft
from primacy.election.store import holder_id
from primacy.errors import Unsafe
from primacy.node.ballot import FileDurable, Memory
from primacy.node.clock import Clock
from primacy.node.driver import Again
from primacy.node.folder import Folder
from primacy.node.lock import RunLock
from primacy.node.log import Log
from primacy.settings import is_ranked
from primacy.settings.schema import Settings
from primacy.strategies import is_own

if TYPE_CHECKING:
    from primacy.agent.managed import RankedParts
    from primacy.election.own import Plugged
    from primacy.election.ranked.strategy import RankStrategy
    from primacy.membership.members import Entry

    AnyStrategy = RaftStrategy | LeaseStrategy | RankStrategy | Plugged

TOKENS = "tokens"
"""In the state folder, beside `ballot`: the largest token that a lease has shown."""


class Place(NamedTuple):
    """Where a node stands: its settings, its folder, and what an earlier start left there."""

    settings: Settings
    folder: Folder
    run_lock: RunLock
    seat: Seat
    remembered: tuple[Entry, ...]
    """Of bully and ring: the nodes that it knew."""
    events: EventLog
    voted: Memory
    """The ballot, as this start may use it."""
    seen: Memory
    """The tokens, likewise."""
    earlier: tuple[str, ...] = ()
    """On a lease: under which names earlier starts may stand in the row."""
    aligned: bool = False
    """Other elections of this process send heartbeats, too."""
    threads: Threads = OwnThreads()  # it has no state
    """Who asks the store, on a lease."""


class Capabilities(NamedTuple):
    """What one strategy can do or tell and others cannot: stated where it is chosen, so that nobody asks its class."""

    heard: Callable[[], Mapping[str, int]] | None
    """When each other node was heard in the election; None: its nodes look at a store, and hear nobody."""
    register: Callable[[], Register | None] = lambda: None
    """Its members, where they change while it runs; None: the file's are its members."""
    register_known: Callable[[], Register | None] = lambda: None
    """The same; without memory, the members that it was told of."""
    configs: Callable[[], tuple[str, str]] | None = None
    """The hash of the configuration that it shows, and the other one that it knows as its own, where that changes while
    it runs; None: that of its seat."""
    recovering: Callable[[], str] = lambda: ""
    """Why it may not speak; empty if it may."""
    awaits_word: Callable[[], bool] = lambda: False
    """An operator's word to the running node ends that it is recovering, if nobody is there to answer it."""
    again: Again | None = None
    """Its short way for a message like the last one."""
    is_settled: Callable[[], bool] = lambda: True
    """Nothing of this node is left that another one would have to wait for."""
    seen_in_store: Callable[[int, str], dict[str, Heard]] = lambda _, __: {}
    """What the store tells of other nodes at this moment, whose workload is of this kind."""


class Chosen(NamedTuple):
    """A strategy, what it can do beyond the others, and where its memory is kept."""

    strategy: AnyStrategy
    can: Capabilities
    durable: FileDurable
    stored: Stored | None = None
    """Of a lease."""
    ranked: RankedParts | None = None
    """The strategy again, if it is bully or ring, and what its nodes speak through."""


def seated(settings: Settings, folder: Folder) -> tuple[Seat, tuple[Entry, ...]]:
    """Which node this is, among whom; and the nodes that it knew, if the list grows by joining."""
    if not is_ranked(settings):
        return seat_of(settings), ()
    from primacy.agent.managed import ranked_seat, recalled

    remembered = recalled(settings, folder)
    return ranked_seat(settings, remembered), remembered


def take_place(
    settings: Settings, folder: Folder, log: Log, *, aligned: bool = False, threads: Threads | None = None
) -> Place:
    """Reads what an earlier start left, and writes what must be durable before this one says anything.

    It waits for the disk, several times over: where other elections go on meanwhile, it is for a thread.
    """
    seat, remembered = seated(settings, folder)
    if not is_alone(settings):
        claim(folder, seat.node)
    run_lock = RunLock(folder)
    try:
        voted, seen, earlier = _taken_over(settings, folder, seat, run_lock)
        events = EventLog(folder, log.warn, keeps_day=settings.control.history)
    except BaseException:
        run_lock.close()
        raise
    threads = threads or OwnThreads()
    return Place(settings, folder, run_lock, seat, remembered, events, voted, seen, earlier, aligned, threads)


def choose(place: Place, clock: Clock, log: Log) -> Chosen:
    """Tokens are known under either strategy (T2).

    A lease keeps them in a file of its own: a ballot has promises besides, which must not be written over.
    """
    settings, folder, voted, seen = place.settings, place.folder, place.voted, place.seen
    ballot = FileDurable(folder)
    if is_own(settings.election.strategy):
        known = max((each.ballot.token_known for each in (voted, seen) if each.ballot is not None), default=0)
        return _own(place, known, clock, log)
    if is_ranked(settings):
        from primacy.agent.managed import list_saver, ranked_parts

        keep = list_saver(folder, log.warn)
        ranked = ranked_parts(settings, place.seat, clock, log.warn, place.remembered, keep)
        return Chosen(ranked.machine, _common(ranked.machine), ballot, ranked=ranked)
    if settings.election.strategy != "lease":
        known = seen.ballot.token_max if seen.ballot is not None else 0
        strategy = raft_of(settings, place.seat, voted, ballot.path, known, aligned=place.aligned)
        if voted.lost:
            log.warn(f"the ballot {ballot.path} cannot be trusted: {voted.lost}")
        heard, recovering = lambda: strategy.heard, lambda: strategy.muted
        register, configs = partial(_register, strategy), partial(_configs, strategy)
        can = Capabilities(
            heard,
            register,
            lambda: strategy.register_known,
            configs,
            recovering,
            lambda: strategy.awaits_word,
            strategy.again,
        )
        return Chosen(strategy, can, ballot)
    return _lease(place, log)


def _taken_over(
    settings: Settings, folder: Folder, seat: Seat, run_lock: RunLock
) -> tuple[Memory, Memory, tuple[str, ...]]:
    """Ballot, tokens and earlier names, as this start may use them."""
    ballot, tokens = FileDurable(folder), FileDurable(folder, TOKENS)
    voted, seen = ballot.load(), tokens.load()
    if is_own(settings.election.strategy) or is_ranked(settings):
        return voted, seen, ()
    if seen.lost:
        raise Unsafe(
            f"{tokens.path} cannot be trusted: {seen.lost}. Which tokens this node has seen, and on which lease, is "
            "forgotten. The row in the store has the largest one, unless it was lost, too; if you are sure that it was "
            f"not, and that nobody uses another lease than this file names: rm {tokens.path}"
        )
    kept = Kept(voted.ballot, seen.ballot)
    if settings.election.strategy != "lease":
        return voted._replace(ballot=_as_raft(kept, ballot, tokens)), seen, ()
    speaks, own = not is_alone(settings), lease_record(settings, seat)
    made = _as_lease(kept, for_lease(kept, own, speaks=speaks, lost=bool(voted.lost)), ballot, tokens)
    earlier = earlier_holders(folder, run_lock, holder_id(seat.node, seat.boot))
    return voted._replace(ballot=made.ballot), seen._replace(ballot=made.tokens), earlier


def _as_raft(kept: Kept, ballot: FileDurable, tokens: FileDurable) -> Ballot | None:
    """What this node ran under on a lease is taken over, durably, before it says anything (M1)."""
    made = for_raft(kept)
    if made.ballot is not None and made != kept:
        ballot.save(made.ballot)
        assert made.tokens is not None
        tokens.save(made.tokens)
    return made.ballot


def _as_lease(kept: Kept, made: Kept, ballot: FileDurable, tokens: FileDurable) -> Kept:
    """Likewise, of raft or another lease."""
    assert made.tokens is not None
    if made.tokens != kept.tokens:
        tokens.save(made.tokens)
    if made.ballot is not None and made.ballot != kept.ballot:
        ballot.save(made.ballot)
    return made


def _register(strategy: RaftStrategy) -> Register | None:
    return strategy.ballot.register if strategy.ballot is not None else None


def _configs(strategy: RaftStrategy) -> tuple[str, str]:
    """A node without members has the nodes of its file in one of them, which need not be those of the others."""
    membership, shown = strategy.seat.membership, strategy.origin.config
    if _register(strategy) is None:
        return "", ""
    return shown, membership.hash if shown != membership.hash else membership.listed_hash


def _own(place: Place, known: int, clock: Clock, log: Log) -> Chosen:
    from primacy.agent.owned import KEPT, own_of

    kept = FileDurable(place.folder, KEPT)
    memory = kept.load()
    if memory.lost:
        log.warn(f"{kept.path} cannot be trusted: {memory.lost}; the strategy begins without it")
    own = own_of(place.settings, place.seat, memory, known, clock.now_ms())
    return Chosen(own, _common(own), kept)


def _common(strategy: RankStrategy | Plugged) -> Capabilities:
    """Of a strategy that hears the other nodes, and has no more than its view."""
    return Capabilities(lambda: strategy.heard)


def _lease(place: Place, log: Log) -> Chosen:
    settings, seat = place.settings, place.seat
    timing = holding_times(settings)
    holder = holder_id(seat.node, seat.boot)
    stored = Stored(settings, place.threads, timing, holder, log.warn)
    voted, seen = place.voted.ballot, place.seen.ballot
    assert seen is not None
    strategy = lease_of(settings, seat, seen, place.earlier)
    members = voted.register if voted is not None else None
    can = Capabilities(
        None,
        register_known=lambda: members,
        awaits_word=lambda: True,
        is_settled=lambda: strategy.settled,
        seen_in_store=partial(seen_in_store, strategy),
    )
    return Chosen(strategy, can, FileDurable(place.folder, TOKENS), stored)
