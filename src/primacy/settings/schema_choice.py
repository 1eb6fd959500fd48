"""Of the one file, how the one is chosen, in two sections that an election and an entry of `elections` have alike: its
times and its store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from primacy.settings.accepted import SPAN_MS_MAX, wrong_store
from primacy.settings.rule import setting


def _span(text: str, least: int = 1) -> Any:
    return setting(None, text, least=least, most=SPAN_MS_MAX)


@dataclass(frozen=True, slots=True)
class Overrides:
    """Single values over the profile, in milliseconds. `primacy contract` checks and shows the whole."""

    heartbeat_ms: int | None = _span(
        "Between two renewals. Too small: needless traffic. Too large: few lost heartbeats are borne before TERM."
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
        "raft. A voter that acked a heartbeat grants no vote for this long. Below hold times the drift ratio, "
        "winners would have "
        "to wait. Too large: failover takes longer."
    )
    spread_ms: int | None = _span(
        "raft. Candidates campaign at a random moment within this after the promise. Too small: split votes. Too "
        "large: failover takes longer."
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
        "than the heartbeat "
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
        "`sqlite:///file`, `postgresql://host/db`, `mysql://host/db`, `etcd://host:port`, `redis://host:port/0` or "
        "`kubernetes:`.",
        check=wrong_store,
        secret=True,
    )
    table: str = setting(
        "primacy_leases",
        "The table (SQL), the prefix of the key (etcd), the key (Redis) or the label (Kubernetes).",
        pattern=r"[A-Za-z_][A-Za-z0-9_]{0,62}",
        says="a letter or underscore, then letters, digits or underscores, at most 63",
    )
    trust: str = setting(
        "named",
        "`named`: a server that restarts says so by its name. `watched`: for stores that are restored with their "
        "memory: a release counts only after one unbroken connection for the longest wait. It needs direct "
        "connections; a proxy that keeps them hides what it watches for.",
        choices=("named", "watched"),
    )
    durability: str = setting(
        "strict",
        "Redis. `strict`: the server must keep what it has answered, or nothing is held on it. `advisory`: it need "
        "not, and two may hold the lease at once; only the library takes that (`?durability=advisory`), no node does.",
        choices=("strict", "advisory"),
        earlier=(("durable", "strict"),),
    )
