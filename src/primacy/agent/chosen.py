"""The strategy that the settings name, with what it remembers and, on a lease, its store.

What only one strategy needs is loaded by its nodes only: a start is short, and an idle node small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from primacy.agent.assemble import holding_times, lease_of, raft_of, seat_of
from primacy.agent.stored import Stored, earlier_holders, opened, seen_in_store
from primacy.control import Heard
from primacy.election.lease.strategy import LeaseStrategy
from primacy.election.model import Register, Seat
from primacy.election.raft.strategy import RaftStrategy
from primacy.election.store import holder_id
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


def choose(place: Place, clock: Clock, log: Log) -> Chosen:
    """Tokens are known under either strategy (T2).

    A lease keeps them in a file of its own: a ballot has promises besides, which must not be written over.
    """
    settings, folder = place.settings, place.folder
    ballot, tokens = FileDurable(folder), FileDurable(folder, TOKENS)
    voted, seen = ballot.load(), tokens.load()
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
        strategy = raft_of(settings, place.seat, voted, ballot.path, known)
        if voted.lost:
            log.warn(f"the ballot {ballot.path} cannot be trusted: {voted.lost}")
        heard, recovering = lambda: strategy.heard, lambda: strategy.muted
        register, configs = partial(_register, strategy), partial(_configs, strategy)
        can = Capabilities(heard, register, lambda: strategy.register_known, configs, recovering, strategy.again)
        return Chosen(strategy, can, ballot)
    known = voted.ballot.token_known if voted.ballot is not None else 0
    return _lease(place, tokens, seen, known, log)


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


def _lease(place: Place, tokens: FileDurable, seen: Memory, known: int, log: Log) -> Chosen:
    settings, seat = place.settings, place.seat
    timing = holding_times(settings)
    store = opened(settings, timing)
    holder = holder_id(seat.node, seat.boot)
    earlier = earlier_holders(place.folder, place.run_lock, holder)
    strategy = lease_of(settings, seat, seen, tokens.path, known, earlier)
    can = Capabilities(
        None,
        is_settled=lambda: strategy.settled,
        seen_in_store=partial(seen_in_store, strategy),
    )
    return Chosen(strategy, can, tokens, Stored(settings, store, timing, holder, log.warn))
