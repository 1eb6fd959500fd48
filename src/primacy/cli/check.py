"""`primacy check`: all problems of a file at once, or its canonical form; and whether its nodes are the members."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from primacy.cli.call import FILE_NAME, Call, json_option, print_json
from primacy.errors import PrimacyError, Problem, SettingsError, UsageError
from primacy.settings import config_hash, load, timing_of
from primacy.settings.canonical import canonical
from primacy.settings.checks import notes
from primacy.settings.elections import of_election

if TYPE_CHECKING:
    from primacy.election.model import Register
    from primacy.settings.schema import Settings


GHOTI_ADDR = "localhost:9090"
"""Ghoti's default; ours is that of its cluster document."""


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--state-dir", metavar="DIR", help="The state folder of a node of this file, if it was told another one.")
@json_option
@click.pass_obj
def check(call: Call, /, *, file: str | None, state_dir: str | None, as_json: bool) -> None:
    """Check a file of settings.

    Prints its canonical form (our spelling, one order, secrets hidden), or every problem with its line, and then ends
    with 2; so does a cluster.secret_file that no node could use. Notes on what is allowed but unusual go to standard
    error: also where the members of a raft cluster are others than the nodes of the file, as a node of this machine
    says, or its state folder.
    """
    from primacy.cli.slots import unread

    name = call.file(file)
    if name is None:
        lack = f"there is no {FILE_NAME} here; name a file, or write one with `primacy new`"
        raise UsageError("\n".join([lack, *unread(None)]))
    try:
        settings = load(name, call.node)
        _read_secret(settings)
    except SettingsError as error:
        if not as_json:
            raise
        print_json({"api": 1, "file": name, "ok": False, "problems": [p._asdict() for p in error.problems]})
        raise click.exceptions.Exit(error.exit_code) from None
    if settings.elections:
        _print_many(name, settings, [*notes_of_all(settings), *unread(name)], as_json=as_json)
        return
    seen = _members_seen(call, name, state_dir) if _has_members(settings) else None
    said = [
        *notes(settings),
        *_moved_port(settings),
        *unread(name),
        *(_about_members(settings, seen) if seen is not None else []),
    ]
    form = canonical(settings)
    if as_json:
        print_json(
            {
                "api": 1,
                "file": name,
                "ok": True,
                "hash": config_hash(settings),
                "node": settings.node,
                "notes": said,
                "members": _document(settings, seen) if seen is not None else None,
                "settings": form,
                "timing": timing_of(settings)._asdict(),
            }
        )
        return
    import yaml

    click.echo(f"# {name} is right; configuration {config_hash(settings)}")
    click.echo(yaml.safe_dump(form, sort_keys=False, allow_unicode=True, width=120), nl=False)
    for note in said:
        click.echo(f"note: {note}", err=True)


def notes_of_all(settings: Settings) -> list[str]:
    """Of each election, but once what is said of all of them."""
    found: dict[str, list[str]] = {}
    for name in settings.elections:
        for note in notes(of_election(settings, name)):
            found.setdefault(note, []).append(name)
    every = len(settings.elections)
    return [note if len(names) == every else f"{', '.join(names)}: {note}" for note, names in found.items()]


def _print_many(file: str, settings: Settings, said: list[str], *, as_json: bool) -> None:
    """Of several elections each has a configuration of its own; about the members `primacy members` says more."""
    each = {name: of_election(settings, name) for name in settings.elections}
    hashes = {name: config_hash(one) for name, one in each.items()}
    form = canonical(settings)
    if as_json:
        elections = {name: {"hash": hashes[name], "timing": timing_of(one)._asdict()} for name, one in each.items()}
        about = {"api": 1, "file": file, "ok": True, "node": settings.node, "notes": said}
        print_json({**about, "elections": elections, "settings": form})
        return
    import yaml

    click.echo(f"# {file} is right; {len(each)} elections, each with its configuration:")
    for name, digest in hashes.items():
        click.echo(f"#   {name} {digest}")
    click.echo(yaml.safe_dump(form, sort_keys=False, allow_unicode=True, width=120), nl=False)
    for note in said:
        click.echo(f"note: {note}", err=True)


def _read_secret(settings: Settings) -> None:
    """Every node of this file refuses to start without it; raises with the reason."""
    if not settings.cluster.secret_file:
        return
    from primacy.transport.seal import read_secrets

    try:
        read_secrets(os.path.join(os.path.dirname(settings.source), settings.cluster.secret_file))
    except PrimacyError as error:
        wrong = str(error).partition(": ")[2]
        raise SettingsError([Problem("cluster.secret_file", settings.cluster.secret_file, wrong)]) from None


def _moved_port(settings: Settings) -> list[str]:
    """A file of Ghoti that leaves its address to the program is served elsewhere than by Ghoti."""
    from primacy.settings.ghoti import SLOT
    from primacy.settings.tree import parse, read_file

    words = parse(read_file(settings.source), settings.source).items
    if not any(SLOT.fullmatch(word) for word in words) or "addr" in words or settings.cluster.bind:
        return []
    return [
        f"addr is not given: slots are served on {settings.slots.addr}, where Ghoti serves them on {GHOTI_ADDR}; to "
        f"keep that, say addr: {GHOTI_ADDR}"
    ]


# --- the members ------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """The members, as far as this machine knows them."""

    register: Register | None
    where: str
    """Who says it; without a register, where it was looked for in vain."""


def _has_members(settings: Settings) -> bool:
    return settings.election.strategy == "raft" and bool(settings.cluster.manager.nodes)


def _members_seen(call: Call, name: str, state_dir: str | None) -> Seen:
    """Of a node that runs here, else of the ballot that one left behind."""
    from primacy.cli.local import local, place

    try:
        shown = local(call, config=name, state_dir=state_dir).get("/v1/members")
        if shown["version"] is not None:
            return Seen(_register_of(shown), f"node {shown['node']}")
    except PrimacyError:
        pass  # none runs, or it does not answer: what it keeps on the disk is looked at
    path = os.path.join(place(call, config=name, state_dir=state_dir).folder, "ballot")
    register = _kept(path)
    return Seen(register, path)


def _register_of(shown: dict[str, Any]) -> Register:
    from primacy.control.members import members_of
    from primacy.election.model import MembersId, Register

    return Register(MembersId(shown["term"], shown["version"]), members_of(shown["members"]))


def _kept(path: str) -> Register | None:
    from primacy.node.ballot import BALLOT_BYTES_MAX, unpacked

    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            data = file.read(BALLOT_BYTES_MAX)
    except OSError:
        return None
    ballot = unpacked(data).ballot
    return ballot.register if ballot is not None else None


def _differing(settings: Settings, register: Register) -> tuple[str, ...]:
    from primacy.control.members import difference, members_in

    return difference(members_in(settings), register)


def _about_members(settings: Settings, seen: Seen) -> list[str]:
    from primacy.control.members import sentence_of

    if seen.register is None:
        return [
            "whether the members of the cluster are still the nodes of this file was not seen: no node of it answers "
            f"here, and {seen.where} does not tell (--state-dir)."
        ]
    sentence = sentence_of(settings, seen.register)
    return [f"{sentence} ({seen.where} says so)."] if sentence else []


def _document(settings: Settings, seen: Seen) -> dict[str, Any]:
    register = seen.register
    if register is None:
        return {"seen": None, "looked": seen.where, "version": None, "differ": []}
    return {"seen": seen.where, "version": register.id.version, "differ": list(_differing(settings, register))}
