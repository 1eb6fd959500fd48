"""How the commands find the node of this machine, and the options that all of them share."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from primacy.cli.call import Call
from primacy.control.client import Found, ask, find
from primacy.errors import NotReached, UsageError

F = TypeVar("F", bound=Callable[..., Any])


class Local(NamedTuple):
    """Whom a command speaks to."""

    folder: str
    election: str
    found: Found

    def get(self, path: str) -> Any:
        return ask(self.found, path)

    def order(self, name: str, **body: Any) -> Any:
        """The state after it."""
        return ask(self.found, f"/v1/{name}", body)


def local_options(command: F) -> F:
    """Which node is meant."""
    for option in (
        click.option("--state-dir", metavar="DIR", help="The state folder, as `primacy run` was told."),
        click.option("--election", metavar="NAME", help="Which election; default: main."),
        click.option("--config", metavar="FILE", help="The file that the node was started with."),
    ):
        command = option(command)
    return command


class Place(NamedTuple):
    """Where the node of an election keeps its things on this machine, whether it runs or not."""

    above: str
    folder: str
    election: str

    @property
    def events_file(self) -> str:
        from primacy.control.eventlog import FILE_NAME

        return os.path.join(self.folder, FILE_NAME)

    def has_events(self) -> bool:
        return os.path.isfile(self.events_file)

    def nobody(self) -> NotReached:
        return NotReached(_nobody(self.above, self.folder, self.election))


def local(call: Call, config: str | None, election: str | None, state_dir: str | None) -> Local:
    """The node that runs here, or `NotReached` with the command that starts one."""
    where = place(call, config, election, state_dir)
    found = find(where.folder, call.at)
    if found is None:
        raise where.nobody()
    return Local(where.folder, where.election, found)


def place(call: Call, config: str | None, election: str | None, state_dir: str | None) -> Place:
    """Which folder is meant."""
    from primacy.agent.state import state_root
    from primacy.settings import load
    from primacy.settings.schema import NAME_PATTERN

    settings = load(call.file(config), call.node)
    if election is not None and not re.fullmatch(NAME_PATTERN, election):
        raise UsageError(f"--election {election[:80]!r}: a name has letters, digits, dots, dashes or underscores")
    if state_dir is not None:
        settings = dataclasses.replace(settings, state_dir=os.path.abspath(state_dir))
    name = election or settings.election.name
    above = os.path.join(state_root(settings, os.environ, os.geteuid()), settings.cluster.name)
    return Place(above, os.path.join(above, name), name)


def _nobody(above: str, folder: str, name: str) -> str:
    """Says where it was looked, and what to do next."""
    try:
        others = [each for each in sorted(os.listdir(above)) if each != name and find(os.path.join(above, each))]
    except OSError:
        others = []
    said = f"no node of election {name} runs here (its folder would be {folder})"
    if others:
        return f"{said}; there is one of {', '.join(others)}: primacy status --election {others[0]}"
    return f"{said}; start one: primacy run -- CMD, or say --config or --state-dir as it was started"
