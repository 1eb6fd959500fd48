"""The one file, as frozen dataclasses.

Each setting says in one place what it means, in which unit, and what happens if it is too small or too large; `walk.py`
reads files by it, `page.py` writes docs/config.md from it.

Relations between settings are not here but in `checks.py`. Where a default depends on other settings it is the empty
text here and filled in by `loading.py`, so that a `Settings` in the hands of a caller has no open question left.
"""

# ruff: noqa: RUF009  (`setting` returns a `dataclasses.field`, which is what a default may be)
from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

ID_CHARS_MAX = 20
"""Seed 000 refuses longer ids, and its nodes must be able to meet ours."""
ID_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ID_CHARS_MAX - 1}}}"
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
STRATEGIES = ("raft", "lease", "bully", "ring")
RANKS = ("id", "natural", "started", "priority")
HOOKS = ("elected", "started", "stopped", "lost")
SPAN_MS_MAX = 24 * 3600 * 1000
"""A day: no span of an election is longer, and a slip of the unit (microseconds) is noticed."""


class Rule(NamedTuple):
    """What a setting accepts, and what it means. Everything that a reader or the documentation needs to know of it."""

    text: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    pattern: str = ""
    says: str = ""
    """The pattern in words, for the message: "host:port"."""
    check: Callable[[str], str] | None = None
    """Returns what is wrong with a text, or nothing."""
    key: str = ""
    """The word in the file, if it is no name in Python."""
    also: tuple[str, ...] = ()
    """Other accepted spellings."""
    secret: bool = False
    """Never shown: not in a message, not in the canonical form."""
    keys: str = ""
    """Of a mapping: the pattern of its keys."""
    keys_say: str = ""
    inline: bool = False
    """Of a mapping: its entries stand directly in the section, told apart by the pattern of their keys."""
    one_or_more: bool = False
    """Of a list: a single text is accepted in its place."""
    least_chars: int = 0
    hidden: bool = False
    """Not in the file at all: where a value came from."""


def setting(default: Any, text: str, **rule: Any) -> Any:
    """A field with its rule. A callable default makes the value anew each time."""
    meta = {"rule": Rule(text, **rule)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=meta)
    return dataclasses.field(default=default, metadata=meta)


def rule_of(field: dataclasses.Field[Any]) -> Rule:
    rule = field.metadata["rule"]
    assert isinstance(rule, Rule)
    return rule


def key_of(field: dataclasses.Field[Any]) -> str:
    """The word in the file."""
    return rule_of(field).key or field.name


def wrong_address(text: str, *, host_needed: bool = True) -> str:
    """What is wrong with `host:port`, or nothing."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 1 <= int(port[:6]) <= 65_535:
        return "this is no host:port with a port from 1 to 65535, such as 10.0.0.1:7400"
    if not host:
        return "the host is missing; others must be able to dial it, such as 10.0.0.1:7400" if host_needed else ""
    if host.startswith("[") and host.endswith("]"):
        return "" if re.fullmatch(r"[0-9A-Fa-f:.%]+", host[1:-1]) else "this is no address in brackets, such as [::1]"
    if ":" in host:
        return f"an IPv6 address stands in brackets: [{host}]:{port}"
    return "" if re.fullmatch(r"[A-Za-z0-9._-]+", host) else "a host is a name or an address, such as 10.0.0.1:7400"


def wrong_listen(text: str) -> str:
    """What is wrong with an address to listen on: the host may be left out."""
    return wrong_address(text, host_needed=False)


def wrong_id(text: str) -> str:
    """What is wrong with the id of a node. In a fixed list ids are stricter; Ghoti's files may have any."""
    if 1 <= len(text) <= ID_CHARS_MAX and text.isprintable() and text == text.strip() and "/" not in text:
        return ""
    return f"an id has 1 to {ID_CHARS_MAX} characters that can be printed, none of them a slash"


def wrong_store(text: str) -> str:
    """What is wrong with the address of a store."""
    scheme = re.split(r"[:+]", text, maxsplit=1)[0]
    known = ("sqlite", "postgresql", "mysql", "mariadb", "etcd", "etcds")
    if "://" not in text or scheme not in (*known, "postgres"):
        return f"a store is one of {', '.join(known)}, such as postgresql://host/db or sqlite:///leases.db"
    return ""


def wrong_zmq(text: str) -> str:
    """What is wrong with a ZeroMQ address."""
    if text.startswith("tcp://"):
        return wrong_address(text[6:].replace("*", "0.0.0.0"))
    if re.fullmatch(r"(ipc|inproc)://.+", text):
        return ""
    return "a peer's address starts with tcp://, such as tcp://10.0.0.1:6000"


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a fixed list."""

    addr: str = setting("", "What others dial, `host:port`.", check=wrong_address)
    bind: str = setting("", "What this node listens on, if another than `addr`: `0.0.0.0:7400`.", check=wrong_listen)
    priority: int = setting(
        0, "A higher one stands earlier (raft) or ranks higher (`rank: priority`). It never blocks.", least=0, most=100
    )
    kind: str = setting(
        "voter",
        "`voter` votes and may lead; `witness` (raft) votes and never leads; `observer` only watches.",
        choices=("voter", "witness", "observer"),
    )


@dataclass(frozen=True, slots=True)
class ManagerTls:
    """Certificates of the manager. Each node shows its own, and trusts what `ca` signed."""

    cert: str = setting("", "This node's certificate, PEM; it names the host that others dial.")
    key: str = setting("", "Its private key, PEM; refused if others can read it.")
    ca: str = setting("", "Who signed the certificates of the nodes, PEM.")


@dataclass(frozen=True, slots=True)
class Manager:
    """Who belongs to the cluster, and how they find each other."""

    type: str = setting(
        "",
        "`static`: the fixed list in `nodes`. `join_server`: nodes join each other over HTTP, as in Ghoti. "
        "`none`: no list "
        "(lease, or one node). Default: `static` if there are nodes, `join_server` if there is an address, "
        "else `none`.",
        choices=("static", "join_server", "none"),
    )
    nodes: dict[str, Node] = setting(
        dict,
        "The fixed list, the same on all nodes; the key is the node's id.",
        keys=ID_PATTERN,
        keys_say=(
            f"an id is 1 to {ID_CHARS_MAX} letters, digits, dots, dashes or underscores, the first a letter or digit"
        ),
    )
    addr: str = setting("", "`join_server`: where this node's manager listens.", check=wrong_listen)
    advertise: str = setting(
        "",
        "`join_server`: what others dial, if another than `addr`; needed if that names no host.",
        check=wrong_address,
    )
    join: tuple[str, ...] = setting(
        tuple,
        "`join_server`: one or several nodes to join. Empty: this node starts a new cluster.",
        check=wrong_address,
        one_or_more=True,
    )
    join_retry: bool = setting(
        True, "`join_server`: keep trying to join, with back-off. Off: fail at once, as Ghoti does."
    )
    priority: int = setting(
        0, "`join_server` with `rank: priority`: how high this node ranks; a larger one is higher.", least=0, most=100
    )
    tls: ManagerTls = setting(ManagerTls, "bully, ring: the manager over HTTPS. All nodes, or none; Ghoti has none.")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes and what they share."""

    name: str = setting(
        "primacy",
        "Part of every seal: nodes of another name are strangers.",
        pattern=NAME_PATTERN,
        says="letters, digits, dots, dashes or underscores, at most 63",
    )
    node: str = setting(
        "",
        "Which node this is, unless `--node` says so. Default: the host name, if it is listed.",
        check=wrong_id,
    )
    bind: str = setting("", "Ghoti's word for `slots.addr`; used where that is not given.", check=wrong_listen)
    user: str = setting("", "Only to meet real Ghoti nodes: the manager's user name.", least_chars=4)
    password: str = setting(
        "", "Only to meet real Ghoti nodes: the manager's password.", key="pass", least_chars=4, secret=True
    )
    password_other: str = setting(
        "",
        "While `pass` is changed: accepted as well, and never sent. Set it on all nodes, exchange both, take it out.",
        key="pass_other",
        least_chars=4,
        secret=True,
    )
    secret_file: str = setting(
        "",
        "The cluster's one secret, from `primacy keygen`; refused if others can read it. All other keys "
        "derive from it. While it is changed, a second one beside it, named `….other`, is accepted as well.",
    )
    first_start: str = setting(
        "explicit",
        "`auto`: fresh nodes form the cluster by themselves once all of them are up. `explicit`: somebody says "
        "`primacy init` once.",
        choices=("auto", "explicit"),
    )
    manager: Manager = setting(Manager, "Who belongs to the cluster.")


def _span(text: str, least: int = 1) -> Any:
    return setting(None, text, least=least, most=SPAN_MS_MAX)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Single values over the profile, in milliseconds. `primacy contract` checks and shows the whole."""

    beat_ms: int | None = _span(
        "Between two renewals. Too small: needless traffic. Too large: few lost beats are borne before TERM."
    )
    term_at_ms: int | None = _span(
        "raft, lease. After the last proved renewal left: the work is told to stop. Too small: a short stall "
        "costs the role. "
        "Too large: less time is left to stop."
    )
    kill_at_ms: int | None = _span(
        "raft, lease. The work is killed. What lies between TERM and KILL is all the time it has to end by "
        "itself after a "
        "loss."
    )
    deadman_at_ms: int | None = _span(
        "raft, lease. The kernel kills guard and work, even if agent and guard are both stopped. Too close "
        "to the hold: no "
        "time is left for the kill itself."
    )
    hold_ms: int | None = _span(
        "raft, lease. The work is dead, whatever happened. Too small: no room for an orderly stop. Too large: every "
        "failover without a release takes longer."
    )
    promise_ms: int | None = _span(
        "raft. A voter that acked a beat grants no vote for this long. Below hold times the drift ratio, "
        "winners would have "
        "to wait. Too large: failover takes longer."
    )
    spread_ms: int | None = _span(
        "raft. Candidates stand at a random moment within this after the promise. Too small: split votes. Too large: "
        "failover takes longer."
    )
    drift_ppm: int | None = setting(
        None,
        "raft, lease. Largest rate error of any clock, in parts per million. Too small: a bad clock breaks "
        "the promise. "
        "Too large: every wait grows.",
        least=100,
        most=200_000,
    )
    misses: int | None = setting(
        None,
        "bully, ring. Looks in a row without an answer until the leader counts as gone. Too small: a slow leader is "
        "deposed. Too large: a dead one is noticed late.",
        least=1,
        most=1_000,
    )
    answer_ms: int | None = _span(
        "bully, ring. How long a look at the leader may take. Too small: a slow leader is deposed. Larger "
        "than the beat "
        "only delays the notice."
    )
    election_ms: int | None = _span(
        "bully, ring. How long a call waits for an OK before the caller declares itself. Too small: two "
        "declare at once."
    )
    coordinator_ms: int | None = _span(
        "bully, ring. How long one who was told OK waits for the announcement before it calls again. Too "
        "small: needless "
        "rounds."
    )


@dataclass(frozen=True, slots=True)
class Store:
    """Where a lease is kept."""

    url: str = setting(
        "",
        "`sqlite:///file`, `postgresql://host/db`, `mysql://host/db` or `etcd://host:port`.",
        check=wrong_store,
        secret=True,
    )
    table: str = setting(
        "primacy_leases",
        "The table (SQL) or the prefix of the key (etcd).",
        pattern=r"[A-Za-z_][A-Za-z0-9_]{0,62}",
        says="a letter or underscore, then letters, digits or underscores, at most 63",
    )


def wrong_strategy(text: str) -> str:
    """What is wrong with the name of a strategy: one of ours, or `package.module:Class`."""
    if text in STRATEGIES or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        return ""
    return f"a strategy is one of {', '.join(STRATEGIES)}, or your own as package.module:Class"


@dataclass(frozen=True, slots=True)
class Election:
    """How the one is chosen."""

    name: str = setting(
        "main",
        "The role to be filled; part of every message. One cluster may hold several elections.",
        pattern=NAME_PATTERN,
        says="letters, digits, dots, dashes or underscores, at most 63",
    )
    strategy: str = setting(
        "",
        "`raft`, `lease`, `bully`, `ring`, or your own as `package.module:Class`. Default: `bully` with `join_server`, "
        "`lease` with a store, else `raft`.",
        check=wrong_strategy,
    )
    rank: str = setting(
        "id",
        "bully, ring: who is higher. `id` as bytes; `natural` (node10 above node9); `started` (the "
        "youngest); `priority`.",
        choices=RANKS,
    )
    profile: str = setting(
        "lan", "The set of times that fits your network; see the table below.", pattern=r"[a-z-]+", says="a word"
    )
    timing: Overrides = setting(Overrides, "Single values over the profile.")
    mode: str = setting(
        "automatic",
        "`manual`: a winner waits for `primacy approve` before the work starts.",
        choices=("automatic", "manual"),
    )
    require_majority: bool = setting(
        False,
        "bully, ring: nobody leads who does not see a majority of the list. Fewer split brains, still no promise.",
    )
    prune_after_ms: int = setting(
        0,
        "bully, ring with `join_server`: a node that is silent this long leaves the list. 0: never, as in Ghoti.",
        least=0,
        most=30 * SPAN_MS_MAX,
    )
    failsafe: bool = setting(
        False, "lease: while the store is down the holder goes on if *all* nodes of the fixed list agree."
    )
    store: Store = setting(Store, "lease: where it is kept.")


@dataclass(frozen=True, slots=True)
class Probe:
    """One question about the health of this node. Exactly one of `http`, `tcp` and `command`."""

    http: str = setting(
        "", "A URL that answers 200 to 299 when well.", pattern=r"https?://.+", says="http://… or https://…"
    )
    tcp: str = setting("", "A `host:port` that accepts a connection when well.", check=wrong_address)
    command: tuple[str, ...] = setting(tuple, "A command that ends with 0 when well; a list of words, no shell.")
    every_ms: int = setting(
        1000, "How often. Too small: load. Too large: a sick leader is noticed late.", least=10, most=SPAN_MS_MAX
    )
    timeout_ms: int = setting(1000, "How long one try may take.", least=10, most=SPAN_MS_MAX)
    failures: int = setting(
        3, "Failures in a row that make it unhealthy. 1: one hiccup costs the role.", least=1, most=1_000
    )
    successes: int = setting(
        2, "`always`: successes in a row that make it healthy again. 1: it may come and go.", least=1, most=1_000
    )
    when: str = setting(
        "running",
        "`running`: it asks the command, and only while that runs. `always`: it asks something else of this node (a "
        "disk, a route), whether it leads or not.",
        choices=("running", "always"),
    )
    start_ms: int = setting(
        10_000,
        "`running`: how long the command may take to answer well for the first time; failures before that do not "
        "count. Too small: a slow start costs the role.",
        least=0,
        most=SPAN_MS_MAX,
    )
    rest_ms: int = setting(
        30_000,
        "`running`: how long the node does not stand after it stepped down for this; then it may try again. Too "
        "small: a sick node takes the role back at once.",
        least=0,
        most=SPAN_MS_MAX,
    )


@dataclass(frozen=True, slots=True)
class Run:
    """The process that only the leader runs."""

    command: tuple[str, ...] = setting(
        tuple, "The program and its arguments, a list of words, no shell. Or after `--`."
    )
    cwd: str = setting("", "The folder that it starts in. Default: the agent's.")
    user: str = setting("", "The user that it runs as. Default: the agent's.")
    group: str = setting("", "The group that it runs as. Default: the user's groups, or the agent's.")
    umask: str = setting(
        "",
        'Which rights the files that it makes do not get, in octal digits in quotes: `"027"`. Default: the agent\'s.',
        pattern=r"[0-7]{1,4}",
        says="1 to 4 octal digits, such as 027",
    )
    stdout: str = setting("", "A file that what it prints is appended to. Default: passed through.")
    stderr: str = setting("", "A file that its errors are appended to. Default: passed through.")
    environment: dict[str, str] = setting(
        dict,
        "Variables that it gets, besides the `PRIMACY_` ones.",
        keys=r"[A-Za-z_][A-Za-z0-9_]*",
        keys_say="a variable is a letter or underscore, then letters, digits or underscores",
    )
    stop_signal: str = setting(
        "TERM", "The signal that asks it to end.", choices=("TERM", "INT", "QUIT", "HUP", "USR1", "USR2")
    )
    stop_ms: int = setting(
        3000,
        "How long a *planned* stop may take: leadership is kept meanwhile, so it may be minutes. After a "
        "loss there is only "
        "the time between TERM and KILL. Too small: work is cut off. Too large: a handover takes long.",
        least=0,
        most=SPAN_MS_MAX,
    )
    restart: str = setting("always", "What follows when it ends by itself.", choices=("always", "on-failure", "never"))
    restart_limit: int = setting(
        20,
        "Ends in a row within 10 s of their start until the node gives up, so that another one may try. 0: never. Too "
        "small: a short trouble costs the node. The back-off between two starts grows from 100 ms to 10 s.",
        least=0,
        most=1_000_000,
    )
    require_containment: str = setting(
        "any", "`strong`: refuse to start where the kernel cannot kill the whole tree.", choices=("any", "strong")
    )
    health: tuple[Probe, ...] = setting(tuple, "Probes; an unhealthy node steps down and does not stand.")
    hooks: dict[str, tuple[str, ...]] = setting(
        dict,
        f"Commands told of a change: {', '.join(HOOKS)}.",
        keys="|".join(HOOKS),
        keys_say=f"a hook is one of {', '.join(HOOKS)}",
    )
    hook_ms: int = setting(10_000, "How long a hook may take before it is killed.", least=10, most=SPAN_MS_MAX)
    fence_command: tuple[str, ...] = setting(
        tuple,
        "A command that the successor must see end with 0 before it starts: a power switch, an API call. Left out "
        "where a release of the last leader proves its work gone. Tried again, ever more slowly, while it fails.",
    )
    fence_ms: int = setting(
        30_000,
        "How long the fence command may take before it is killed and counts as failed. Too small: no start at all.",
        least=10,
        most=SPAN_MS_MAX,
    )


SLOT_KINDS = (
    "simple_memory",
    "timeout_memory",
    "token_bucket",
    "leaky_bucket",
    "ticker",
    "atomic",
    "broadcast",
    "multicast",
    "random",
)


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot; which keys it needs depends on its kind."""

    kind: str = setting("", "What the slot does.", choices=SLOT_KINDS, also=("type",))
    users: dict[str, str] = setting(
        dict, "Who may read (`r`), write (`w`) or both (`a`). Empty: everybody.", pattern=r"[rwa]", says="r, w or a"
    )
    timeout: int | None = setting(
        None,
        "timeout_memory: seconds. multicast, random: seconds that a client must have stood still before it is "
        "deregistered (1).",
        least=1,
        most=86_400,
    )
    bucket_size: int | None = setting(None, "token_bucket, leaky_bucket: how much fits in.", least=1, most=2**53)
    period: str = setting("", "token_bucket: how often it is refilled.", choices=("second", "minute", "hour"))
    refresh_rate: int | None = setting(
        None, "token_bucket: tokens per period (1). leaky_bucket (1000), ticker: milliseconds.", least=1, most=2**53
    )
    tokens_per_req: int | None = setting(None, "token_bucket: tokens per request (1).", least=1, most=2**53)
    initial_value: int | None = setting(None, "ticker: where it starts.", least=0, most=2**53)
    dereg_tries: int | None = setting(
        None,
        "multicast, random: messages in a row that a client did not take until it is deregistered (3).",
        least=1,
        most=1_000_000,
    )


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Ghoti's metrics files."""

    enabled: bool = setting(False, "Write them.")
    output_dir: str = setting("", "The folder.")
    rotation: str = setting("daily", "A new file how often.", choices=("hourly", "daily"))
    retain: int = setting(7, "Files that are kept; 0 keeps all.", least=0, most=100_000)
    interval: int = setting(10, "Seconds between two entries.", least=1, most=86_400)


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of one certificate."""

    cert: str = setting("", "The certificate, PEM.")
    key: str = setting("", "Its private key, PEM; refused if others can read it.")
    ca: str = setting("", "Whom to trust, PEM; given, clients must show a certificate.")


@dataclass(frozen=True, slots=True)
class Slots:
    """The slot server, on the leader only."""

    addr: str = setting("localhost:25873", "Where clients connect.", check=wrong_listen)
    protocol: str = setting(
        "standard",
        "Lines that end in LF (`standard`) or in CR LF (`telnet`), or HTTP with event streams (`http`).",
        choices=("standard", "telnet", "http"),
    )
    users: dict[str, str] = setting(
        dict,
        "Names and passwords.",
        keys=r"[A-Za-z][A-Za-z0-9_]{3,}",
        keys_say="a user name has at least 4 letters, digits or underscores, the first a letter",
        least_chars=4,
        secret=True,
    )
    tls: Tls = setting(Tls, "Encrypts the connections of clients. With `ca`, every client must show a certificate.")
    telemetry: Telemetry = setting(
        Telemetry, "Ghoti's metrics files: read, and not written. `/metrics` has the figures.", also=("metrics",)
    )
    numbered: dict[str, Slot] = setting(
        dict,
        'The slots, `"000"` to `"999"`.',
        keys=r"[0-9]{3}",
        keys_say="a slot has three digits, 000 to 999",
        inline=True,
        key="NNN",
    )


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer of the cache."""

    url: str = setting("", "What other peers connect to; it is the peer's identity, byte for byte.", check=wrong_zmq)
    api: str = setting("", "What clients connect to.", check=wrong_zmq)
    bind_url: str = setting("", "What this peer binds, if another than `url`.", check=wrong_zmq)
    bind_api: str = setting("", "What this peer binds for clients, if another than `api`.", check=wrong_zmq)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where entries are kept."""

    type: str = setting(
        "lmdb", "`memory` forgets terms at a restart and is for trying out.", choices=("lmdb", "memory")
    )
    dir: str = setting("cache", "The folder, below the state folder unless absolute.")


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache whose entries are fetched once for all peers."""

    mode: str = setting(
        "own",
        "`own`: all peers are ours. `mixed`: original peers are in the list, with fewer promises.",
        choices=("own", "mixed"),
    )
    peers: dict[str, Peer] = setting(
        dict,
        "The fixed list of peers, the same on all.",
        keys=ID_PATTERN,
        keys_say=f"an id has 1 to {ID_CHARS_MAX} letters, digits, dots, dashes or underscores",
    )
    source: str = setting(
        "",
        "What fetches an entry: `call:package.module:function`, `http:URL` or `cmd:PROGRAM`.",
        pattern=r"(call:[A-Za-z_][\w.]*:[A-Za-z_]\w*|http:.+|cmd:.+)",
        says="call:package.module:function, http:URL or cmd:PROGRAM",
    )
    ttl_ms: int = setting(
        3_600_000,
        "How long an entry is fresh. Must be much longer than a retrieval takes; too small: the source is "
        "called all the time.",
        least=60_000,
        most=366 * SPAN_MS_MAX,
    )
    storage: Storage = setting(Storage, "Where entries are kept.")
    security: str = setting(
        "secret",
        "`secret`: a MAC on every message. `curve`: encrypted. `none`: must be said.",
        choices=("secret", "curve", "none"),
    )


@dataclass(frozen=True, slots=True)
class Control:
    """Commands, status and dashboard of the running node."""

    listen: str = setting(
        "127.0.0.1:7480",
        "Where commands and the dashboard reach this node. If the default is taken, any free port is used.",
        check=wrong_listen,
    )
    public: str = setting(
        "", "A second address, anywhere, that serves GET `/leader`, `/healthz` and `/metrics` only.", check=wrong_listen
    )
    dashboard: str = setting(
        "", "Where this node also serves the dashboard, in a process of its own. Empty: nowhere.", check=wrong_listen
    )
    tls: Tls = setting(Tls, "Needed if `listen` or `dashboard` is not a loopback address.")
    lab: bool = setting(False, "Allow faults to be injected. Never on a cluster that matters.")


@dataclass(frozen=True, slots=True)
class Log:
    """One line per event, to standard error."""

    level: str = setting("info", "What is worth a line.", choices=("debug", "info", "warn", "error"))
    format: str = setting("text", "For people, or for machines.", choices=("text", "json"))


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file."""

    cluster: Cluster = setting(Cluster, "The nodes and what they share.")
    election: Election = setting(Election, "How the one is chosen.")
    run: Run = setting(Run, "The process that only the leader runs.")
    slots: Slots = setting(Slots, "The slot server, on the leader only.")
    cache: Cache = setting(Cache, "The cache whose entries are fetched once for all peers.")
    control: Control = setting(Control, "Commands, status and dashboard of the running node.")
    state_dir: str = setting(
        "", "Where a node keeps what it must not forget. Default: the system's state folder (root), else the user's."
    )
    log: Log = setting(Log, "One line per event, to standard error.")
    node: str = setting("", "Which node this is; empty if nothing says so.", hidden=True)
    source: str = setting("", "The file that it was read from; relative paths count from its folder.", hidden=True)
