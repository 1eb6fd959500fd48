"""`primacy lease`: the leases in the user's own database or etcd: who holds which, for whom there is room, by force if
need be.

The store is named by --store, or by the file's `election.store`. Reading makes no table.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from primacy.cli.call import Call, SpanMs, columns, json_option, print_json, type_yes, yes_option
from primacy.control.when import instant
from primacy.election.store import FAILSAFE, Look, Row, heir_of, node_of
from primacy.errors import NotReached, Refused, UsageError
from primacy.node.clock import SystemClock
from primacy.settings.timing import DEFAULT_PROFILE, PROFILES, stretched
from primacy.store.port import LeaseStore, Listing, Lists, MakesTable, check_name

F = TypeVar("F", bound=Callable[..., Any])

LIMIT_MS = 5_000
"""A person can wait longer than a holder."""
LOOK_EVERY_S = 0.25
WAIT_MS = 60_000
"""How long `import` waits for the old lease to expire."""
DRIFT_PPM = PROFILES[DEFAULT_PROFILE].drift_ppm
DAY_MS = 86_400_000
SOME_NAME = "main"
"""A look shows the table's own row, whatever lease it is about."""


def store_options(command: F) -> F:
    """`--store`, `--table`, `--config`, in this order."""
    for option in (
        click.option("--config", metavar="FILE", help="The file that names the store."),
        click.option("--table", metavar="NAME", help="The table; default: the file's, else primacy_leases."),
        click.option(
            "--store",
            metavar="URL",
            help="Such as postgresql://host/db; default: $PRIMACY_STORE, else the file's election.store.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def lease() -> None:
    """The leases in your database or etcd. All need --store URL, or a file that names one."""


@lease.command("list")
@store_options
@json_option
@click.pass_obj
def list_leases(call: Call, /, *, as_json: bool, **where: str | None) -> None:
    """All leases: who holds them, with which token.

    The time is when the holder last renewed it, by the store's clock.
    """
    with opened(call, where) as here:
        listings = listings_of(here)
    wrong = {listing.name: refused(listing) for listing in listings if listing.row is None}
    if as_json:
        found = [document(listing) for listing in listings if listing.row is not None]
        print_json({"api": 1, "leases": found, "refused": wrong})
    elif not listings:
        click.echo("there is no lease in this store")
    else:
        table_of(listings)
    if wrong:
        for sentence in wrong.values():
            click.echo(sentence, err=True)
        raise Refused(f"{len(wrong)} of {len(listings)} rows are not leases; the lines above say which")


@lease.command()
@click.argument("name")
@store_options
@json_option
@click.pass_obj
def show(call: Call, /, *, name: str, as_json: bool, **where: str | None) -> None:
    """One lease, whole."""
    check_row_name(name)
    with opened(call, where) as here:
        listing = next((listing for listing in listings_of(here) if listing.name == name), None)
    if listing is None:
        raise Refused(f"there is no lease {name!r} in this store")
    if listing.row is None:
        raise Refused(refused(listing))
    if as_json:
        print_json({"api": 1, **document(listing)})
        return
    for key, value in document(listing).items():
        click.echo(f"{key:12} {value}")


@lease.command()
@click.argument("name")
@store_options
@json_option
@click.pass_obj
def watch(call: Call, /, *, name: str, as_json: bool, **where: str | None) -> None:
    """Every change of one lease, until Ctrl-C.

    A line when it is taken, released or not renewed any more, and when the store is another one or does not answer.
    """
    from primacy.store import perform

    check_row_name(name)
    with opened(call, where) as here:
        watched = Watched(name)
        while True:
            (answer,) = perform(here, [Look(name)])
            for sentence in watched.look(SystemClock().now_ms(), answer.ok, answer.row, answer.server, answer.reason):
                at = instant(SystemClock().wall_ms())
                line = {"api": 1, "at": at, "lease": name, "text": sentence, "row": plain(answer.row)}
                click.echo(json.dumps(line, ensure_ascii=False) if as_json else f"{at}  {sentence}")
            time.sleep(LOOK_EVERY_S)


@lease.command()
@store_options
@click.option("--user", metavar="NAME", help="Who gets the rights; default: the user in the address.")
@click.option(
    "--new", "is_new", is_flag=True, help="Make the table now: there was never one here. Names are then free."
)
@click.option("--wait-max-ms", type=SpanMs(1), help="Raise the longest wait that the table admits.")
@yes_option
@json_option
@click.pass_obj
def schema(
    call: Call,
    /,
    *,
    user: str | None,
    is_new: bool,
    wait_max_ms: int | None,
    yes: bool,
    as_json: bool,
    **where: str | None,
) -> None:
    """Print the table, and the rights it needs.

    For an administrator to run, where the user of the leases may make no table. Connects to nothing, but with --new or
    --wait-max-ms: these change the table.
    """
    from primacy.store import schema as schemas

    if is_new or wait_max_ms is not None:
        make_table(call, where, is_new, wait_max_ms or 0, yes, as_json)
        return
    url, table = place(call, **where)
    kind = schemas.kind_of(url)
    text = schemas.schema(kind, table, user or schemas.user_of(url))
    if as_json:
        print_json({"api": 1, "store": kind, "table": table, "text": text})
        return
    click.echo(text, nl=False)


@lease.command("import")
@store_options
@click.option("--from", "old_table", metavar="TABLE", default="locks", show_default=True, help="The old table.")
@click.option("--key", default="coordinator_lock", show_default=True, help="The old lock_key.")
@click.option("--name", default="coordinator", show_default=True, help="The new lease's name.")
@click.option("--wait-ms", default=WAIT_MS, show_default=True, type=SpanMs(), help="For the old lease to end.")
@json_option
@click.pass_obj
def import_(
    call: Call, /, *, old_table: str, key: str, name: str, wait_ms: int, as_json: bool, **where: str | None
) -> None:
    """Take over from the `locks` table of old nodes.

    Its columns are lock_key, owner_id and expires_at. Stop the old nodes first: the row is taken by their own rules,
    when it has expired, and so that no old node can ever lead again.
    """
    from primacy.store import sql_coordinator

    clock = SystemClock()
    end_ms = clock.now_ms() + wait_ms
    told = ""
    with opened(call, where) as here:
        # before anything is made: a wrong address has no such table
        sql_coordinator.CoordinatorTable(here, old_table, key).look()
    with opened(call, where, create=True) as here:
        while True:
            found = sql_coordinator.import_coordinator(
                here, name, os.urandom(8).hex(), stretched(sql_coordinator.LEASE_MS, DRIFT_PPM), old_table, key
            )
            if isinstance(found, Row):
                break
            if clock.now_ms() >= end_ms:
                raise Refused(
                    f"{key!r} is held by {found.owner} until {found.expires_at}, and goes on being renewed: stop the "
                    "old nodes, then say this again. Nothing was changed"
                )
            if found.owner != told:
                click.echo(f"waiting: {key!r} is held by {found.owner} until {found.expires_at}", err=True)
                told = found.owner
            time.sleep(0.5)
    if as_json:
        print_json({"api": 1, "lease": name, "row": plain(found)})
        return
    click.echo(
        f"lease {name} is made, and {key!r} in {old_table} is closed for good; the first node leads after "
        f"{found.wait_ms:,} ms (election.name: {name}, election.profile: coordinator)"
    )


@lease.command()
@store_options
@click.option("--days", type=click.IntRange(7), default=7, show_default=True, help="Unused for longer than this.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
@click.pass_obj
def prune(call: Call, /, *, days: int, dry_run: bool, as_json: bool, **where: str | None) -> None:
    """Remove leases that nobody has used for a week or more.

    Only released ones. Tokens go on above those of the removed rows.
    """
    from primacy.store import pruning

    wall_ms = SystemClock().wall_ms()
    removed: list[str] = []
    kept: dict[str, str] = {}
    with opened(call, where) as here:
        for listing in listings_of(here):
            if listing.row is None:
                kept[listing.name] = refused(listing)
                continue
            if not listing.row.released or pruning.unused_ms(listing, wall_ms) <= days * DAY_MS:
                continue
            why = "" if dry_run else pruning.prune(here, listing.name)
            if why:
                kept[listing.name] = why
            else:
                removed.append(listing.name)
    if as_json:
        print_json({"api": 1, "removed": removed, "kept": kept, "dry_run": dry_run})
    else:
        for name in removed:
            click.echo(f"lease {name} {'would be' if dry_run else 'is'} removed")
        for name, why in kept.items():
            click.echo(f"lease {name} stays: {why}", err=True)
        if not removed and not kept:
            click.echo(f"no lease was unused for {days} days")
    if kept:
        raise Refused(f"{len(kept)} of {len(kept) + len(removed)} leases stay; the lines above say why")


@lease.command("break")
@click.argument("name")
@store_options
@click.option("--now", "at_once", is_flag=True, help="Do not wait until the old holder's work is surely dead.")
@click.option("--free", "stopped", metavar="NODES", help="A failsafe lease: all nodes of its list, which are stopped.")
@yes_option
@json_option
@click.pass_obj
def break_(
    call: Call, /, *, name: str, at_once: bool, stopped: str | None, yes: bool, as_json: bool, **where: str | None
) -> None:
    """Take a lease away from its holder.

    It becomes free when the old holder's work is surely dead. With --now it is free at once, and two may work for a
    while. A failsafe lease (its name begins with =) goes to a node of its list; it becomes free for all with --free.
    """
    from primacy.store import breaking

    check_row_name(name)
    clock = SystemClock()
    with opened(call, where) as here:
        seen = breaking.seen(here, name)
        if seen.row is None:
            raise Refused(f"there is no lease {name!r} in this store: nothing was done")
        if seen.row.released or seen.row.is_placeholder:
            raise Refused(f"nobody holds the lease {name!r}: {holder_of(seen.row)}. Nothing was done")
        frees = check_list(name, seen.row, at_once, stopped)
        confirm(name, seen.row, at_once, stopped, yes)
        seen = breaking.seen(here, name)  # it went on while somebody thought about it
        own_wait_ms = stretched(seen.row.hold_ms, DRIFT_PPM) if seen.row is not None else 0
        row = breaking.evict(here, seen, name, os.urandom(6).hex(), clock.wall_ms(), own_wait_ms)
        try:
            if frees and not at_once:
                wait_out(name, row, clock)
            freed = frees and breaking.let_go(here, name, row)
        except KeyboardInterrupt:
            left = f"lease {name} stays taken away, and becomes free by itself after {row.wait_ms:,} ms"
            click.echo(left, err=True)
            raise
    if as_json:
        waited = frees and not at_once
        print_json({
            "api": 1, "lease": name, "token": row.token, "was": plain(seen.row), "waited": waited, "free": freed
        })  # fmt: skip
        return
    click.echo(broken(name, row, frees, freed))


def broken(name: str, row: Row, frees: bool, freed: bool) -> str:
    """What came of it."""
    if not frees:
        return (
            f"lease {name} is taken away; a listed node takes it within {row.wait_ms:,} ms and a few looks; if none "
            "reaches the store, nobody does"
        )
    if not freed:
        return (
            f"lease {name} was taken away, and was not released: somebody has taken it since, or the store was "
            f"restarted; it becomes free by itself after {row.wait_ms:,} ms"
        )
    return f"lease {name} is free; tokens go on above {row.token}"


def check_list(name: str, row: Row, at_once: bool, stopped: str | None) -> bool:
    """Whether the row is to be released in the end. Refuses what would not be safe for a failsafe row (L7)."""
    from primacy.store import breaking

    if not row.members:
        if stopped is not None:
            raise UsageError(f"--free is for a failsafe lease; {name} has no list of nodes")
        return True
    if at_once:
        raise Refused(
            f"the holder of {name} may live on by the nodes of its list alone, so that --now is not offered. Without "
            "it a listed node takes over; --free NODES says that all of them are stopped"
        )
    if stopped is None:
        return False
    nodes = tuple(node.strip() for node in stopped.split(",") if node.strip())
    if not breaking.is_whole_list(row, nodes):
        raise Refused(
            f"--free {stopped}: these are not all nodes of the list of {name}. Name every one, with commas between "
            "them, and only if each of them is stopped"
        )
    return True


def make_table(
    call: Call, where: dict[str, str | None], is_new: bool, wait_max_ms: int, yes: bool, as_json: bool
) -> None:
    """`lease schema --new`, `--wait-max-ms`."""
    _, table = place(call, **where)
    if is_new:
        risk = (
            f"--new says that nobody ever held a lease in {table} of this store: not in a table that was "
            "dropped, nor in one that a backup lacks. Names are then free at once; if it is not so, two may work for "
            "up to the longest wait."
        )
        type_yes(risk, yes)
    with opened(call, where, create=True) as here:
        assert isinstance(here, MakesTable)
        here.make_table(new=is_new, wait_max_ms=wait_max_ms)
        (answer,) = here.look([Look(SOME_NAME)])
    wait_ms = 0 if answer.genesis is None else answer.genesis.wait_max_ms
    if as_json:
        print_json({"api": 1, "table": table, "new": is_new, "wait_max_ms": wait_ms})
        return
    click.echo(f"table {table} is there; its longest wait is {wait_ms:,} ms")


def wait_out(name: str, row: Row, clock: SystemClock) -> None:
    """Until whoever held it before is surely dead."""
    until_ms = clock.now_ms() + row.wait_ms + 1
    click.echo(f"lease {name} is taken away; waiting {row.wait_ms:,} ms until its work is surely dead", err=True)
    while (left_ms := until_ms - clock.now_ms()) > 0:
        time.sleep(left_ms / 1_000)


def confirm(name: str, row: Row, at_once: bool, stopped: str | None, yes: bool) -> None:
    """What is at risk, and a typed yes."""
    risk = f"{holder_of(row)} loses the lease {name}: its work is stopped, and another node may begin."
    if stopped is not None:
        risk += f" You say that {stopped} are all stopped: if one of them runs, it and the next holder may both work."
    if at_once:
        risk += (
            f" With --now the next one does not wait: for up to {row.hold_ms:,} ms both may work, and only a check of "
            "the token at the resource keeps them apart."
        )
    type_yes(risk, yes)


def check_row_name(name: str) -> None:
    """A failsafe row's name has a sign before it."""
    check_name(name.removeprefix(FAILSAFE))


# --- the store --------------------------------------------------------------------------------------------------------


def place(call: Call, *, store: str | None, table: str | None, config: str | None) -> tuple[str, str]:
    """Address and table: as said, or as the environment or the file says."""
    from primacy.settings.loading import STORE_VARIABLE

    store = store or os.environ.get(STORE_VARIABLE)
    if store:
        return store, table or "primacy_leases"
    name = call.file(config)
    if name is None:
        raise UsageError("which store? say --store URL, such as --store postgresql://host/db, or set PRIMACY_STORE")
    from primacy.settings import load, store_url

    settings = load(name, call.node)
    found = settings.election.store
    if not found.url:
        raise UsageError(f"{name} names no election.store.url; say --store URL")
    return store_url(settings), table or found.table


@contextmanager
def opened(call: Call, where: dict[str, str | None], create: bool = False) -> Iterator[LeaseStore]:
    from primacy.store import open_store

    url, table = place(call, **where)
    if url.startswith("memory:"):
        raise UsageError("memory: is inside of the process that uses it; from here there is nothing to be seen of it")
    here = open_store(url, table=table, limit_ms=LIMIT_MS, create=create)
    try:
        yield here
    finally:
        here.close()


def listings_of(store: LeaseStore) -> list[Listing]:
    if not isinstance(store, Lists):
        raise NotReached("this store cannot list its leases")
    return store.listings()


def table_of(listings: list[Listing]) -> None:
    """All that can be read, in columns."""
    rows = [("lease", "held by", "token", "hold", "written (by the store's clock)")]
    for name, row, written_at, _ in listings:
        if row is not None:
            rows.append((name, holder_of(row), str(row.token), f"{row.hold_ms:,} ms", written_at))
    click.echo("\n".join(columns(rows)))


# --- words ------------------------------------------------------------------------------------------------------------


def holder_of(row: Row) -> str:
    if row.is_placeholder:
        return "nobody (a name that was asked for and not taken yet)"
    if row.released:
        return f"nobody (released by {node_of(row.holder)}" + (f" to {heir_of(row)})" if heir_of(row) else ")")
    return f"node {node_of(row.holder)}"


def refused(listing: Listing) -> str:
    """What is wrong with a row, and what helps."""
    return (
        f"{listing.wrong}. Nobody can take this lease ({listing.name}): put its row right, or, "
        "if nothing works under it, "
        "remove the row by hand"
    )


def document(listing: Listing) -> dict[str, Any]:
    return {"lease": listing.name, **(plain(listing.row) or {}), "written_at": listing.written_at}


def plain(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {"node": node_of(row.holder), **row._asdict()}


class Watched:
    """What is worth a line in `lease watch`. Pure: it is told the time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._last: tuple[Any, ...] | None = None
        self._seq = -1
        self._since_ms = 0
        self._silent = False
        self._server = ""
        self._failed = False

    def look(self, now_ms: int, ok: bool, row: Row | None, server: str, reason: str) -> list[str]:
        """The sentences that this look is worth."""
        if not ok:
            said = [] if self._failed else [f"the store does not answer: {reason}"]
            self._failed = True
            return said
        said = ["the store answers again"] if self._failed else []
        self._failed = False
        if self._server and server != self._server:
            said.append(f"another server answers: {server}; the observation starts anew")
            self._since_ms = now_ms
        self._server = server
        key = () if row is None else (row.holder, row.token, row.released, row.successor)
        if key != self._last:
            self._last, self._silent = key, False
            said.append("nobody has used this name yet" if row is None else f"{holder_of(row)}, token {row.token}")
        seq = -1 if row is None else row.seq
        if seq != self._seq:
            if self._silent:
                said.append("renewed again")
            self._seq, self._since_ms, self._silent = seq, now_ms, False
        elif row is not None and not row.released and not self._silent and now_ms > self._since_ms + row.wait_ms:
            self._silent = True
            said.append(f"not renewed for {now_ms - self._since_ms:,} ms: free for the next that asks")
        return said
