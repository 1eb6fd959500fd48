"""Relations between settings: what each alone cannot know. Every problem names both settings and both values.

The inequalities of time are those of the safety rules: inside the hold stand, in this order, heartbeat, TERM, KILL,
dead-man; between them must be room for the kill itself; and a successor must not start before the predecessor is dead.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from primacy.errors import Problem
from primacy.settings.accepted import ID_CHARS_MAX, ID_PATTERN, NAME_PATTERN, STRATEGIES, wrong_id
from primacy.settings.checks_cache import cache_problems
from primacy.settings.schema import Settings
from primacy.settings.schema_cache import Cache
from primacy.settings.schema_choice import Overrides
from primacy.settings.schema_work import Probe, Slot, Slots, Tls
from primacy.settings.timing import DEFAULT_PROFILE, PROFILES, RANK_PROFILES, RankTiming, Timing, for_lease, profiles_of

KILL_MS = 50
"""From SIGKILL to the last instruction of the tree: 16 ms were measured for 154 processes; three times that is kept."""
LATE_MS = 60
"""How late a timer of the guard may fire on a busy machine: 56 ms was the worst of eight busy processes, two cores."""
LOST_HEARTBEATS_LEAST = {"raft": 2, "lease": 1}
"""Renewals that may be lost in a row. One suffices for a lease: its store speaks over connections that repeat by
themselves, and renewing at a third of the hold leaves room for one."""
NODES_MAX = 100
"""A fixed list. Bully sends n² messages per failure and raft n per heartbeat; nobody asked for more."""
PASSWORD_BYTES_MAX = 39
"""What a line of the slot server holds besides its letter."""
LOOPBACK = re.compile(r"(localhost|127\.[0-9.]+|\[::1\]):[0-9]+")


def base_strategy(strategy: str) -> str:
    """Whose times and profiles count: a plugged-in strategy is treated as one that holds something."""
    return strategy if strategy in STRATEGIES else "raft"


def ranked(strategy: str) -> bool:
    """Bully and ring: they hold nothing."""
    return base_strategy(strategy) in ("bully", "ring")


def profile_or_default(strategy: str, profile: str) -> Timing | RankTiming:
    """The profile's times; the default's if it does not fit, so that further checks can go on."""
    if ranked(strategy):
        return RANK_PROFILES.get(profile, RANK_PROFILES[DEFAULT_PROFILE])
    found = PROFILES.get(profile, PROFILES[DEFAULT_PROFILE])
    return for_lease(found) if strategy == "lease" else found


def overridden(timing: Timing | RankTiming, over: Overrides) -> Timing | RankTiming:
    """The times with the given single values put in."""
    given = {name: getattr(over, name) for name in timing._fields if getattr(over, name, None) is not None}
    return timing._replace(**given)


def round_trip_ms(timing: Timing | RankTiming) -> int:
    """What we allow an answer to take in calculations: a tenth of a heartbeat."""
    return max(1, timing.heartbeat_ms // 10)


def lost_heartbeats(timing: Timing) -> int:
    """Renewals in a row that may be lost before TERM."""
    return max(0, (timing.term_at_ms - round_trip_ms(timing)) // timing.heartbeat_ms - 1)


def timing_problems(timing: Timing, strategy: str, prefix: str = "election.timing.") -> list[Problem]:
    """Every inequality that the times of a holding strategy break."""
    found: list[Problem] = []

    def refuse(low: str, high: str, why: str, remedy: str) -> None:
        both = f"{prefix}{low} = {getattr(timing, low)} and {prefix}{high} = {getattr(timing, high)}"
        found.append(Problem(f"{prefix}{low}", str(getattr(timing, low)), f"{why} ({both}); {remedy}"))

    order = ("heartbeat_ms", "term_at_ms", "kill_at_ms", "deadman_at_ms", "hold_ms")
    for low, high in pairwise(order):
        if getattr(timing, low) >= getattr(timing, high):
            refuse(low, high, f"must be below {prefix}{high}", f"set {low} below {getattr(timing, high)}")
    if found:
        return found  # the rest would only repeat it
    late = timing.kill_at_ms + KILL_MS + LATE_MS - timing.hold_ms
    if late > 0:
        why = f"leaves {timing.hold_ms - timing.kill_at_ms} ms to kill, where {KILL_MS + LATE_MS} ms are needed"
        refuse("kill_at_ms", "hold_ms", why, f"set kill_at_ms to at most {timing.kill_at_ms - late}")
    late = timing.deadman_at_ms + KILL_MS - timing.hold_ms
    if late > 0:
        why = f"leaves the kernel {timing.hold_ms - timing.deadman_at_ms} ms to kill, where {KILL_MS} ms are needed"
        refuse("deadman_at_ms", "hold_ms", why, f"set deadman_at_ms to at most {timing.deadman_at_ms - late}")
    least = LOST_HEARTBEATS_LEAST[base_strategy(strategy)]
    if lost_heartbeats(timing) < least:
        heartbeat = (timing.term_at_ms - round_trip_ms(timing)) // (least + 1)
        why = f"bears {lost_heartbeats(timing)} lost heartbeats before TERM, where {least} are needed"
        refuse("heartbeat_ms", "term_at_ms", why, f"set heartbeat_ms to at most {max(1, heartbeat)}")
    if base_strategy(strategy) == "raft" and timing.promise_ms < timing.wait_ms:
        why = f"is shorter than the hold on the fastest clock, {timing.wait_ms} ms, so that every winner would wait"
        refuse("promise_ms", "hold_ms", why, f"set promise_ms to at least {timing.wait_ms}")
    if base_strategy(strategy) == "raft" and timing.spread_ms < 2 * round_trip_ms(timing):
        why = "leaves candidates no time to campaign one after the other"
        refuse("spread_ms", "heartbeat_ms", why, f"set spread_ms to at least {2 * round_trip_ms(timing)}")
    return found


def rank_timing_problems(timing: RankTiming, prefix: str = "election.timing.") -> list[Problem]:
    """Relations of the times of bully and ring."""
    found = []
    if timing.coordinator_ms < timing.election_ms:
        wrong = (
            f"is shorter than {prefix}election_ms = {timing.election_ms}: one who was told OK would call again before "
            f"the other has asked; set coordinator_ms to at least {timing.election_ms}"
        )
        found.append(Problem(f"{prefix}coordinator_ms", str(timing.coordinator_ms), wrong))
    return found


def profile_problem(strategy: str, profile: str, path: str = "election.profile") -> Problem | None:
    """A profile that is unknown or does not fit the strategy, with the names that do."""
    fitting = profiles_of(strategy)
    if profile in fitting:
        return None
    known = profile in PROFILES or profile in RANK_PROFILES
    wrong = f"does not fit the strategy {strategy}" if known else "there is no such profile"
    return Problem(path, profile, f"{wrong}; {strategy} has {', '.join(fitting)}")


class Checks:
    """All relations of one `Settings`. `lines` says which settings the file gives, and where."""

    def __init__(self, settings: Settings, lines: Mapping[str, int]) -> None:
        self.settings = settings
        self.lines = lines

    def problems(self) -> list[Problem]:
        parts = (self._strategy, self._times, self._nodes, self._manager, self._node, self._run, self._slots)
        found = [problem for part in (*parts, self._cache, self._control) for problem in part()]
        return [p._replace(line=self._line(p.path)) for p in found]

    def _line(self, path: str) -> int:
        """The line of the setting, or of the nearest section above it that the file gives."""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 0)

    def _given(self, path: str) -> bool:
        return path in self.lines

    def _strategy(self) -> Iterator[Problem]:
        e, manager = self.settings.election, self.settings.cluster.manager
        if e.strategy == "raft" and manager.type == "join_server":
            yield _p(
                "election.strategy",
                e.strategy,
                "counts votes over a fixed list, which cluster.manager.type = join_server does not give; "
                "set cluster.manager.type to static and list the nodes, or election.strategy to bully",
            )
        if e.strategy == "lease" and not e.store.url:
            yield _p("election.store.url", "", "election.strategy = lease needs a store, such as sqlite:///leases.db")
        yield from self._advisory()
        if e.failsafe and e.strategy in ("raft", "bully", "ring"):
            yield _p("election.failsafe", "true", f"only lease uses it, and election.strategy is {e.strategy}")
        if not ranked(e.strategy):
            for word, value in (
                ("rank", e.rank),
                ("require_majority", "true"),
                ("prune_after_ms", str(e.prune_after_ms)),
            ):
                if self._given(f"election.{word}") and getattr(e, word) not in ("id", False, 0):
                    yield _p(
                        f"election.{word}", value, f"only bully and ring use it; election.strategy is {e.strategy}"
                    )
        if e.rank == "started" and manager.type == "static":
            yield _p(
                "election.rank",
                "started",
                "a node tells when it was started as it joins, and cluster.manager.type = static has a fixed list; use "
                "id, natural or priority",
            )
        leaders = sum(node.kind == "voter" for node in manager.nodes.values())
        if e.failsafe and e.strategy == "lease" and leaders < 2:
            yield _p(
                "election.failsafe",
                "true",
                f"needs a fixed list of at least two nodes that may lead, and cluster.manager.nodes has {leaders}",
            )

    def _advisory(self) -> Iterator[Problem]:
        """A node's command must not run twice, and on such a store nobody can promise that."""
        e = self.settings.election
        in_url = _option(e.store.url, "durability") == "advisory"
        if e.strategy != "lease" or (e.store.durability != "advisory" and not in_url):
            return
        path, value = ("url", "?durability=advisory") if in_url else ("durability", "advisory")
        path = f"election.store.{path}"
        if e.store.url and not re.match("rediss?:", e.store.url):
            yield _p(path, value, "only redis:// has it; leave it out, for other stores keep what they answer")
            return
        yield _p(
            path,
            value,
            "two nodes can hold the lease at once, and a node must not; leave it out and set appendonly yes, "
            "appendfsync always and maxmemory-policy noeviction on one server without Sentinel or Cluster, or keep the "
            "lease in a database (postgresql://host/db)",
        )

    def _times(self) -> Iterator[Problem]:
        e = self.settings.election
        wrong = profile_problem(e.strategy, e.profile)
        if wrong:
            yield wrong
        base = profile_or_default(e.strategy, e.profile)
        for name in Overrides.__dataclass_fields__:
            if getattr(e.timing, name) is not None and name not in base._fields:
                fit = ", ".join(base._fields)
                yield _p(
                    f"election.timing.{name}",
                    str(getattr(e.timing, name)),
                    f"election.strategy = {e.strategy} has no such time; it has {fit}",
                )
        timing = overridden(base, e.timing)
        if isinstance(timing, Timing):
            yield from timing_problems(timing, e.strategy)
        else:
            yield from rank_timing_problems(timing)

    def _nodes(self) -> Iterator[Problem]:
        nodes, e = self.settings.cluster.manager.nodes, self.settings.election
        at = "cluster.manager.nodes"
        if len(nodes) > NODES_MAX:
            yield _p(at, str(len(nodes)), f"a fixed list has at most {NODES_MAX} nodes")
        yield from _twice((f"{at}.{name}.addr", node.addr) for name, node in nodes.items())
        for name, node in nodes.items():
            if not node.addr:
                yield _p(f"{at}.{name}.addr", "", "is missing: what others dial, such as 10.0.0.1:7400")
            if node.kind == "witness" and e.strategy in ("lease", "bully", "ring"):
                yield _p(
                    f"{at}.{name}.kind",
                    "witness",
                    f"only raft counts votes, and election.strategy is {e.strategy}; use observer",
                )
        if nodes and not any(node.kind == "voter" for node in nodes.values()):
            yield _p(at, str(len(nodes)), "no node of the list may lead; at least one must be of kind voter")

    def _manager(self) -> Iterator[Problem]:
        cluster = self.settings.cluster
        manager = cluster.manager
        if manager.type == "static" and not manager.nodes:
            yield _p("cluster.manager.nodes", "", "is missing: cluster.manager.type = static needs the list of nodes")
        if manager.type != "static" and manager.nodes and self.settings.election.strategy != "lease":
            yield _p("cluster.manager.nodes", str(len(manager.nodes)), f"a list needs type static, not {manager.type}")
        if manager.type == "join_server":
            if not manager.addr:
                yield _p("cluster.manager.addr", "", "is missing: cluster.manager.type = join_server listens somewhere")
            yield from _twice((f"cluster.manager.join[{n}]", address) for n, address in enumerate(manager.join))
        else:
            for word in ("addr", "advertise", "join"):
                if self._given(f"cluster.manager.{word}") and getattr(manager, word):
                    yield _p(f"cluster.manager.{word}", "", f"only join_server uses it, and the type is {manager.type}")
        given = [word for word in ("cert", "key", "ca") if getattr(manager.tls, word)]
        if given and len(given) < 3:
            lack = next(word for word in ("cert", "key", "ca") if word not in given)
            yield _p(f"cluster.manager.tls.{lack}", "", "is missing; cert, key and ca belong together here")
        for have, lack in (("user", "pass"), ("pass", "user")):
            if self._given(f"cluster.{have}") and not self._given(f"cluster.{lack}"):
                yield _p(
                    f"cluster.{lack}", "", f"is missing; cluster.{have} is given, and both are needed to meet Ghoti"
                )

    def _node(self) -> Iterator[Problem]:
        """One of raft need not be in the file: it is added to the members (R8, R12)."""
        nodes = self.settings.cluster.manager.nodes
        path = "cluster.node" if self.settings.node == self.settings.cluster.node else "--node"
        if is_newcomer(self.settings):
            if not re.fullmatch(ID_PATTERN, self.settings.node):
                what = f"an id has 1 to {ID_CHARS_MAX} letters, digits, dots, dashes or underscores"
                yield _p(path, self.settings.node[:80], f"is not in cluster.manager.nodes, and {what}")
        elif self.settings.node and nodes and self.settings.node not in nodes:
            yield _p(path, self.settings.node, f"is not in cluster.manager.nodes, which has {_few(nodes)}")
        elif self.settings.node and self.settings.cluster.manager.type == "join_server":
            if wrong := wrong_id(self.settings.node):
                yield _p("--node", self.settings.node[:80], wrong)
        elif self.settings.node and not re.fullmatch(NAME_PATTERN, self.settings.node):
            yield _p("--node", self.settings.node[:80], "a name has letters, digits, dots, dashes or underscores")

    def _run(self) -> Iterator[Problem]:
        for n, probe in enumerate(self.settings.run.health):
            yield from _probe_problems(probe, f"run.health[{n}]")
        for name, command in self.settings.run.hooks.items():
            if not command:
                yield _p(f"run.hooks.{name}", "", "is an empty command; write one, or leave it out")

    def _slots(self) -> Iterator[Problem]:
        slots = self.settings.slots
        yield from _half_a_pair(slots.tls, "slots.tls")
        for number, slot in slots.numbered.items():
            yield from _slot_problems(slot, f"slots.{number}")

    def _cache(self) -> Iterator[Problem]:
        settings = self.settings
        if settings.cache == Cache():
            return
        elsewhere = settings.cluster.manager.nodes or settings.election.strategy == "lease"
        named = "" if elsewhere else settings.node
        yield from cache_problems(settings.cache, self.lines, settings.cluster.secret_file, named)
        http = settings.cache.http
        yield from self._open("cache.http", http)
        for word in ("listen", "public", "dashboard"):
            if http and http == getattr(settings.control, word):
                yield _p("cache.http", http, f"is the same as control.{word} = {http}")

    def _open(self, path: str, address: str, more: str = "") -> Iterator[Problem]:
        """What others can reach needs TLS."""
        if address and not LOOPBACK.fullmatch(address) and not self.settings.control.tls.cert:
            yield _p(
                path,
                address,
                "is open to others, and control.tls.cert is not given; listen on 127.0.0.1, or give a certificate and "
                f"its key{more}",
            )

    def _control(self) -> Iterator[Problem]:
        control = self.settings.control
        yield from _half_a_pair(control.tls, "control.tls")
        yield from self._open("control.listen", control.listen, ", or use control.public for what anybody may read")
        yield from self._open("control.dashboard", control.dashboard)
        if control.public and control.public == control.listen:
            yield _p("control.public", control.public, f"is the same as control.listen = {control.listen}")
        for word in ("operators", "viewers"):
            names = getattr(control.page, word)
            if names and not control.page.proxies:
                yield _p(
                    f"control.page.{word}",
                    names[0],
                    "is named by no proxy: control.page.proxies is empty, so that no header is believed",
                )


def is_newcomer(settings: Settings) -> bool:
    """A node of raft that the file does not name, and names others: it belongs once it was added to the members."""
    nodes = settings.cluster.manager.nodes
    return bool(settings.node and nodes) and settings.node not in nodes and settings.election.strategy == "raft"


def notes(settings: Settings) -> list[str]:
    """What is allowed but worth a sentence."""
    found = []
    e, nodes = settings.election, settings.cluster.manager.nodes
    voters = [name for name, node in nodes.items() if node.kind != "observer"]
    leaders = [name for name, node in nodes.items() if node.kind == "voter"]
    if e.strategy == "raft" and voters and len(voters) % 2 == 0:
        found.append(f"{len(voters)} voters bear as many losses as {len(voters) - 1}; add a witness.")
    if e.strategy == "raft" and len(voters) > 1 and len(leaders) == 1:
        found.append(f"Only {leaders[0]} may lead: there is nobody to fail over to.")
    if ranked(e.strategy) and settings.run.command:
        found.append(f"{e.strategy} does not promise at most one; `primacy run` will ask for --allow-split-brain.")
    if e.store.url and e.strategy in ("raft", "bully", "ring"):
        found.append(f"election.store is not used: election.strategy is {e.strategy}.")
    if len(nodes) > 1 and (e.strategy == "raft" or e.failsafe) and not settings.cluster.secret_file:
        found.append("cluster.secret_file is not given; nodes of a real cluster will refuse to start without it.")
    if any(ipaddress.ip_network(each).is_loopback for each in settings.control.page.proxies):
        found.append(
            "control.page.proxies has an address of this machine: every user of it can claim to be an operator."
        )
    if is_newcomer(settings):
        found.append(
            f"{settings.node} is not in cluster.manager.nodes: it begins nothing, and belongs once a node of the "
            f"cluster was told: primacy members add {settings.node} --addr HOST:PORT"
        )
    if settings.cluster.leader.enabled:
        found.append("cluster.leader (Ghoti's GET /leader) is read and not acted on: control.public has /leader.")
    return found + _slot_notes(settings.slots)


def _slot_notes(slots: Slots) -> list[str]:
    found = []
    if slots.telemetry.enabled or slots.telemetry.addr:
        found.append(
            "slots.telemetry (Ghoti's metrics) is read and not acted on: GET /metrics of control.public has the "
            "figures (in a cluster control.listen, too)."
        )
    for name, password in slots.users.items():
        if len(password.encode()) > PASSWORD_BYTES_MAX:
            found.append(
                f"slots.users.{name}: a line holds {PASSWORD_BYTES_MAX} bytes of a password, and this has more."
            )
        if name != name.lower():
            found.append(f"slots.users.{name}: {name.lower()} may log in with it, too, as in Ghoti.")
    known = {name.lower() for name in slots.users}
    for number, slot in slots.numbered.items():
        strangers = sorted(name for name in slot.users if name.lower() not in known)
        if strangers:
            found.append(f"slots.{number}.users names {', '.join(strangers)}, and slots.users does not.")
    return found


def _probe_problems(probe: Probe, path: str) -> Iterator[Problem]:
    given = [word for word in ("http", "tcp", "command") if getattr(probe, word)]
    if len(given) != 1:
        what = " and ".join(given) if given else "nothing"
        yield _p(path, "", f"a probe asks exactly one of http, tcp or command; here {what} is given")
    if probe.http and not _is_url(probe.http):
        yield _p(f"{path}.http", "", "this is no URL with a host, and a port from 1 to 65535 if any")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0 and " " not in parts.netloc
    except ValueError:
        return False


SLOT_NEEDS: dict[str, tuple[str, ...]] = {
    "timeout_memory": ("timeout",),
    "token_bucket": ("bucket_size", "period"),
    "leaky_bucket": ("bucket_size",),
    "ticker": ("initial_value", "refresh_rate"),
}


def _slot_problems(slot: Slot, path: str) -> Iterator[Problem]:
    if not slot.kind:
        yield _p(f"{path}.kind", "", "is missing: what the slot does, such as simple_memory")
    for word in SLOT_NEEDS.get(slot.kind, ()):
        if getattr(slot, word) in (None, ""):
            yield _p(f"{path}.{word}", "", f"is missing; {path}.kind = {slot.kind} needs it")
    if slot.kind == "token_bucket" and slot.bucket_size is not None:
        for word in ("refresh_rate", "tokens_per_req"):
            value = getattr(slot, word)
            if value is not None and value > slot.bucket_size:
                yield _p(f"{path}.{word}", str(value), f"is larger than {path}.bucket_size = {slot.bucket_size}")


def _half_a_pair(tls: Tls, path: str) -> Iterator[Problem]:
    if bool(tls.cert) != bool(tls.key):
        lack = "key" if tls.cert else "cert"
        yield _p(f"{path}.{lack}", "", "is missing; a certificate and its key belong together")


def _twice(addresses: Iterator[tuple[str, str]]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for path, address in addresses:
        if address and address in seen:
            yield _p(path, address, f"is the address of {seen[address]} too; every one needs its own")
        seen.setdefault(address, path)


def _option(url: str, name: str) -> str:
    """What an address says behind its `?`, as a store reads it."""
    try:
        return dict(parse_qsl(urlsplit(url).query)).get(name, "")
    except ValueError:
        return ""


def _few(names: Mapping[str, Any]) -> str:
    """Some names for a sentence."""
    first = list(names)[:8]
    return ", ".join(first) + (f" and {len(names) - len(first)} more" if len(names) > len(first) else "")


_p: Callable[[str, str, str], Problem] = Problem
