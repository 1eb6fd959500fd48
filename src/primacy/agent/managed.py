"""From settings to a node of bully or ring: its machine, and the HTTP manager that it speaks through.

`ranked_parts` is all that an assembly needs, that of an agent and that of a `Cluster`:

    parts = ranked_parts(settings, ranked_seat(settings, remembered), clock, complain, remembered, keep)
    driver = Driver(parts.machine, clock, durable, work, listener, parts.manager)
    parts.connect(driver.give)
    await parts.manager.start(driver.hear, overhear)     # listens, then joins; raises InUse, NotReached
    driver.give(Started())
    ...
    driver.give(Shutdown()); await parts.manager.settle(); await parts.manager.aclose()
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from primacy.control.tls import refuse_exposed
from primacy.election.inputs import Input
from primacy.election.model import Kind, Member, Membership, Role, Seat
from primacy.election.ranked.bully import BullyStrategy
from primacy.election.ranked.rank import RankOptions
from primacy.election.ranked.ring import RingStrategy
from primacy.election.ranked.strategy import RankStrategy
from primacy.errors import UsageError
from primacy.membership.http_wire import Credentials, encoded, object_in
from primacy.membership.manager import HttpTransport
from primacy.membership.members import Entry, entries_in
from primacy.membership.state import Identity, JoinPlan
from primacy.node.clock import Clock
from primacy.node.folder import Folder
from primacy.settings import config_hash, timing_of
from primacy.settings.schema import Settings
from primacy.settings.timing import RankTiming
from primacy.transport.seal import derived, read_secrets

NO_SECRET = (
    "cluster.secret_file is missing, and nodes of one cluster need a secret: primacy keygen; or cluster.user and "
    "cluster.pass, to meet nodes of Ghoti"
)
MANAGER_LABEL = b"manager"
MANAGER_USER = "primacy"
"""Of credentials that follow from the cluster's one secret, where no real node of Ghoti is met."""
BOOT_BITS = 53
"""As many as any reader of JSON keeps."""
NODES = "nodes"
"""In the state folder: the list of a cluster that grows by joining, as it was last."""
NODES_BYTES_MAX = 1 << 20
STRATEGIES: dict[str, type[BullyStrategy] | type[RingStrategy]] = {"bully": BullyStrategy, "ring": RingStrategy}
Keep = Callable[[dict[str, Any]], None]


class RankedParts(NamedTuple):
    """A machine of bully or ring, and the manager that it speaks through, not started."""

    machine: RankStrategy
    manager: HttpTransport

    def connect(self, give: Callable[[Input], None]) -> None:
        """To the driver, before the manager is started."""
        machine = self.machine
        self.manager.give, self.manager.leader = give, lambda: (machine.leader, machine.role is Role.LEADER)


def ranked_parts(
    settings: Settings,
    seat: Seat,
    clock: Clock,
    complain: Callable[[str], None],
    remembered: tuple[Entry, ...],
    keep: Keep,
) -> RankedParts:
    """`keep` writes the list, `remembered` is what it wrote last."""
    machine = rank_of(settings, seat, remembered)
    return RankedParts(machine, manager_of(settings, seat, clock, complain, remembered, keep))


def rank_times(settings: Settings) -> RankTiming:
    timing = timing_of(settings)
    assert isinstance(timing, RankTiming), "a strategy that holds something"
    return timing


def ranked_node(settings: Settings) -> str:
    """Which node this is. Raises `UsageError` if nothing says so."""
    if not settings.node:
        raise UsageError("which node is this? Say --node ID, or cluster.node in the file: its id in the election")
    return settings.node


def refuse_ranked(settings: Settings) -> None:
    """Raises `UsageError` for what a node of bully or ring cannot do without."""
    cluster = settings.cluster
    if cluster.manager.type == "none":
        raise UsageError(
            f"election.strategy = {settings.election.strategy} needs other nodes: list them in cluster.manager.nodes, "
            "or set cluster.manager.addr (and join)"
        )
    ranked_node(settings)
    if not cluster.user and not cluster.secret_file:
        raise UsageError(NO_SECRET)


def ranked_seat(settings: Settings, remembered: tuple[Entry, ...] = ()) -> Seat:
    """Who this node is in this start, and among whom: the fixed list, or those that it remembers, or itself alone."""
    node = ranked_node(settings)
    listed = settings.cluster.manager.nodes
    members = [Member(name, Kind(each.kind), each.priority) for name, each in listed.items()]
    if not listed:
        members = [Member(e.node, Kind.VOTER, e.priority, e.started_ms) for e in remembered if not e.gone]
        members.append(Member(node, Kind.VOTER, settings.cluster.manager.priority))
    membership = Membership.of(members, config_hash(settings))
    return Seat(node, secrets.randbits(BOOT_BITS) | 1, membership, Random(secrets.randbits(64)))


def rank_of(settings: Settings, seat: Seat, remembered: tuple[Entry, ...] = ()) -> RankStrategy:
    """A node that joins is quiet until it has the list; one that begins a cluster leads if nobody else does."""
    manager, election = settings.cluster.manager, settings.election
    begins = manager.type != "static" and not manager.join
    options = RankOptions(
        rank=election.rank,
        require_majority=election.require_majority,
        prune_after_ms=election.prune_after_ms,
        bootstrap=begins,
        joining=bool(manager.join) and not any(not e.gone and e.node != seat.node for e in remembered),
    )
    return STRATEGIES[election.strategy](seat, rank_times(settings), options)


def manager_of(
    settings: Settings,
    seat: Seat,
    clock: Clock,
    complain: Callable[[str], None],
    remembered: tuple[Entry, ...] = (),
    keep: Keep = lambda _: None,
) -> HttpTransport:
    """The manager of this node, not started. `keep` writes the list, `remembered` is what it wrote last."""
    manager, election = settings.cluster.manager, settings.election
    fixed = manager.type == "static"
    own = manager.nodes.get(seat.node)
    listen = (own.bind or own.addr) if own is not None else manager.addr
    addr = own.addr if own is not None else advertised(settings, complain)
    entries = tuple(Entry(name, each.addr, priority=each.priority) for name, each in manager.nodes.items())
    identity = Identity(
        node=seat.node,
        boot=seat.boot,
        addr=addr,
        cluster=settings.cluster.name,
        election=election.name,
        strategy=election.strategy,
        rank=election.rank,
        data=settings.slots.addr,
        priority=own.priority if own is not None else manager.priority,
        started_ms=clock.wall_ms(),
        config=seat.membership.hash[:16],
    )
    plan = JoinPlan(manager.join, manager.join_retry, fixed, entries if fixed else remembered, secrets.randbits(32))
    return HttpTransport(
        identity,
        listen,
        credentials_of(settings),
        rank_times(settings),
        plan,
        complain,
        clock.now_ms,
        clock.wall_ms,
        keep,
        tls_of(settings),
    )


def credentials_of(settings: Settings) -> tuple[Credentials, ...]:
    """The first is used, all are accepted: `user` and `pass`, or what follows from the cluster's one secret."""
    cluster = settings.cluster
    if cluster.user:
        passwords = [cluster.password, *([cluster.password_other] if cluster.password_other else [])]
        return tuple(Credentials(cluster.user, password) for password in passwords)
    if not cluster.secret_file:
        raise UsageError(NO_SECRET)
    path = os.path.join(os.path.dirname(settings.source), cluster.secret_file)
    return tuple(Credentials(MANAGER_USER, derived(secret, MANAGER_LABEL).hex()) for secret in read_secrets(path))


def advertised(settings: Settings, complain: Callable[[str], None]) -> str:
    """What others dial. An address without a host is completed by the one that faces the node to join."""
    manager = settings.cluster.manager
    if manager.advertise:
        return manager.advertise
    host, _, port = manager.addr.rpartition(":")
    if host not in ("", "0.0.0.0", "[::]"):
        return manager.addr
    faces = _facing(manager.join[0]) if manager.join else "localhost"
    complain(
        f"cluster.manager.addr = {manager.addr} names no host, so that others are told {faces}:{port}; if they cannot "
        "dial that, set cluster.manager.advertise"
    )
    return f"{faces}:{port}"


def _facing(address: str) -> str:
    """Our own address on the way to that one. Nothing is sent."""
    host, _, port = address.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError:
        return "localhost"


def tls_of(settings: Settings) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """For the server, which wants a certificate of whoever asks, and for the client, which shows ours."""
    files = settings.cluster.manager.tls
    if not files.cert:
        return None
    folder = os.path.dirname(settings.source)
    cert, key, ca = (os.path.join(folder, name) for name in (files.cert, files.key, files.ca))
    refuse_exposed(key, "cluster.manager.tls")
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(cert, key, password=lambda: "")
            context.load_verify_locations(ca)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"cluster.manager.tls: {cert}, {key} and {ca} cannot be used: {why}") from None
    return server, client


# --- what is remembered -----------------------------------------------------------------------------------------------


def recalled(settings: Settings, folder: Folder) -> tuple[Entry, ...]:
    """The nodes that this one knew before it ended. What cannot be read is no help, and no harm."""
    if settings.cluster.manager.type == "static":
        return ()
    try:
        return entries_in(object_in(folder.read(NODES, NODES_BYTES_MAX)))
    except OSError:
        return ()


def list_saver(folder: Folder, complain: Callable[[str], None]) -> Keep:
    """Writes the list, exchanged as a whole. It is a help, not a promise: nothing waits for the disk."""

    def keep(kept: dict[str, Any]) -> None:
        try:
            handle = folder.create(NODES + ".new")
            try:
                os.write(handle, encoded(kept))
            finally:
                os.close(handle)
            folder.rename(NODES + ".new", NODES)
        except OSError as error:
            complain(f"the list of nodes cannot be kept in {folder.path(NODES)}: {error.strerror}")

    return keep


def where(settings: Settings, manager: HttpTransport) -> str:
    """Where this node listens, and how it finds others, as a sentence."""
    listens = f"node {manager.node} listens on {manager.listen} for other nodes"
    if manager.plan.fixed:
        others = ", ".join(f"{entry.node} at {entry.addr}" for entry in manager.member_list.others)
        return f"{listens}, and speaks to {others}"
    if settings.cluster.manager.join:
        return f"{listens}, and joins {', '.join(settings.cluster.manager.join)}"
    known = ", ".join(entry.node for entry in manager.member_list.others)
    return f"{listens}, and asks {known}, whom it remembers" if known else f"{listens}, and begins a cluster"
