"""The file of a real agent with several elections changes: nothing runs twice, and no reload is lost."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main
from tests.support import stamp
from tests.support.many_agents import STOP_MS, WITHIN_S, Agents, agents_in
from tests.support.safety_checks import safe
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=14)

SLOW_STOP, LONG_STOP_MS = "ignore-term", 4 * STOP_MS
"""It runs until its stop time is over."""


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """One node."""
    with agents_in(tmp_path, {"keep": {}}, names="a") as made:
        made.all_run("keep")
        yield made


def reload(agents: Agents, *words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.run(["reload", "--config", str(agents.folder / "a.yaml"), "--state-dir", state(agents), *words])
    return code, out.getvalue(), err.getvalue()


def state(agents: Agents) -> str:
    return str(agents.folder / "state-a")


def stamps(agents: Agents, of: str) -> list[stamp.Stamp]:
    return [one for one in agents.stamps(of) if one.kind == stamp.COMMAND]


def never_two(agents: Agents, of: str, what: str) -> None:
    """Judged when it was started twice, by two elections: their tokens have nothing to do with each other."""

    def both() -> list[stamp.Stamp]:
        found = stamps(agents, of)
        return found if len(found) == 2 else []

    ordered = sorted(wait_until(both, what), key=lambda one: one.first_ns)
    for old, new in itertools.pairwise(ordered):
        safe(old.last_ns < new.first_ns, f"two at once: {old} and {new}")


# --- a command that another election had ------------------------------------------------------------------------------


def test_an_election_that_was_renamed_begins_when_the_old_one_has_ended(agents: Agents) -> None:
    entry = {"run": {"command": agents.command("moved", SLOW_STOP), "stop_ms": LONG_STOP_MS}}
    agents.write({"keep": {}, "foo": entry})
    assert reload(agents)[0] == 0
    wait_until(lambda: stamps(agents, "moved"), "foo")
    agents.write({"keep": {}, "bar": entry})
    code, out, err = reload(agents)
    why = agents.agents["a"].rows()["bar"].get("why", "")
    never_two(agents, "moved", "bar")
    assert why == "it begins when foo, which had the same command, has ended"
    assert (code, "bar starts" in out) == (0, True)
    assert "warning: bar has the command that foo had" in err


def test_two_elections_that_exchange_their_commands_wait_for_each_other_s_end(agents: Agents) -> None:
    """Each is stopped for its change; one of them at once, the other one after its stop time."""
    slow = {"run": {"command": agents.command("slow", SLOW_STOP), "stop_ms": LONG_STOP_MS}}
    quick = {"run": {"command": agents.command("quick")}}
    agents.write({"keep": {}, "foo": slow, "bar": quick})
    assert reload(agents)[0] == 0
    for name in ("slow", "quick"):
        wait_until(lambda name=name: stamps(agents, name), name)
    agents.write({"keep": {}, "foo": quick, "bar": slow})
    assert reload(agents)[0] == 0
    for name in ("slow", "quick"):
        never_two(agents, name, name)


def test_one_that_waits_for_another_one_s_end_can_be_removed_again(agents: Agents) -> None:
    entry = {"run": {"command": agents.command("moved", SLOW_STOP), "stop_ms": LONG_STOP_MS}}
    agents.write({"keep": {}, "foo": entry})
    assert reload(agents)[0] == 0
    wait_until(lambda: stamps(agents, "moved"), "foo")
    for name in ("bar", "baz"):
        agents.write({"keep": {}, name: entry})
        assert reload(agents)[0] == 0
    wait_until(lambda: "bar" not in agents.agents["a"].rows(), "the end of bar, which never began")
    never_two(agents, "moved", "baz")
    assert set(agents.agents["a"].rows()) == {"keep", "baz"}


# --- stopped in order -------------------------------------------------------------------------------------------------


def tidy(agents: Agents) -> dict[str, Any]:
    """A command that needs a second to end, and notes that it was let."""
    script = f"trap 'sleep 1; echo >> {agents.folder}/tidied; exit 0' TERM; echo >> {agents.folder}/began; "
    return {"run": {"command": ["sh", "-c", script + "while :; do sleep 0.02; done"], "stop_ms": 30_000}}


def runs_tidy(agents: Agents) -> None:
    agents.write({"keep": {}, "tidy": tidy(agents)})
    assert reload(agents)[0] == 0
    wait_until((agents.folder / "began").exists, "the command")


def test_one_that_is_removed_while_it_stops_for_a_change_is_still_stopped_in_order(agents: Agents) -> None:
    runs_tidy(agents)
    agents.write({"keep": {}, "tidy": {"run": {"command": ["sleep", "60"]}}})
    assert reload(agents)[0] == 0
    agents.write({"keep": {}})
    assert reload(agents)[0] == 0
    wait_until(lambda: "tidy" not in agents.agents["a"].rows(), "its end")
    assert (agents.folder / "tidied").exists(), "it was killed before its stop time was over"


def test_an_agent_that_is_asked_to_end_while_one_is_being_removed_stops_that_in_order_too(agents: Agents) -> None:
    runs_tidy(agents)
    agents.write({"keep": {}})
    assert reload(agents)[0] == 0
    agents.agents["a"].process.terminate()
    assert agents.agents["a"].process.wait(WITHIN_S) == 0
    assert (agents.folder / "tidied").exists(), "it was killed before its stop time was over"
