"""What each kind of store can say of itself (L5), as the simulated one plays it.

What an engine says is read from the code of the real store (`primacy/store/`), and measured on the real server where
that could be done: PostgreSQL 15, MariaDB 10.11, etcd, SQLite, Redis 7.0. Kubernetes is played by its code alone.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple


class Engine(NamedTuple):
    """What a kind of store can say of itself (L5)."""

    name: str
    marks: bool
    """Each write leaves a mark in the row that no dump brings back. PostgreSQL: xmin against the stored xid."""
    by_index: bool = False
    """etcd: a row vouches by the raft index that its writer saw, and the identity is cluster and raft term."""
    linked: bool = False
    """Only a broken connection tells of a data folder that was put back."""
    notes: bool = False
    """SQLite: a note beside the file keeps what was written last, and an in-place restore keeps the identity."""
    by_run: bool = False
    """Redis: the identity is run_id and master_replid. A restart changes both, and so does another server that takes
    over. One that was demoted and is promoted again keeps its run_id and its connections, and so does a primary whose
    first replica comes. A table that is made anew, emptied or loaded changes neither. There is no position: without
    replicas `master_repl_offset` stays 0 (measured on 7.0)."""
    objects: bool = False
    """Kubernetes: each row is an object. Its mark is uid and resourceVersion, which only a take's compare needs: every
    row vouches. There is no genesis row, and the longest wait is fixed. The identity is the uid of the cluster: it
    names no start of the etcd below, so that everything is watched first (L4)."""

    @property
    def names_table(self) -> bool:
        """The identity is another one when the table was made anew."""
        return not (self.by_index or self.notes or self.by_run or self.objects)

    @property
    def tells_time(self) -> bool:
        """Whether this store may tell its wall clock (T1)."""
        return not (self.by_run or self.objects)


POSTGRESQL = Engine("postgresql", marks=True)
MARIADB = Engine("mariadb", marks=False)
ETCD = Engine("etcd", marks=False, by_index=True, linked=True)
SQLITE = Engine("sqlite", marks=False, notes=True)
REDIS = Engine("redis", marks=False, by_run=True)
KUBERNETES = Engine("kubernetes", marks=False, linked=True, objects=True)
FIRST = (POSTGRESQL, MARIADB, ETCD, SQLITE)
LATER = (REDIS, KUBERNETES)
"""They came later and are drawn apart, so that a seed whose trial is not on one of them keeps its history."""
ENGINES = (*FIRST, *LATER)
BY_NAME = {engine.name: engine for engine in ENGINES}


def drawn_first(chance: Random, _: int | str) -> Engine:
    """As it was drawn when there were no others: a seed that was recorded then has its history on it."""
    return chance.choice(FIRST)


def drawn(chance: Random, seed: int | str) -> Engine:
    """All are equally likely. `chance` draws one of the first in any case, as it did when there were no others."""
    first, apart = drawn_first(chance, seed), Random(f"engine/{seed}")
    return apart.choice(LATER) if apart.random() < len(LATER) / len(ENGINES) else first
