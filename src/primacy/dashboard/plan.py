"""What a page needs of a cluster's file: its text without secrets, its times, and what they promise. Pure."""

from __future__ import annotations

from typing import Any

import yaml

from primacy.control.earlier import current_settings
from primacy.dashboard.known import Plan
from primacy.dashboard.rows import object_of
from primacy.errors import PrimacyError
from primacy.settings import membership_rows, of_mapping, timing_of
from primacy.settings.accepted import STRATEGIES
from primacy.settings.contract import Contract, contract
from primacy.settings.schema import Settings
from primacy.settings.timing import Timing

TEXT_CHARS_MAX = 20_000


def plan_of(raw: object, node: str) -> Plan | None:
    """From `/v1/config`: the canonical form of the file. None if it is something else."""
    found = current_settings(dict(object_of(object_of(raw).get("settings"))))
    if "cluster" not in found:
        return None
    text = yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=100)[:TEXT_CHARS_MAX]
    plan = Plan(text=text, source=node)
    try:
        return _promised(plan, of_mapping(found))
    except PrimacyError:
        return plan  # a newer node's file may say what this version does not know; then it is shown as a text


def plan_of_profile(strategy: str, profile: str) -> Plan:
    """As far as the name of a profile tells it: for a lab whose nodes have not told their file yet."""
    try:
        return _promised(Plan(), of_mapping({"election": {"strategy": strategy, "profile": profile}}))
    except PrimacyError:
        return Plan()


def _promised(plan: Plan, settings: Settings) -> Plan:
    timing = timing_of(settings)
    if settings.election.strategy not in STRATEGIES:
        return plan  # a user's own: what its times promise is not ours to say
    voters = [name for name, kind, _ in membership_rows(settings) if kind != "observer"]
    made = contract(timing, settings.election.strategy, settings.run.stop_ms, max(1, len(voters)))
    if isinstance(timing, Timing) and isinstance(made, Contract):
        return plan._replace(
            heartbeat_ms=timing.heartbeat_ms,
            hold_ms=timing.hold_ms,
            term_at_ms=timing.term_at_ms,
            contract=_shown(timing, made),
        )
    return plan._replace(heartbeat_ms=timing.heartbeat_ms)


def _shown(timing: Timing, made: Contract) -> dict[str, Any]:
    return {
        "margin_ms": round(made.margin_ms),
        "latest_stop_ms": round(made.latest_stop_ms),
        "earliest_start_ms": round(made.earliest_start_ms),
        "failover_expected_ms": made.failover_expected_ms,
        "failover_worst_ms": made.failover_worst_ms,
        "release_expected_ms": made.release_expected_ms,
        "tolerated_stall_ms": made.tolerated_stall_ms,
        "lost_heartbeats": made.lost_heartbeats,
        "heartbeat_ms": timing.heartbeat_ms,
        "term_at_ms": timing.term_at_ms,
        "kill_at_ms": timing.kill_at_ms,
        "deadman_at_ms": timing.deadman_at_ms,
        "hold_ms": timing.hold_ms,
    }
