"""One cluster of real agents, step by step: what maintenance stops, a command that reaches its `restart_limit`, what
moves by itself, and what `rebalance` moves, with each kind of wish once. None runs twice, judged at the end."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main
from primacy.errors import PrimacyError
from primacy.settings.timing import PROFILES, placement_timing
from tests.support.many_agents import PATIENT, STOP_MS, Agents, agents_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=19)

PLAIN = ("e0", "e1", "e2")
HOME, PAIR, SMALL, FRAIL = "home", "pair", "small", "frail"
ENDS_AT_ONCE = 'if [ "$PRIMACY_NODE" = "$(cat "$1")" ]; then exit 3; fi; shift; exec "$@"'
"""On the node that a file names."""
TIMES = placement_timing(PROFILES["lan"]._replace(**PATIENT), STOP_MS)
STILL_S = (max(TIMES.calm_ms, TIMES.rest_ms) + TIMES.intent_ms + 2 * TIMES.look_ms) / 1_000
"""After the last change of a leader: what is to be handed over would have been announced, and handed over."""
SPREAD_S = 180.0
"""A machine that stalls costs leaders, and each of these elections rests longer and longer."""
COULD_STAY = ("avoid", "with", "capacity", "prefer", "spread")


def entries(folder: Path) -> dict[str, dict[str, Any]]:
    bad = folder / "bad"
    bad.touch()
    return {
        **{name: {} for name in PLAIN},
        HOME: {"placement": {"prefer": ["c"]}},
        PAIR: {"placement": {"with": HOME}},
        SMALL: {"placement": {"capacity": 1}},
        FRAIL: {"placement": {"spread": False}},
    }


def handed_over(agents: Agents) -> list[str]:
    """What placement moved although it could have stayed: election and reason, of all agents."""
    texts = "\n".join(agent.text for agent in agents.started)
    found = re.findall(r"hands (\S+) over to (\S+): (\w+)", texts)
    return [f"{election} to {to}: {why}" for election, to, why in found if why in COULD_STAY]


def placement(agents: Agents, at: str) -> dict[str, Any]:
    return wait_until(lambda: agents.agents[at].ask("/v1/placement"), "an answer")


def say(agents: Agents, *words: str) -> None:
    call = [words[0], "--config", str(agents.folder / "a.yaml"), "--state-dir", str(agents.folder / "state-a")]
    assert main.run([*call, *words[1:]]) == 0


def maintenance(agents: Agents, state: str) -> None:
    """All have heard it, and nothing is under way."""
    say(agents, "maintenance", state)
    for name in agents.names:
        wait_until(lambda name=name: placement(agents, name)["maintenance"] == (state == "on"), state, every_s=0.1)


def under_way(agents: Agents) -> bool:
    return any(node["hands_over"] for name in agents.names for node in placement(agents, name)["nodes"])


def give_up_on_a(agents: Agents) -> None:
    """It is handed over to `a`, where it ends as often as it may; then another node leads it, and runs it."""
    bad = agents.folder / "bad"
    agents.move(FRAIL, "b")  # what runs on `a` already has begun there, and does not end
    bad.write_text("a")

    def given_up() -> bool:
        row = agents.agents["a"].rows().get(FRAIL, {})
        if "its command ended with 3 again and again" in row.get("why", ""):
            return True
        with contextlib.suppress(PrimacyError):
            agents.agents["b"].ask("/v1/transfer", FRAIL, {"to": "a"})
        return False

    wait_until(given_up, "a that gives up", 120.0, 0.5, agents.told)
    agents.all_run(FRAIL, other="a")
    bad.write_text("")
    agents.move(FRAIL, "c")  # on `b`, it would be `c` that is empty: there SMALL goes, alone, and keeps HOME away


def test_W7_maintenance_stops_what_could_stay_a_rebalance_does_not_wait_and_a_restart_limit_moves(
    tmp_path: Path,
) -> None:
    elections = entries(tmp_path)
    with agents_in(tmp_path, elections) as agents:
        frail = ["/bin/sh", "-c", ENDS_AT_ONCE, FRAIL, str(tmp_path / "bad"), *agents.command(FRAIL)]
        elections[FRAIL]["run"] = {"command": frail, "restart_limit": 3}
        agents.write(elections)
        say_reload(agents)
        agents.all_run(*elections)

        maintenance(agents, "on")
        before = handed_over(agents)
        for name in (*PLAIN, HOME, PAIR, SMALL):
            agents.move(name, "a")
        give_up_on_a(agents)
        stands_still(agents, before)

        maintenance(agents, "off")
        wait_until(lambda: handed_over(agents) != before, "a move by itself", SPREAD_S, 0.2, lambda: told(agents))
        maintenance(agents, "on")
        wait_until(lambda: not under_way(agents), "the end of what was announced", SPREAD_S, 0.2)

        by_itself = handed_over(agents)
        agents.move(PLAIN[0], "a")
        say(agents, "rebalance", "--within", f"{SPREAD_S:.0f}s")
        assert handed_over(agents) != by_itself, "in maintenance only the request moves it"
        wait_until(lambda: wishes_hold(agents), "all wishes", SPREAD_S, 0.5, lambda: told(agents))


def say_reload(agents: Agents) -> None:
    for agent in agents.up:
        wait_until(agent.found, "an agent that answers")
        call = ["--config", str(agents.folder / f"{agent.name}.yaml"), "--state-dir", str(agent.state)]
        wait_until(lambda call=call: main.run(["reload", *call]) == 0, "a reload", every_s=0.2)


def stands_still(agents: Agents, before: list[str]) -> None:
    """All nodes are up for long enough, something is to be moved, and for as long as it takes nothing is."""
    settled = TIMES.settle_ms
    wait_until(lambda: min(node["up_ms"] for node in placement(agents, "b")["nodes"]) > settled, "time", every_s=0.2)
    ends_s = time.monotonic() + STILL_S
    while time.monotonic() < ends_s:
        assert handed_over(agents) == before, "in maintenance nothing moves that could stay"
        time.sleep(0.5)
    assert placement(agents, "b")["plan"], "there is something to be moved"


def wishes_hold(agents: Agents) -> bool:
    at = {name: one.node for name, one in agents.all_run(*agents.elections).items()}
    loads = Counter(at.values())
    rest = sorted(loads[name] for name in agents.names if name != at[SMALL])
    return (at[HOME], at[PAIR], loads[at[SMALL]]) == ("c", "c", 1) and rest[-1] - rest[0] <= 1


def told(agents: Agents) -> str:
    return "\n".join(json.dumps(placement(agents, name)) for name in agents.names)
