"""From settings to a node: which strategy, among whom, with what it remembers.

What the settings ask for and this version cannot do is refused here, before anything is started: a setting that is
silently left out would be a promise broken.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from random import Random

from primacy.election.guarantees import Guarantees
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.model import Ballot, Kind, ListRecord, Member, Membership, Register, Seat
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.election.store import FAILSAFE
from primacy.errors import Unsafe, UsageError
from primacy.node.ballot import Memory
from primacy.settings import config_hash, has_peers, is_ranked, lease_hash, membership_rows, plain_hash, timing_of
from primacy.settings.checks import is_newcomer
from primacy.settings.elections import few
from primacy.settings.names import host_name
from primacy.settings.schema import Settings
from primacy.settings.timing import DEFAULT_PROFILE, PROFILES, Timing
from primacy.strategies import is_own, promise_of
from primacy.transport.seal import Seal, read_secrets
from primacy.transport.udp import Address, UdpTransport

BOOT_BITS = 62
HASH_BYTES = 16


def refuse(settings: Settings, *, allow_split_brain: bool) -> None:
    """Raises `UsageError` for what `primacy run` must not do, or cannot do yet."""
    strategy = settings.election.strategy
    if not promised(settings).at_most_one and not allow_split_brain:
        raise UsageError(
            f"election.strategy = {strategy} does not promise at most one: each side of a divided network would run "
            "the command. Use raft, or say --allow-split-brain"
        )
    refuse_node(settings)


def refuse_node(settings: Settings) -> None:
    """Raises `UsageError` for what no agent can do, whatever its workload. Without one, any strategy will do."""
    strategy = settings.election.strategy
    if settings.elections:
        raise UsageError(
            f"{settings.source or 'the file'} has several elections: {few(settings.elections)}. primacy agent runs all "
            "of them; primacy run --election NAME runs one"
        )
    if settings.bind and (is_ranked(settings) or is_alone(settings)):
        alone = "a node that is alone" if is_alone(settings) else f"election.strategy = {strategy}"
        raise UsageError(f"--bind {settings.bind}: {alone} listens for no datagrams of other nodes; leave it out")
    if strategy == "lease":
        _refuse_lease(settings)
        return
    if is_ranked(settings):
        from primacy.agent.managed import refuse_ranked  # loaded by those nodes only that need it, here and below

        refuse_ranked(settings)
        return
    if is_own(strategy):
        from primacy.agent.owned import refuse_own

        refuse_own(settings)
    if len(settings.cluster.manager.nodes) > 1 or is_newcomer(settings):
        _refuse_cluster(settings)


def promised(settings: Settings) -> Guarantees:
    """What the strategy promises; of a user's own as it says itself."""
    return promise_of(settings.election.strategy, os.path.dirname(settings.source))


def _refuse_lease(settings: Settings) -> None:
    url = settings.election.store.url
    if not url:
        raise UsageError("election.strategy = lease needs a store: say --store URL, or set election.store.url")
    if url.startswith("memory:"):
        raise UsageError(
            "election.store.url = memory: is within one process, and nobody else could see the lease; on one machine "
            "use a file, sqlite:///leases.db"
        )
    if settings.election.failsafe and not settings.cluster.secret_file:
        raise UsageError(
            "election.failsafe = true needs cluster.secret_file, for the nodes speak to each other while the store is "
            "away; make one with: primacy keygen"
        )
    if has_peers(settings):
        _refuse_cluster(settings)


def _refuse_cluster(settings: Settings) -> None:
    cluster = settings.cluster
    names = ", ".join(sorted(cluster.manager.nodes))
    if settings.node not in cluster.manager.nodes and not is_newcomer(settings):
        new = "; a new node gets a name of its own" if settings.election.strategy == "raft" else ""
        raise UsageError(f"which node is this? Say --node with one of {names}; the host's name is none of them{new}")
    if not cluster.secret_file:
        raise UsageError("cluster.secret_file is missing, and nodes of one cluster need a secret: primacy keygen")


def is_alone(settings: Settings) -> bool:
    """One node, which speaks to nobody; so is each node on a lease that is given no list and no secret.

    Whoever has a manager may be joined.
    """
    return not is_ranked(settings) and not has_peers(settings)


def seat_of(settings: Settings) -> Seat:
    """Who this node is, in this start."""
    rows, nodes = membership_rows(settings), settings.cluster.manager.nodes
    members = [
        Member(name, Kind(kind), priority, address=nodes[name].addr if name in nodes else "")
        for name, kind, priority in rows
    ]
    node = settings.node or (host_name() if settings.election.strategy == "lease" else rows[0][0])
    boot = secrets.randbits(BOOT_BITS) | 1
    has_register = settings.election.strategy == "raft"
    digest = plain_hash(settings) if has_register else config_hash(settings)
    if is_alone(settings):
        digest = _alone_hash(settings, node)
    return Seat(node, boot, Membership.of(members, digest), Random(secrets.randbits(64)))


def _alone_hash(settings: Settings, node: str) -> str:
    """Of a list with one node: cluster, election and node.

    The times of the hold are left out, for there is nobody to agree with: the run lock takes the place of all waits
    (M4), and the ballot keeps the largest hold for the day on which others join. So a changed profile is no changed
    list, and the next start is as quick as the last.
    """
    text = "\n".join(("alone", settings.cluster.name, settings.election.name, node))
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).hexdigest()


def holding_times(settings: Settings) -> Timing:
    """The times of the hold; where the strategy holds nothing, those of the work alone, of the profile of this name."""
    timing = timing_of(settings)
    if isinstance(timing, Timing):
        return timing
    return PROFILES.get(settings.election.profile, PROFILES[DEFAULT_PROFILE])


def raft_of(
    settings: Settings, seat: Seat, memory: Memory, path: str, token_max: int, *, aligned: bool = False
) -> RaftStrategy:
    """A node that is alone starts its cluster by itself (M3), but never after a loss of memory.

    One of several that lost its memory is recovering until the others have answered (M2); it founds nothing by itself.
    """
    ballot = memory.ballot
    lost = memory.lost or ("it turned out to be an old copy" if ballot and ballot.void and not ballot.is_mark else "")
    voters = sorted({name for record in ballot.lists for name in record.voters}) if ballot is not None else []
    others = [name for name in voters if name != seat.node]
    nodes = settings.cluster.manager.nodes
    lists_others = any(name != seat.node for name in nodes)
    if ballot is not None and ballot.is_mark and others and not lists_others:
        raise Unsafe(
            f"node {seat.node} is listed alone, and {path} tells that it was listed with {', '.join(others)}: their "
            "cluster may have begun without it. Put them back into the list; or, if that cluster never began or all "
            f"of them are gone for good, to begin anew, with tokens above the clock's time: rm {path}"
        )
    if ballot is not None and ballot.is_mark and any(not record.voters for record in ballot.lists):
        _refuse_lease_of_others(seat.node, path, lists_others)
    if ballot is not None and not ballot.is_mark and not lists_others:
        _refuse_others(seat.node, path, ballot.register.everybody if ballot.register is not None else tuple(voters))
    if lost and not lists_others:
        raise Unsafe(
            f"the ballot {path} cannot be trusted: {lost}. What this node promised is forgotten. It is the only one "
            f"of its cluster; to begin anew, with tokens above the clock's time: rm {path}"
        )
    by_itself = settings.cluster.first_start == "auto" or (settings.cluster.first_start != "join" and not lists_others)
    if not is_alone(settings):
        seat = seat._replace(membership=seat.membership._replace(listed_hash=_listed_hash(settings, ballot)))
    joins = settings.cluster.first_start == "join" or is_newcomer(settings)
    options = RaftOptions(by_itself and not lost, token_max, joins=joins, aligned=aligned)
    return RaftStrategy(seat, holding_times(settings), ballot, options)


def _refuse_lease_of_others(node: str, path: str, lists_others: bool) -> None:
    """Alone, nobody could say `primacy init` to it before it ends."""
    if not lists_others:
        raise Unsafe(
            f"node {node} used a lease before, as {path} tells, and nobody knows who else did: the command may run "
            "there. When all of them are stopped, to begin without them, with tokens above those of the lease: "
            f"rm {path}"
        )


def _refuse_others(node: str, path: str, members: tuple[str, ...]) -> None:
    """A file that names nobody but this node, and a ballot that knows of others: it would find nobody."""
    others = [name for name in members if name != node]
    if others and node not in members:
        raise Unsafe(
            f"{path} is the ballot of node {others[0]}, and this is node {node}: say --node {others[0]}, or give each "
            f"node a state folder of its own; to begin anew, with tokens above the clock's time: rm {path}"
        )
    if others:
        raise Unsafe(
            f"node {node} is listed alone, and {path} tells that {', '.join(others)} belong to its cluster, too: it "
            "would find nobody. Put them back into the list; to take one out, first say on a node that runs: primacy "
            f"members remove {others[0]}"
        )


def _listed_hash(settings: Settings, ballot: Ballot | None) -> str:
    """Of the members of the first start: as the version before shows it, whatever the file names by now."""
    if ballot is None or ballot.register is None:
        return config_hash(settings)
    return config_hash(settings, {m.id: (m.address, str(m.kind), m.priority) for m in ballot.register.members})


def row_name(settings: Settings) -> str:
    """The lease's name in the store. A failsafe election's is of its own kind: nobody without its list has it (L7)."""
    return (FAILSAFE if settings.election.failsafe else "") + settings.election.name


def lease_record(settings: Settings, seat: Seat) -> ListRecord:
    """The lease that the file names, and who uses it; nobody is listed where the file names no other node."""
    voters = seat.membership.voters if len(settings.cluster.manager.nodes) > 1 else ()
    return ListRecord(lease_hash(settings), voters, confirmed=False, elsewhere=True)


def lease_of(settings: Settings, seat: Seat, kept: Ballot, dead: tuple[str, ...]) -> LeaseStrategy:
    """`kept`: the largest token that this node has seen (T2), and what it ran under (M1). `dead`: see
    `stored.earlier_holders`."""
    timing = holding_times(settings)
    failsafe = seat.membership.voters if settings.election.failsafe else ()
    options = LeaseOptions(
        row_name(settings),
        kept.token_max,
        dead=dead,
        failsafe=failsafe,
        look_every_ms=timing.look_ms,
        watched=settings.election.store.trust == "watched",
        config=lease_hash(settings),
        lists=kept.lists,
        hold_max_ms=kept.hold_max_ms,
        left=kept.left,
        speaks=not is_alone(settings),
    )
    return LeaseStrategy(seat, timing, options)


MakesTransport = Callable[[Seal, Address, dict[str, Address], Callable[[str], None]], UdpTransport]


def transport_of(
    settings: Settings,
    seat: Seat,
    register: Register | None,
    complain: Callable[[str], None],
    make: MakesTransport = UdpTransport,
) -> UdpTransport | None:
    """How this node speaks to the others; None if there are none. A node that neither its file nor its register names
    asks from any port until it is told where the members have it (R8)."""
    if is_alone(settings):
        return None
    cluster = settings.cluster
    path = os.path.join(os.path.dirname(settings.source), cluster.secret_file)
    seal = Seal(cluster.name, settings.election.name, seat.node, seat.boot, read_secrets(path))
    nodes = cluster.manager.nodes
    others = {name: Address.of(node.addr) for name, node in nodes.items() if name != seat.node}
    known = own_address(settings, seat.node, register)
    any_port = _any_port(others)
    transport = make(seal, Address.of(settings.bind or known or any_port), others, complain)
    transport.asks = not known
    if is_newcomer(settings) and not settings.bind:
        transport.meanwhile = Address.of(any_port)
    return transport


def own_address(settings: Settings, node: str, register: Register | None) -> str:
    """Where a node listens by the file, else by the members; empty if neither names it."""
    own = settings.cluster.manager.nodes.get(node)
    if own is not None:
        return own.bind or own.addr
    members = (*register.members, *register.prior) if register is not None else ()
    return next((member.address for member in members if member.id == node), "")


def _any_port(others: dict[str, Address]) -> str:
    """Of the family that the other nodes are dialled with."""
    return "[::]:0" if any(":" in address.host for address in others.values()) else "0.0.0.0:0"


def addresses(node: str, transport: UdpTransport) -> str:
    """Where a node of several listens, and whom it speaks to, as a sentence."""
    others = ", ".join(f"{name} at {peer.dialled}" for name, peer in sorted(transport.peers.items()))
    if transport.asks:
        return f"node {node} is not in the file, and asks {others}"
    return f"node {node} listens on UDP {transport.listen} and speaks to {others}"
