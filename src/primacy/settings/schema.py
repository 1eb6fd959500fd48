"""The one file, as frozen dataclasses.

Each setting says in one place what it means, in which unit, and what happens if it is too small or too large;
`reading.py` reads files by it, `page.py` writes docs/config.md from it.

Relations between settings are not here but in `checks.py`. Where a default depends on other settings it is the empty
text here and filled in by `loading.py`, so that a `Settings` in the hands of a caller has no open question left. What
the one does (`run`, `slots`) stands in `schema_work.py`, several elections in `schema_elections.py`, the cache in
`schema_cache.py`, who may use the dashboard in `schema_page.py`.
"""

# ruff: noqa: RUF009  (`setting` returns a `dataclasses.field`, which is what a default may be)
from __future__ import annotations

from dataclasses import dataclass

from primacy.settings.accepted import (
    ID_CHARS_MAX,
    ID_PATTERN,
    NAME_PATTERN,
    RANKS,
    SPAN_MS_MAX,
    wrong_address,
    wrong_id,
    wrong_listen,
    wrong_strategy,
)
from primacy.settings.rule import setting
from primacy.settings.schema_cache import Cache
from primacy.settings.schema_choice import Overrides, Store
from primacy.settings.schema_elections import ElectionEntry
from primacy.settings.schema_page import Page
from primacy.settings.schema_work import Run, Slots, Tls


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a fixed list."""

    addr: str = setting("", "What others dial, `host:port`.", check=wrong_address)
    bind: str = setting("", "What this node listens on, if another than `addr`: `0.0.0.0:7400`.", check=wrong_listen)
    priority: int = setting(
        0,
        "A higher one campaigns earlier (raft) or ranks higher (`rank: priority`). It never blocks.",
        least=0,
        most=100,
    )
    weight: int = setting(
        1,
        "Of several elections it leads a share like this, compared with the other nodes. 0: only what no other can.",
        least=0,
        most=100,
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
class GhotiLeader:
    """An endpoint of Ghoti's manager, from 0.2 on."""

    enabled: bool = setting(False, "Serve `GET /leader`.")


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
        "derive from it. While it is changed, a second one next to it, named `….other`, is accepted as well.",
    )
    first_start: str = setting(
        "explicit",
        "`auto`: fresh nodes form the cluster by themselves once all of them are up. `explicit`: somebody says "
        "`primacy init` once. `join`: this node begins no cluster; it waits until `primacy members add` takes it in.",
        choices=("auto", "explicit", "join"),
    )
    manager: Manager = setting(Manager, "Who belongs to the cluster.")
    leader: GhotiLeader = setting(
        GhotiLeader, "Ghoti's endpoint for load balancers: read, and not acted on. `control.public` has `/leader`."
    )


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
        "bully, ring: no election waits for a node that the leader has not heard for this long; it stays listed, and "
        "counts again once it is heard. 0: never, as in Ghoti.",
        least=0,
        most=30 * SPAN_MS_MAX,
    )
    failsafe: bool = setting(
        False, "lease: while the store is down the holder goes on if *all* nodes of the fixed list agree."
    )
    store: Store = setting(Store, "lease: where it is kept.")


@dataclass(frozen=True, slots=True)
class Control:
    """Commands, status and dashboard of the running node."""

    listen: str = setting(
        "127.0.0.1:7480",
        "Where commands and the dashboard reach this node. If the default is taken, any free port is used.",
        check=wrong_listen,
    )
    public: str = setting(
        "",
        "A second address, anywhere, that serves GET `/leader`, `/readyz`, `/healthz` and `/metrics` only.",
        check=wrong_listen,
    )
    dashboard: str = setting(
        "", "Where this node also serves the dashboard, in a process of its own. Empty: nowhere.", check=wrong_listen
    )
    page: Page = setting(Page, "Who may use the dashboard, and where its strip may be shown.")
    tls: Tls = setting(Tls, "Needed if `listen` or `dashboard` is not a loopback address.")
    lab: bool = setting(False, "Allow faults to be injected. Never on a cluster that matters.")
    history: bool = setting(
        True,
        "Keep the last day in the state folder, at most 16 MB for each election. False: the last 1,000 events only.",
    )
    drills: bool = setting(
        False, "Allow `primacy drill` to stop and move the command, on a cluster that is no lab. It asks first."
    )


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
    elections: dict[str, ElectionEntry] = setting(
        dict,
        "Several elections, by their names, for `primacy agent`; `election` and `run` say what they have in common.",
        keys=NAME_PATTERN,
        keys_say="a name has letters, digits, dots, dashes or underscores, at most 63",
    )
    slots: Slots = setting(Slots, "The slot server, on the leader only.")
    cache: Cache = setting(Cache, "The cache whose entries are fetched once for all peers.")
    control: Control = setting(Control, "Commands, status and dashboard of the running node.")
    state_dir: str = setting(
        "", "Where a node keeps what it must not forget. Default: the system's state folder (root), else the user's."
    )
    log: Log = setting(Log, "One line per event, to standard error.")
    node: str = setting("", "Which node this is; empty if nothing says so.", hidden=True)
    source: str = setting("", "The file that it was read from; relative paths count from its folder.", hidden=True)
    bind: str = setting("", "Where this node listens, if that was said with `--bind`.", hidden=True)
