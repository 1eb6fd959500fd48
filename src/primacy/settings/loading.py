"""One function from a file to a complete `Settings`, or to all of its problems."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path

from primacy.errors import Problem, SettingsError
from primacy.settings.accepted import wrong_store
from primacy.settings.checks import Checks, overridden, profile_or_default
from primacy.settings.checks_cache import MIXED_PROFILE, default_security
from primacy.settings.elections import completed_entries
from primacy.settings.elections import problems as problems_of_elections
from primacy.settings.ghoti import moved
from primacy.settings.names import host_name
from primacy.settings.reading import TreeReader
from primacy.settings.schema import Settings
from primacy.settings.schema_cache import Cache
from primacy.settings.timing import DEFAULT_PROFILE, RANK_PROFILES, RankTiming, Timing
from primacy.settings.tree import Entries, of_plain, parse, read_file

STORE_VARIABLE = "PRIMACY_STORE"
"""The address of the store of an election by lease, over the file's: so that its password stands on no command line."""


def load(path: str | Path | None, node: str | None = None, *, any_node: bool = False) -> Settings:
    """The settings in the file, or the defaults (one node, alone) without one. `node`: which one this is; with
    `any_node` it need not be listed, as one that was removed is not.

    Raises `SettingsError` with every problem.
    """
    store = os.environ.get(STORE_VARIABLE, "")
    if path is None:
        return of_tree(Entries(), node, store=store)
    return of_tree(parse(read_file(path), str(path)), node, str(path), any_node=any_node, store=store)


def of_mapping(values: Mapping[str, object], node: str | None = None) -> Settings:
    """The settings in a mapping of Python values, under the same rules as a file."""
    tree = of_plain(values)
    assert isinstance(tree, Entries)
    return of_tree(tree, node)


def of_tree(
    tree: Entries, node: str | None = None, source: str = "", *, any_node: bool = False, store: str = ""
) -> Settings:
    """The settings in a tree: moved into our spelling, walked, completed, checked. `store`: of the environment."""
    tree, problems = moved(tree)
    reader = TreeReader()
    settings = reader.section(Settings, tree, "")
    assert isinstance(settings, Settings)
    problems += reader.problems
    if store and _takes_store(settings):
        amiss = wrong_store(store)
        problems += [Problem(STORE_VARIABLE, "", amiss)] if amiss else []
        settings = _with_store(settings, store)
    settings = completed(settings, reader.lines, node, source)
    # A relation of a setting that is itself wrong would be checked with its default, and blame the innocent.
    wrong = {p.path for p in problems}
    broken = (
        problems_of_elections(settings, reader.lines)
        if settings.elections
        else Checks(settings, reader.lines).problems()
    )
    problems += [p for p in broken if not _about(p, wrong)]
    if any_node:
        problems = [p for p in problems if p.path != "--node"]
    if problems:
        raise SettingsError(sorted(problems, key=lambda p: p.line), source)
    return settings


def _takes_store(settings: Settings) -> bool:
    """An election by lease is meant, or nothing is said: a list of nodes is never turned into a lease by a variable."""
    election, manager = settings.election, settings.cluster.manager
    if election.strategy or election.store.url:
        return election.strategy in ("", "lease")
    return not (manager.nodes or manager.addr or manager.join)


def _with_store(settings: Settings, url: str) -> Settings:
    """A relative file of SQLite counts from the working folder, as on a command line."""
    head, found, path = url.partition(":///")
    url = f"{head}:///{os.path.abspath(path)}" if found and head.startswith("sqlite") else url
    store = dataclasses.replace(settings.election.store, url=url)
    return dataclasses.replace(settings, election=dataclasses.replace(settings.election, store=store))


def completed(settings: Settings, given: Mapping[str, int], node: str | None, source: str) -> Settings:
    """Fills in the defaults that depend on other settings."""
    cluster, election, slots = settings.cluster, settings.election, settings.slots
    manager = cluster.manager
    if not manager.type:
        kind = "static" if manager.nodes else "join_server" if manager.addr or manager.join else "none"
        manager = dataclasses.replace(manager, type=kind)
    if not election.strategy:
        strategy = "bully" if manager.type == "join_server" else "lease" if election.store.url else "raft"
        election = dataclasses.replace(election, strategy=strategy)
    if cluster.bind and "slots.addr" not in given:
        slots = dataclasses.replace(slots, addr=cluster.bind)
    cache = settings.cache
    if cache != Cache():  # a file without a cache has nothing to say about it
        cache = dataclasses.replace(
            cache,
            profile=cache.profile or (MIXED_PROFILE if cache.mode == "mixed" else DEFAULT_PROFILE),
            security=cache.security or default_security(cache, cluster.secret_file),
        )
    whole = dataclasses.replace(settings, cluster=dataclasses.replace(cluster, manager=manager), election=election)
    return dataclasses.replace(
        whole,
        elections=completed_entries(whole, given),
        slots=slots,
        cache=cache,
        node=this_node(node, cluster.node, manager.nodes or cache.peers)
        or (host_name() if election.strategy == "lease" and not manager.nodes else ""),
        source=source,
    )


def this_node(said: str | None, in_file: str, nodes: Mapping[str, object]) -> str:
    """Which node this is: what was said, else what the file says, else the host name if it is listed."""
    if said or in_file:
        return said or in_file
    host = os.uname().nodename
    return next((name for name in (host, host.partition(".")[0]) if name in nodes), "")


def timing_of(settings: Settings) -> Timing | RankTiming:
    """The times that count: the profile's, with `election.timing` put in."""
    election = settings.election
    return overridden(profile_or_default(election.strategy, election.profile), election.timing)


def rank_timing_of(settings: Settings) -> RankTiming:
    """The times of one that holds nothing: bully, ring, or a user's own strategy that promises no more."""
    election = settings.election
    timing = overridden(RANK_PROFILES.get(election.profile, RANK_PROFILES[DEFAULT_PROFILE]), election.timing)
    assert isinstance(timing, RankTiming)
    return timing


def store_url(settings: Settings) -> str:
    """The store's address; a relative file of SQLite counts from the folder of the settings, like all files in them."""
    url = settings.election.store.url
    head, found, path = url.partition(":///")
    if settings.source and found and head.startswith("sqlite") and not path.startswith("/"):
        return f"{head}:///{os.path.join(os.path.abspath(os.path.dirname(settings.source)), path)}"
    return url


def security_of(settings: Settings) -> str:
    """How the peers of the cache know each other: as the file says, or its default."""
    return settings.cache.security or default_security(settings.cache, settings.cluster.secret_file)


def is_ranked(settings: Settings) -> bool:
    """The strategy is one of those that speak through the HTTP manager."""
    return settings.election.strategy in ("bully", "ring")


def has_peers(settings: Settings) -> bool:
    """Whether this node speaks to others: several are listed; on a lease, where they need not, there is a secret. One
    of raft that is listed with its address and a secret may get others while it runs (rules R)."""
    listed, has_secret = len(settings.cluster.manager.nodes), bool(settings.cluster.secret_file)
    if settings.election.strategy == "raft":
        return listed > 1 or (listed == 1 and has_secret)
    return listed > 1 and (settings.election.strategy != "lease" or has_secret)


def containment_required(settings: Settings) -> str:
    """`strong` or `any`: what was said, else `strong` wherever another node could start the command, too."""
    alone = not is_ranked(settings) and settings.election.strategy != "lease" and not has_peers(settings)
    return settings.run.require_containment or ("any" if alone else "strong")


def membership_rows(settings: Settings) -> tuple[tuple[str, str, int], ...]:
    """(id, kind, priority) of every node of the fixed list, in id order; without a list, this node alone."""
    nodes = settings.cluster.manager.nodes
    if not nodes:
        return ((settings.node or "a", "voter", 0),)
    return tuple((name, nodes[name].kind, nodes[name].priority) for name in sorted(nodes))


def _about(problem: Problem, wrong: set[str]) -> bool:
    """The relation is about a setting whose own value is wrong already."""
    named = set(re.findall(r"[\w.\[\]-]+", problem.wrong))
    return any(path == problem.path or ("." in path and path in named) for path in wrong)
