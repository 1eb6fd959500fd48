"""Thirty elections of one agent on one store: their renewals share statements, as those of the library do (L6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main
from tests.support.many_agents import AgentProcess, agents_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=17)

ELECTIONS = 30
RENEWALS = 6
"""Of each."""
SHARED_LEAST = 1.5
"""Renewals in a statement. One by one it would be one. What comes within a gathering, 30 ms in the profile `lan`, is
one statement: at most 18 of them in the 550 ms between two renewals, so that thirty elections share 1.6 at least."""
CANARY_HEARTBEAT_MS = 550
"""That no lease is lost meanwhile can only be asked of a machine that wakes its processes in time."""


def counted(agent: AgentProcess, election: str) -> dict[str, Any]:
    """Of the store that this election asks; empty if the agent does not answer now."""
    said = agent.ask("/v1/state", election)
    return {name: count for name, count in said["counters"].items() if name.startswith("store_")} if said else {}


def test_L6_renewals_of_the_elections_of_one_agent_share_statements(tmp_path: Path) -> None:
    """While all are held, all that is performed is renewals, and a round of at most a hundred is one statement:
    `test_store_contract.py::test_L6_many_at_once` shows that of each store."""
    store = f"sqlite:///{tmp_path}/leases.db"
    assert main.run(["lease", "schema", "--new", "--yes", "--store", store]) == 0, "names are free at once"
    entry = {"store": {"url": store}, "placement": {"spread": False}}
    names = [f"e{number:02}" for number in range(ELECTIONS)]
    with agents_in(tmp_path, dict.fromkeys(names, entry), names="a") as agents:
        agent = agents.agents["a"]
        before = agents.all_run(*names)
        first = wait_until(lambda: counted(agent, names[0]), "an answer")
        wanted = first["store_performed"] + RENEWALS * ELECTIONS
        wait_until(lambda: counted(agent, names[0]).get("store_performed", 0) >= wanted, "renewals of all", every_s=0.1)
        each = [wait_until(lambda name=name: counted(agent, name), "an answer") for name in (names[0], names[-1])]
        for last in each:
            performed = last["store_performed"] - first["store_performed"]
            statements = last["store_rounds"] - first["store_rounds"]
            print(f"{performed} renewals in {statements} statements")
            assert performed >= SHARED_LEAST * statements, f"{performed} renewals took {statements} statements"
        after = agents.all_run(*names)
        assert {name: one.token for name, one in after.items()} == {name: one.token for name, one in before.items()}
