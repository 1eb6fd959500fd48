"""The simulated store: one table of leases, atomic by construction, with every way in which a real one goes back.

The world decides when a request arrives, whether its answer is lost afterwards, and when a fault strikes; this class
only says what stands in the table. It draws no chance and knows no time.

What stands on the server's disk (`Table`) goes back with a folder, a snapshot or a replica: rows, positions, the term
of an etcd. What does not go back stands beside it: the number of starts, the proofs and uids, which are random in real
stores and numbers here, and the note of a SQLite file. A dump brings rows back as rows, so that each is a new write
(L5). What the kinds of store differ in stands in `engines.py`.

The conditions of all requests stand in small methods, or in `compared`, so that a test can take one out and see the
checkers catch it. Their reference is `primacy/store/conditions.py`; a test compares the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from typing import NamedTuple, assert_never

from primacy.election.store import (
    GENESIS,
    WAIT_MAX_MS,
    Genesis,
    Look,
    Place,
    Prune,
    ReleaseRow,
    Renew,
    Row,
    Settle,
    StoreAnswer,
    StoreRequest,
    Take,
)
from primacy.sim.world.engines import POSTGRESQL, Engine

HISTORY_MAX = 1_000
"""Commits that can still be lost. A replica that lags further than this is no replica."""
INDEX_LEAST = 1_000
"""etcd: a row whose writer saw a smaller raft index proves little, as a restored cluster soon has as many entries."""
INDEX_RESTORED = 4
"""etcd: the raft index of a cluster that was just made from a snapshot (measured)."""
TERM_RESTORED = 2
"""etcd: its raft term (measured)."""
RUN_ENDS = ("start", "promotion")
"""Redis: another process answers afterwards, so that the run_id is another one."""
STAYS = ("demoted", "replica")
"""Redis: no connection breaks."""
VERSIONS = 1_000_000
"""Between the first versions of two genesis rows that are made: more than a table is ever written in a trial."""


class Entry(NamedTuple):
    """A row as it stands on the disk: `row.mark` is what its writer stored, `at` is when it was really written."""

    name: str
    row: Row
    at: int
    version: int = 1
    """etcd: which change of this key it is."""
    uid: int = 0
    """Kubernetes: of the object. One that was removed and made again has another."""


class Table(NamedTuple):
    """Everything that goes back together when a disk does."""

    entries: tuple[Entry, ...] = ()
    genesis: Genesis = Genesis()
    genesis_at: int = 0
    genesis_version: int = 0
    """etcd: which change of its key it is."""
    at: int = 0
    """Counts commits, and whatever else moves a log: transaction number, revision and position in one."""
    raft_index: int = 5 * INDEX_LEAST
    """etcd: the raft index."""
    term: int = TERM_RESTORED
    """etcd: the raft term."""

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


class SimStore:
    """The table, the commits that made it, and the identity of the server that answers."""

    compared: tuple[str, ...] = ("token", "seq", "proof", "released", "members", "mark", "vouches")
    """What a take, and the removal of a row, compare of the row (L3)."""
    compared_genesis: tuple[str, ...] = ("settled", "floor", "version", "mark")
    """What a request that makes or removes a row, or settles the table, compares of the genesis row (L9)."""
    named_by: tuple[str, ...] = ("run_id", "master_replid")
    """Redis: what the identity is made of (L5)."""

    def __init__(
        self,
        engine: Engine = POSTGRESQL,
        *,
        settled: bool = True,
        wait_max_ms: int = WAIT_MAX_MS,
        history_max: int = HISTORY_MAX,
        raft_index: int = 5 * INDEX_LEAST,
    ) -> None:
        self.engine = engine
        self.up = True
        """False: every request is refused. What was committed stays."""
        self.breaks = 0
        """How often all connections broke. A node that connects counts its links by it."""
        self.wall_ms: Callable[[], int] | None = None
        """The server's Unix time, if this store tells it (T1)."""
        self._starts = 1
        self._runs = 1
        """Redis: how many processes answered so far."""
        self._cluster = 1
        self._writes = 0
        """All writes that ever were. A proof is its number: none comes twice, as none of 64 random bits does."""
        self._uids = 0
        """Kubernetes: of all objects that ever were."""
        self._note: dict[str, str] = {}
        """SQLite: the proof of the newest write per name, the genesis row's included."""
        self.table = Table(genesis=Genesis(wait_max_ms=wait_max_ms), raft_index=raft_index)
        self._history: deque[Table] = deque(maxlen=history_max)
        if not engine.objects:
            genesis = self.table.genesis
            self._write_genesis(genesis._replace(settled=self.server) if settled else genesis)
        self._history.clear()

    # --- what a test or a fault looks at ------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        """Who answers, as every answer says it (L5)."""
        if self.engine.by_index:
            return f"cluster-{self._cluster}/{self.table.term}"
        if self.engine.objects:
            return f"cluster-{self._cluster}"
        if self.engine.by_run:
            ids = {"run_id": self._runs, "master_replid": self._starts}
            return "/".join(("redis", *(f"{part}-{ids[part]}" for part in self.named_by)))
        return f"server-{self._starts}"

    @property
    def rows(self) -> dict[str, Row]:
        """All rows as an answer would show them. A copy: `put` and `by_hand` change the table."""
        return {entry.name: self._seen(entry) for entry in self.table.entries}

    @property
    def genesis(self) -> Genesis:
        return self._genesis(counted=True)

    @property
    def commits(self) -> int:
        """How many commits could still be lost."""
        return len(self._history)

    def earlier(self, commits: int) -> Table:
        """The table as it was so many commits ago, as far as that is known."""
        if not commits or not self._history:
            return self.table
        return self._history[max(0, len(self._history) - commits)]

    def state(self) -> tuple[object, ...]:
        """Everything that the next answer depends on, as one value to compare and to hash."""
        return (self.server, self.up, self.table, tuple(sorted(self._note.items())))

    # --- requests -----------------------------------------------------------------------------------------------------

    def perform(self, request: StoreRequest, link: int = 0) -> StoreAnswer:
        """One request, at the moment it arrives."""
        if not self.up:
            return StoreAnswer(ok=False, reason="the store refuses connections")
        if self._too_long(request):
            return StoreAnswer(ok=False, reason="the hold is too long for this store", final=True)
        entry = self.table.entry(request.name)
        here = self._same_link(request, link)
        done = here and self._perform(None if entry is None else self._seen(entry), request)
        entry = self.table.entry(request.name)
        told = not (done and isinstance(request, Renew)) and not self.engine.objects
        counted = isinstance(request, Settle | Prune) or (isinstance(request, Take) and request.seen is None)
        return StoreAnswer(
            ok=True,
            done=done,
            row=None if entry is None else self._seen(entry),
            server=self.server,
            genesis=self._genesis(counted or (isinstance(request, Look) and request.count)) if told else None,
            position=0 if self.engine.by_run else self.table.at,
            link=link,
            linked=self.engine.linked,
            watched=self.engine.objects or self._is_young(entry),
            wall_ms=self.wall_ms() if self.wall_ms is not None else 0,
        )

    def release(self, name: str, holder: str, token: int, successor: str = "") -> StoreAnswer:
        """What the guard's prepared releaser does once the work is gone: look, then release with the seq it saw."""
        entry = self.table.entry(name)
        return self.perform(ReleaseRow(name, holder, token, 0 if entry is None else entry.row.seq, successor))

    def _perform(self, row: Row | None, request: StoreRequest) -> bool:
        """Whether exactly this was changed."""
        match request:
            case Look():
                return False
            case Take():
                return self._take(row, request)
            case Renew():
                if row is None or not self._may_renew(row, request):
                    return False
                return self._write(request.name, row._replace(seq=row.seq + 1))
            case ReleaseRow():
                if row is None or not self._may_release(row, request):
                    return False
                return self._write(request.name, row._replace(released=True, successor=request.successor))
            case Place():
                if row is not None or not self._same_server(request.server):
                    return False
                genesis = self.table.genesis
                wait_ms = genesis.wait_max_ms
                placeholder = Row("", genesis.floor, 1, wait_ms, wait_ms, released=False)
                more = None if self.engine.objects else self._unbelieved(self._one_more(genesis))
                return self._write(request.name, placeholder, more)
            case Settle() | Prune() if self.engine.objects:
                return False
            case Settle():
                if not self._may_settle(request):
                    return False
                genesis = self.table.genesis
                names, version = len(self.table.entries), genesis.version + 1
                return self._write_genesis(genesis._replace(settled=self.server, names=names, version=version))
            case Prune():
                return self._prune(row, request)
            case _:
                assert_never(request)

    def _take(self, row: Row | None, take: Take) -> bool:
        if not self._take_same_server(take.server):
            return False
        new = take.row._replace(released=False, successor="")
        if take.seen is not None:
            return row is not None and self._same_row(row, take.seen) and self._write(take.name, new)
        if row is not None or self.engine.objects or not self._is_fresh(take):
            return False
        return self._write(take.name, new, self._one_more(self.table.genesis))

    def _prune(self, row: Row | None, prune: Prune) -> bool:
        if row is None or not self._same_server(prune.server) or not self._may_prune(row, prune):
            return False
        genesis = self.table.genesis
        kept = tuple(entry for entry in self.table.entries if entry.name != prune.name)
        self._commit(self.table._replace(entries=kept))
        floor = self._raised(genesis.floor, row.token)
        self._note.pop(prune.name, None)
        names, version = genesis.names - 1, genesis.version + 1
        return self._write_genesis(genesis._replace(floor=floor, names=names, version=version), again=True)

    # --- conditions (L1 to L4, L7, L9, L10) ---------------------------------------------------------------------------

    def _same_link(self, request: StoreRequest, link: int) -> bool:
        """What may only be done over the connection on which its evidence came is done over no other (L5)."""
        return not isinstance(request, Take | Settle) or request.link in (0, link)

    def _too_long(self, request: StoreRequest) -> bool:
        """Kubernetes refuses a hold that needs more than its longest wait, which nobody can raise."""
        most_ms = self.table.genesis.wait_max_ms
        return self.engine.objects and isinstance(request, Take) and request.row.wait_ms > most_ms

    def _same_server(self, server: str) -> bool:
        return server == self.server

    def _take_same_server(self, server: str) -> bool:
        return self._same_server(server)

    def _same_row(self, row: Row, seen: Row) -> bool:
        return all(getattr(row, name) == getattr(seen, name) for name in self.compared)

    def _same_genesis(self, seen: Genesis | None) -> bool:
        genesis = self._genesis()
        return seen is not None and all(getattr(genesis, n) == getattr(seen, n) for n in self.compared_genesis)

    def _own(self, row: Row, request: Renew | ReleaseRow) -> bool:
        return (row.holder, row.token, row.seq) == (request.holder, request.token, request.seq)

    def _may_renew(self, row: Row, renew: Renew) -> bool:
        alive = not row.released and self._vouched(row)
        return alive and self._same_server(renew.server) and self._own(row, renew)

    def _may_release(self, row: Row, release: ReleaseRow) -> bool:
        return self._vouched(row) and self._written_here(row) and self._own(row, release)

    def _vouched(self, row: Row) -> bool:
        """A row that does not vouch belongs to nobody: no renewal and no release matches it (L2, L3)."""
        return row.vouches

    def _written_here(self, row: Row) -> bool:
        """A release is written only where the row's server is the identity that answers (L4)."""
        return row.server == self.server

    def _is_fresh(self, take: Take) -> bool:
        settled = self._same_genesis(take.genesis) and self._is_settled()
        return settled and self._above_floor(take.row.token)

    def _above_floor(self, token: int) -> bool:
        return token > self.table.genesis.floor

    def _is_settled(self) -> bool:
        return self._genesis(counted=True).is_settled(self.server)

    def _may_settle(self, settle: Settle) -> bool:
        count = len(self.table.entries) == settle.genesis.count
        return count and self._same_server(settle.server) and self._same_genesis(settle.genesis)

    def _may_prune(self, row: Row, prune: Prune) -> bool:
        return self._same_row(row, prune.seen) and self._same_genesis(prune.genesis) and self._is_settled()

    def _one_more(self, genesis: Genesis) -> Genesis:
        """A name more (L9)."""
        return genesis._replace(names=genesis.names + 1, version=genesis.version + 1)

    def _unbelieved(self, genesis: Genesis) -> Genesis:
        """A genesis row that did not vouch is not to vouch for what it says because a placeholder was made (L9)."""
        return genesis if self._genesis().vouches else genesis._replace(settled="")

    def _raised(self, floor: int, token: int) -> int:
        """The floor after a row of this token was removed (L10)."""
        return max(floor, token)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, name: str, row: Row, genesis: Genesis | None = None) -> bool:
        """By a user of leases: the row gets its proof, its identity and its mark."""
        self._writes += 1
        at = self.table.at + 1
        known = self.table.entry(name)
        version = 1 if known is None else known.version + 1
        stored = self._stored_mark(at, version)
        new = row._replace(server=self.server, proof=f"p{self._writes}", mark=stored, vouches=True)
        self._commit(self._with(self.table, Entry(name, new, at, version, self._uid(known))))
        self._note[name] = new.proof
        if genesis is not None:
            self._write_genesis(genesis, again=True)
        return True

    def _write_genesis(self, genesis: Genesis, *, again: bool = False) -> bool:
        """With `again` it belongs to the write just before."""
        self._writes += 1
        at = self.table.at + (0 if again else 1)
        version = self.table.genesis_version + 1
        marked = genesis._replace(mark=self._stored_mark(at, version), vouches=True, count=-1)
        table = self.table._replace(genesis=marked, genesis_at=at, genesis_version=version, at=at)
        if again:
            self.table = table
        else:
            self._commit(table)
        self._note[GENESIS] = marked.mark
        return True

    def _uid(self, known: Entry | None) -> int:
        if not self.engine.objects:
            return 0
        self._uids += known is None
        return self._uids if known is None else known.uid

    def _stored_mark(self, at: int, version: int) -> str:
        if self.engine.notes:
            return f"g{self._writes}"
        return f"{self.table.raft_index}.{version}" if self.engine.by_index else str(at)

    def _commit(self, table: Table) -> None:
        self._history.append(self.table)
        self.table = table._replace(raft_index=table.raft_index + 1)

    @staticmethod
    def _with(table: Table, *changed: Entry) -> Table:
        names = {entry.name for entry in changed}
        kept = [entry for entry in table.entries if entry.name not in names]
        at = max(table.at, *(entry.at for entry in changed))
        return table._replace(entries=tuple(sorted([*kept, *changed])), at=at)

    # --- what an answer shows -----------------------------------------------------------------------------------------

    def _seen(self, entry: Entry) -> Row:
        row = entry.row
        proof = row.proof if self.engine.notes else row.mark
        vouches = self._vouches(proof, entry.name, entry.at, entry.version)
        mark = f"{entry.uid}.{entry.at}" if self.engine.objects else self._mark(entry.name, entry.at)
        return row._replace(mark=mark, vouches=vouches)

    def _genesis(self, counted: bool = False) -> Genesis:
        genesis, at = self.table.genesis, self.table.genesis_at
        vouches = self._vouches(genesis.mark, GENESIS, at, self.table.genesis_version)
        count = len(self.table.entries) if counted else -1
        return genesis._replace(mark=self._mark(GENESIS, at), vouches=vouches, count=count)

    def _mark(self, name: str, at: int) -> str:
        if self.engine.notes:
            return self._note.get(name, "")
        return str(at) if self.engine.marks or self.engine.by_index else ""

    def _vouches(self, stored: str, name: str, at: int, version: int) -> bool:
        """Whether the mark fits what was really written (L5)."""
        if self.engine.marks:
            return stored == str(at)
        if self.engine.by_index:
            index, _, change = stored.partition(".")
            return int(index) <= self.table.raft_index and int(change) == version
        return not self.engine.notes or stored == self._note.get(name, "")

    def _is_young(self, entry: Entry | None) -> bool:
        """etcd: the index of the row, or if another identity wrote it of the genesis row, proves too little (L4)."""
        if not self.engine.by_index:
            return False
        here = entry is not None and entry.row.server == self.server
        stored = entry.row.mark if entry is not None and here else self.table.genesis.mark
        return int(stored.partition(".")[0]) < INDEX_LEAST

    # --- faults: the way to it ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """From now on every request is refused."""
        self.up = False

    def restart(self) -> None:
        """Answers again, as the same server, with everything that it committed: it was out of reach, no more."""
        self.up = True

    # --- faults: people -----------------------------------------------------------------------------------------------

    def put(self, name: str, row: Row) -> None:
        """Written as by a user of leases, but as it is: for the beginning of a test."""
        known = self.table.entry(name) is not None
        server = row.server or self.server
        self._write(name, row, None if known else self._one_more(self.table.genesis))
        entry = self.table.entry(name)
        assert entry is not None
        given = entry.row._replace(server=server, proof=row.proof or entry.row.proof)
        self.table = self._with(self.table, entry._replace(row=given))

    def by_hand(self, *entries: tuple[str, Row | None]) -> None:
        """Rows changed, put back or removed by statements of a person, or by a dump read into the table that stands.

        Everything that the row stores is as given, its mark included; that it was written now cannot be hidden.
        """
        at = self.table.at + 1
        table = self.table._replace(at=at)
        for name, row in entries:
            if row is None:
                table = table._replace(entries=tuple(entry for entry in table.entries if entry.name != name))
            else:
                known = table.entry(name)
                version = 1 if known is None else known.version + 1
                table = self._with(table, Entry(name, row, at, version, self._uid(known)))
        self._commit(table)

    def read_dump(self, dump: Table, *, anew: bool) -> None:
        """A dump is read into the running server: all rows are those of the dump, each of them written now (L5).

        With `anew` the dump drops the table and makes it anew, which the identity tells on PostgreSQL and MariaDB.
        """
        at, now = self.table.at + 1, self.table
        known = {} if anew else {entry.name: entry for entry in now.entries}
        versions = {name: entry.version for name, entry in known.items()}
        entries = tuple(
            e._replace(at=at, version=versions.get(e.name, 0) + 1, uid=self._uid(known.get(e.name)))
            for e in dump.entries
        )
        version = 1 if anew else now.genesis_version + 1
        new = now._replace(entries=entries, genesis=dump.genesis, genesis_at=at, genesis_version=version, at=at)
        self._commit(new)
        if anew and self.engine.names_table:
            self._rename("table")

    def make_anew(self) -> None:
        """The table was dropped; the next user makes it, unsettled (L9). Kubernetes: another cluster stands there."""
        self.empty()
        if self.engine.names_table:
            self._rename("table")
        if self.engine.objects:
            self._cluster += 1
            self._cut_all()

    def empty(self) -> None:
        """All rows go, the genesis row included, and the table stays: the next user makes a genesis row (L9).

        Redis: FLUSHALL, FLUSHDB, DEL, and an eviction, which takes the one hash as a whole.
        """
        self._commit(self.table._replace(entries=(), at=self.table.at + self.engine.objects))
        self.lose_genesis()

    def lose_genesis(self) -> None:
        """The genesis row alone goes; the next user makes one, unsettled and with no names (L9)."""
        if not self.engine.objects:
            wait_max_ms = self.table.genesis.wait_max_ms
            self._write_genesis(Genesis(wait_max_ms=wait_max_ms, version=self._first_version()))

    def _first_version(self) -> int:
        """Of a genesis row that is made: no two are near each other, as if drawn by chance."""
        return VERSIONS * (self._writes + 1)

    # --- faults: servers ----------------------------------------------------------------------------------------------

    def start_anew(self, lost_commits: int = 0, *, ahead: int = 0) -> None:
        """The server restarts, without its last commits if it had not written them down."""
        self._go_back(self.earlier(lost_commits), "start", ahead)

    def fail_over(self, lost_commits: int = 0, *, ahead: int = 0) -> None:
        """Another server answers from now on, without the last commits. The old one is fenced: it answers nobody."""
        self._go_back(self.earlier(lost_commits), "promotion", ahead)

    def promote_again(self, lost_commits: int = 0, *, ahead: int = 0) -> None:
        """It was demoted, followed another with a lag, and is the primary again: only its counters tell."""
        self.follow(self.earlier(lost_commits), ahead=ahead)

    def follow(self, table: Table, *, ahead: int = 0) -> None:
        """The same as `promote_again`: this is what the other one had. Redis: nobody's connection breaks (measured)."""
        self._go_back(table, "demoted" if self.engine.by_run else "counters", ahead)

    def take_over(self, table: Table, *, ahead: int = 0) -> None:
        """The same as `fail_over`: this is what the replica had that was promoted."""
        self._go_back(table, "promotion", ahead)

    def meet_replica(self) -> None:
        """Redis: the first replica comes, and the primary draws another master_replid. Nothing is lost."""
        self._rename("replica")

    def beside(self, lost_commits: int) -> SimStore:
        """A replica is promoted while this one goes on: two writable copies, outside of the promise."""
        other = copy(self)
        other._history = deque(self._history, maxlen=self._history.maxlen)
        other._writes += VERSIONS * VERSIONS  # what one of them draws by chance the other does not draw
        other.fail_over(lost_commits)
        return other

    def put_back(self, folder: Table, *, ahead: int = 0) -> None:
        """The data folder is put back and the server is started on it. For SQLite: the file, in place."""
        if self.engine.notes:
            self._keep_history(folder)
            self.table = folder
            return
        self._go_back(folder, "start", ahead)

    def restore_snapshot(self, snapshot: Table, *, other_token: bool) -> None:
        """etcd: a cluster is made from a snapshot, with its old token or with another one. Else as a folder."""
        if not self.engine.by_index:
            self.put_back(snapshot)
            return
        self._cluster += other_token
        self._keep_history(snapshot)
        self.table = snapshot._replace(term=TERM_RESTORED, raft_index=INDEX_RESTORED)
        self.up = True
        self._cut_all()

    def revert(self, table: Table, *, with_note: bool = True) -> None:
        """The running machine is reverted with its memory, and nobody's connection breaks: outside, by physics."""
        self._keep_history(table)
        self.table = table
        if with_note:
            self._note = {entry.name: entry.row.proof for entry in table.entries}
            self._note[GENESIS] = table.genesis.mark

    def forget(self, lost_commits: int) -> None:
        """Loses the last commits under its name, which no store may do (see `election/store.py`)."""
        for _ in range(min(lost_commits, len(self._history))):
            self.table = self._history.pop()

    def _go_back(self, table: Table, why: str, ahead: int) -> None:
        """With `ahead`, others wrote so much since that no position seems to have fallen."""
        self._keep_history(table)
        self.table = table._replace(at=table.at + ahead, raft_index=table.raft_index + ahead + 1, term=table.term + 1)
        self._rename(why)
        self.up = True
        if why not in STAYS:
            self._cut_all()

    def _keep_history(self, table: Table) -> None:
        """What was committed after this table is lost for good: no later fault brings it back."""
        if table is self.table:
            return
        while self._history and self._history.pop() is not table:
            pass

    def _rename(self, why: str) -> None:
        if self._renames(why):
            self._starts += 1
            self._runs += why in RUN_ENDS

    def _renames(self, why: str) -> bool:  # noqa: ARG002 -- what a mutant would use
        """Every start, promotion, restore and new table is another identity (L5)."""
        return True

    def _cut_all(self) -> None:
        self.breaks += 1
