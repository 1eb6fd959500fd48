"""`GET /metrics`: a node's status in the text format of Prometheus. Loaded when it is first asked for, not before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from primacy import __version__
from primacy.control import NodeStatus
from primacy.control.cluster import FRESH_MS, alerts, heard_ms, known_nodes
from primacy.control.document import acts_as_leader
from primacy.control.summary import CONTAINMENTS, ROLES, STATES
from primacy.election.model import Kind
from primacy.settings.checks import base_strategy

MS_PER_S = 1_000
NOW_ONLY = ("slots_open", "store_trip_ms", "store_trip_max_ms")
"""Of the counters: what is no count, or may fall again."""
STORE_TIMES = {"trip": "How long the newest round to the store took.", "trip_max": "The slowest of them."}
NO_CONTAINMENT = "none"


def exposition(statuses: Sequence[NodeStatus]) -> bytes:
    """The text. Of a node with several elections, each value has its election as a label."""
    registry = CollectorRegistry()
    registry.register(_Collector(statuses[0]) if len(statuses) == 1 else _ManyCollector(statuses))
    return generate_latest(registry)


class _ManyCollector(Collector):
    """The same families once, with the values of all elections."""

    def __init__(self, statuses: Sequence[NodeStatus]) -> None:
        self.statuses = statuses

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for status in self.statuses:
            label = {"election": status.settings.election.name}
            for family in _Collector(status).collect():
                known = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                known.samples += [each._replace(labels={**each.labels, **label}) for each in family.samples]
        yield from found.values()


class _Collector(Collector):
    """One status, made for one answer."""

    def __init__(self, status: NodeStatus) -> None:
        self.status = status

    def collect(self) -> Iterator[Metric]:
        status, view = self.status, self.status.view
        settings, meters = status.settings, status.meters
        info = {
            "version": __version__,
            "cluster": settings.cluster.name,
            "election": settings.election.name,
            "node": status.node,
            "strategy": settings.election.strategy,
        }
        yield _labelled("primacy_info", "What this node is.", {tuple(info.values()): 1}, tuple(info))
        yield _one_of("primacy_role", "1 for the role that this node has.", "role", ROLES, str(view.role))
        yield _one_of("primacy_workload_state", "1 for its state.", "state", STATES, str(status.workload.state))
        yield _gauge("primacy_acting_leader", "1 if it leads, holds and runs.", int(acts_as_leader(status)))
        yield _gauge("primacy_term", "The newest term that it knows.", view.term)
        yield _gauge("primacy_token", "Its fencing token; 0 if it does not lead.", view.token)
        yield _gauge("primacy_hold_left_seconds", "How long its hold lasts.", view.hold_left_ms / MS_PER_S)
        yield _gauge("primacy_healthy", "0 if a health probe fails.", int(status.health == "ok"))
        levels = tuple(level or NO_CONTAINMENT for level in CONTAINMENTS)
        level = status.workload.containment or NO_CONTAINMENT
        yield _one_of("primacy_containment", "1 for how firmly the command is held here.", "level", levels, level)
        yield from _quorum(status)
        yield _gauge(
            "primacy_alerts", "Sentences that an operator should read now: primacy status.", len(alerts(status))
        )
        yield _gauge("primacy_loop_late_seconds", "How late the last timer was.", meters.get("late_ms", 0) / MS_PER_S)
        yield _gauge(
            "primacy_loop_late_max_seconds",
            "How late the latest timer of the last minute was.",
            meters.get("late_max_ms", 0) / MS_PER_S,
        )
        yield CounterMetricFamily(
            "primacy_failovers", "Leaders after the first one that this start saw.", value=meters.get("failovers", 0)
        )
        yield SummaryMetricFamily(
            "primacy_ballot_save_seconds",
            "How long the disk took for each ballot.",
            count_value=int(meters.get("saves", 0)),
            sum_value=meters.get("save_ms", 0) / MS_PER_S,
        )
        yield _gauge("primacy_ballot_save_max_seconds", "The slowest of them.", meters.get("save_max_ms", 0) / MS_PER_S)
        datagrams = CounterMetricFamily("primacy_datagrams", "Sent, received, and why dropped.", labels=["kind"])
        store = CounterMetricFamily("primacy_store", "What the store was asked, and how it went.", labels=["kind"])
        slots = CounterMetricFamily("primacy_slots", "What clients of the slots did.", labels=["kind"])
        for kind, count in sorted(status.counters.items()):
            if kind in NOW_ONLY:
                continue
            family = store if kind.startswith("store_") else slots if kind.startswith("slots_") else datagrams
            family.add_metric([kind.removeprefix("store_").removeprefix("slots_")], count)
        yield datagrams
        yield store
        for kind, text in STORE_TIMES.items():
            if (time_ms := status.counters.get(f"store_{kind}_ms")) is not None:
                yield _gauge(f"primacy_store_{kind}_seconds", text, time_ms / MS_PER_S)
        if status.workload.kind == "slots":
            yield slots
            open_now = status.counters.get("slots_open", 0)
            yield _gauge("primacy_slots_open", "Connections of clients; over HTTP, streams.", open_now)
        names = [name for name, _ in known_nodes(status) if name != status.node]
        ages: dict[tuple[str, ...], float] = {
            (name,): age_ms / MS_PER_S for name in names if (age_ms := heard_ms(status, name)) is not None
        }
        yield _labelled("primacy_heard_seconds", "Since another node was heard; none if never.", ages, ("node",))


def _quorum(status: NodeStatus) -> Iterator[Metric]:
    """Of those that vote: how many there are, how many this node hears, itself included, and how many are needed."""
    voters = [name for name, kind in known_nodes(status) if kind != Kind.OBSERVER]
    heard = [name for name in voters if name == status.node or _is_heard(status, name)]
    yield _gauge("primacy_voters", "Nodes that vote, as far as this one knows them.", len(voters))
    yield _gauge("primacy_voters_heard", "Those that it heard in the last 5 s, itself included.", len(heard))
    yield _gauge("primacy_quorum", "How many of them a leader needs; 1 without a majority.", _needed(status, voters))


def _is_heard(status: NodeStatus, name: str) -> bool:
    age_ms = heard_ms(status, name)
    return age_ms is not None and age_ms <= FRESH_MS


def _needed(status: NodeStatus, voters: Sequence[str]) -> int:
    """While the voters change: as many as the larger of both majorities, the least that can suffice."""
    if base_strategy(status.settings.election.strategy) != "raft":
        return 1
    halves = status.register.halves if status.register is not None else (voters,)
    return max(len(half) // 2 + 1 for half in halves)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, values: dict[tuple[str, ...], float], labels: tuple[str, ...]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def _one_of(name: str, text: str, label: str, words: tuple[str, ...], now: str) -> Metric:
    return _labelled(name, text, {(word,): int(word == now) for word in words}, (label,))
