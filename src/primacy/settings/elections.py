"""Several elections in one file: each entry made whole, checked, and taken out as the ordinary settings of one.

An entry says what is its own; the rest it takes from `election:` and `run:`, setting by setting. Three things follow
from what belongs together: an entry with a store of its own is on a lease unless it says otherwise; one that names a
strategy or a profile takes no single times of `election:`; and `failsafe` counts for leases alone.

What is found wrong is said of the setting that the file gives: `elections.NAME.…` if the entry does, `election.…` or
`run.…` if it was taken from there, and then once for all entries.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from primacy.errors import Problem, UsageError
from primacy.settings.checks import Checks
from primacy.settings.names import host_name
from primacy.settings.rule import key_of
from primacy.settings.schema import Settings
from primacy.settings.schema_choice import Overrides
from primacy.settings.schema_elections import ElectionEntry, Placement
from primacy.settings.timing import DEFAULT_PROFILE

ELECTIONS_MAX = 500
"""Each costs a guard and some files; whoever has more is better served by a store (docs/many.md)."""
NAMED_MAX = 12
"""Names in one sentence."""
PATH = re.compile(r"\b(?:election|run)(?:\.\w+(?:\[\d+\])?)+")


def of_election(settings: Settings, name: str) -> Settings:
    """The ordinary settings of one of the file's elections, as if it stood in the file alone."""
    entry = settings.elections[name]
    election = dataclasses.replace(
        settings.election,
        name=name,
        strategy=entry.strategy,
        profile=entry.profile,
        mode=entry.mode,
        timing=entry.timing,
        store=entry.store,
        failsafe=settings.election.failsafe and entry.strategy == "lease",
    )
    unlisted = entry.strategy == "lease" and not settings.cluster.manager.nodes
    node = settings.node or (host_name() if unlisted else "")
    return dataclasses.replace(settings, election=election, run=entry.run, elections={}, node=node)


def one_of(settings: Settings, name: str | None) -> Settings:
    """The settings of the one election that is meant. Raises `UsageError` if the file has several and none is named.

    In a file without `elections` every name is that of its one election, as always.
    """
    if not settings.elections:
        if name is None or name == settings.election.name:
            return settings
        return dataclasses.replace(settings, election=dataclasses.replace(settings.election, name=name))
    if name is None and len(settings.elections) == 1:
        name = next(iter(settings.elections))
    if name is None:
        raise UsageError(f"which election? Say --election with one of {few(settings.elections)}")
    if name not in settings.elections:
        near = difflib.get_close_matches(name, settings.elections, n=1, cutoff=0.6)
        there = f"is {near[0]} meant? There are" if near else "there are"
        raise UsageError(
            f"--election {name[:80]}: {settings.source or 'the file'} has no such election; {there} "
            f"{few(settings.elections)}"
        )
    return of_election(settings, name)


def few(names: Mapping[str, Any]) -> str:
    """Names for a sentence, in the order of the file."""
    first = list(names)[:NAMED_MAX]
    return ", ".join(first) + (f" and {len(names) - len(first)} more" if len(names) > len(first) else "")


def placements(settings: Settings) -> dict[str, Placement]:
    """Where each election should be led, by name."""
    return {name: entry.placement for name, entry in settings.elections.items()}


def completed_entries(settings: Settings, given: Mapping[str, int]) -> dict[str, ElectionEntry]:
    """Each entry with what it takes from `election` and `run`; `given`: every path that the file gives."""
    return {
        name: _completed(entry, settings, frozenset(_said(f"elections.{name}.", given)))
        for name, entry in settings.elections.items()
    }


def _said(at: str, given: Mapping[str, int]) -> Iterator[str]:
    return (path.removeprefix(at) for path in given if path.startswith(at))


def _completed(entry: ElectionEntry, settings: Settings, said: frozenset[str]) -> ElectionEntry:
    base = settings.election
    timing = base.timing
    if said & {"strategy", "profile"} or ("store.url" in said and base.strategy != "lease"):
        timing = Overrides()
    return dataclasses.replace(
        entry,
        run=_over(settings.run, entry.run, "run", said),
        strategy=entry.strategy or ("lease" if "store.url" in said else base.strategy),
        profile=entry.profile or base.profile or DEFAULT_PROFILE,
        mode=entry.mode or base.mode,
        timing=_over(timing, entry.timing, "timing", said),
        store=_over(base.store, entry.store, "store", said),
    )


def _over(base: Any, own: Any, path: str, said: frozenset[str]) -> Any:
    """A section, with what the entry says in it put in; of `name: value` pairs, pair by pair."""
    found = {}
    for field in dataclasses.fields(base):
        if f"{path}.{key_of(field)}" in said:
            value, below = getattr(own, field.name), getattr(base, field.name)
            found[field.name] = {**below, **value} if isinstance(below, dict) else value
    return dataclasses.replace(base, **found)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def problems(settings: Settings, lines: Mapping[str, int]) -> list[Problem]:
    """All relations, of all elections, each once."""
    found = list(_of_all(settings, lines))
    for name in settings.elections:
        one = of_election(settings, name)
        found += [_placed(each, name, lines) for each in Checks(one, _lines_of(name, lines)).problems()]
        found += [
            each._replace(line=_line(each.path, lines))
            for each in _placement(settings, name, settings.elections[name].placement)
        ]
    return list(dict.fromkeys(found))


def _of_all(settings: Settings, lines: Mapping[str, int]) -> Iterator[Problem]:
    if "election.name" in lines:
        yield Problem(
            "election.name",
            settings.election.name,
            "with `elections` the keys there are the names; leave this one out",
            lines["election.name"],
        )
    if len(settings.elections) > ELECTIONS_MAX:
        wrong = f"one agent has at most {ELECTIONS_MAX} elections"
        yield Problem("elections", str(len(settings.elections)), wrong, lines.get("elections", 0))
    for name, entry in settings.elections.items():
        if entry.strategy in ("bully", "ring"):
            path = f"elections.{name}.strategy"
            wrong = "its nodes join each other over HTTP, one election per agent; here use raft or lease"
            yield Problem(path, entry.strategy, wrong, _line(path, lines))


def _placement(settings: Settings, name: str, placement: Placement) -> Iterator[Problem]:
    at, nodes, elections = f"elections.{name}.placement", settings.cluster.manager.nodes, settings.elections
    for word, named in (("prefer", placement.prefer), ("only", placement.only)):
        for node in named:
            if nodes and node not in nodes:
                yield Problem(f"{at}.{word}", node, f"is no node of cluster.manager.nodes, which has {few(nodes)}")
            elif nodes and nodes[node].kind != "voter":
                yield Problem(f"{at}.{word}", node, f"is of kind {nodes[node].kind}, and never leads; name a voter")
    for node in placement.prefer:
        if placement.only and node not in placement.only:
            wrong = f"is not in {at}.only = {', '.join(placement.only)}; add it there, or leave it out here"
            yield Problem(f"{at}.prefer", node, wrong)
    for word, named in (("avoid", placement.avoid), ("with", placement.with_)):
        for other in named:
            if other == name:
                yield Problem(f"{at}.{word}", other, "is this election itself; name another one")
            elif other not in elections:
                near = difflib.get_close_matches(other, elections, n=1, cutoff=0.6)
                hint = f"; is `{near[0]}` meant?" if near else f"; there are {few(elections)}"
                yield Problem(f"{at}.{word}", other, f"there is no such election{hint}")
    for other in placement.with_:
        if other in placement.avoid or name in (elections[other].placement.avoid if other in elections else ()):
            where = f"{at}.avoid" if other in placement.avoid else f"elections.{other}.placement.avoid"
            yield Problem(f"{at}.with", other, f"{where} says the opposite; keep one of them")


def _lines_of(name: str, lines: Mapping[str, int]) -> dict[str, int]:
    """What the file gives, as if this election stood in it alone."""
    at, found = f"elections.{name}.", dict(lines)
    for path, line in lines.items():
        rest = path.removeprefix(at)
        if rest != path and not rest.startswith("placement"):
            found[rest if rest.partition(".")[0] == "run" else f"election.{rest}"] = line
    return found


def _placed(problem: Problem, name: str, lines: Mapping[str, int]) -> Problem:
    """Said of the setting that the file gives."""

    def home(path: str) -> str:
        own = f"elections.{name}.{path.removeprefix('election.')}"
        return path if _gives(path, lines, "election") and not _gives(own, lines, f"elections.{name}") else own

    path = home(problem.path) if PATH.fullmatch(problem.path) else problem.path
    wrong = PATH.sub(lambda found: home(found[0]), problem.wrong)
    return problem._replace(path=path, wrong=wrong, line=_line(path, lines))


def _gives(path: str, lines: Mapping[str, int], section: str) -> bool:
    """The setting itself, or the times that it is one of: one of these is wrong because of another."""
    timing = f"{section}.timing"
    return path in lines or path.partition("[")[0] in lines or (path.startswith(timing) and timing in lines)


def _line(path: str, lines: Mapping[str, int]) -> int:
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines.get(path, 0)
