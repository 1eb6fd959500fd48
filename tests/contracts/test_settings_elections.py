"""Several elections in one file: what an entry takes from the common sections, and what is refused, with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from primacy import settings
from primacy.cli import main
from primacy.errors import SettingsError, UsageError
from primacy.settings.canonical import canonical
from primacy.settings.elections import ELECTIONS_MAX, of_election, one_of, placements
from primacy.settings.schema import Settings
from primacy.settings.schema_elections import Placement

NODES = {"a": {"addr": "h:1"}, "b": {"addr": "h:2"}, "c": {"addr": "h:3"}}


def made(elections: dict[str, Any], **more: Any) -> Settings:
    return settings.of_mapping({"cluster": {"manager": {"nodes": NODES}}, "elections": elections, **more}, "a")


def refused(elections: dict[str, Any], **more: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        made(elections, **more)
    return [str(problem) for problem in caught.value.problems]


# --- what an entry takes ----------------------------------------------------------------------------------------------


def test_an_entry_takes_what_it_does_not_say_setting_by_setting() -> None:
    whole = made(
        {"mail": {"run": {"command": ["mail"], "environment": {"B": "2"}}}, "bill": None},
        election={"profile": "wan", "mode": "manual", "timing": {"spread_ms": 4_000}},
        run={"command": ["all"], "stop_ms": 700, "environment": {"A": "1"}},
    )
    mail, bill = of_election(whole, "mail"), of_election(whole, "bill")
    assert mail.run.command == ("mail",)
    assert mail.run.stop_ms == 700
    assert mail.run.environment == {"A": "1", "B": "2"}
    assert bill.run.command == ("all",)
    assert (mail.election.name, mail.election.profile, mail.election.mode) == ("mail", "wan", "manual")
    assert mail.election.timing.spread_ms == 4_000
    assert mail.node == "a"


def test_one_election_of_a_file_is_what_it_would_be_alone() -> None:
    alone = settings.of_mapping(
        {
            "cluster": {"manager": {"nodes": NODES}},
            "election": {"name": "mail", "profile": "fast"},
            "run": {"command": ["mail"]},
        },
        "a",
    )
    whole = made({"mail": {"profile": "fast", "run": {"command": ["mail"]}}})
    assert of_election(whole, "mail") == alone
    assert settings.config_hash(of_election(whole, "mail")) == settings.config_hash(alone)


def test_a_store_of_its_own_makes_a_lease_and_a_strategy_of_its_own_takes_no_times() -> None:
    whole = made(
        {
            "lease": {"store": {"url": "sqlite:///one.db"}},
            "slow": {"profile": "wan"},
            "raft": {"strategy": "raft"},
            "table": {"strategy": "lease", "store": {"url": "sqlite:///two.db"}},
        },
        election={"strategy": "raft", "timing": {"promise_ms": 9_000}, "store": {"table": "rows"}},
    )
    assert of_election(whole, "lease").election.strategy == "lease"
    assert [whole.elections[name].timing.promise_ms for name in whole.elections] == [None] * 4
    assert of_election(whole, "table").election.store.table == "rows"


def test_failsafe_counts_for_leases_alone() -> None:
    whole = made(
        {"row": {}, "votes": {"strategy": "raft"}},
        election={"failsafe": True, "strategy": "lease", "store": {"url": "sqlite:///one.db"}},
    )
    assert of_election(whole, "row").election.failsafe
    assert not of_election(whole, "votes").election.failsafe


def test_the_canonical_form_read_again_is_the_same() -> None:
    whole = made(
        {
            "one": {"run": {"restart": "always"}, "placement": {"prefer": "b", "capacity": 3}},
            "two": {"store": {"url": "sqlite:///x.db"}, "placement": {"with": ["one"], "spread": False}},
        },
        run={"restart": "never", "command": ["x"]},
        election={"timing": {"spread_ms": 900}},
    )
    again = settings.of_mapping(yaml.safe_load(yaml.safe_dump(canonical(whole))), "a")
    assert again == whole


def test_the_placement_of_each_is_a_frozen_value() -> None:
    whole = made({"x": {"placement": {"prefer": ["b", "a"], "only": ["a", "b"], "avoid": "y"}}, "y": None})
    assert placements(whole) == {
        "x": Placement(prefer=("b", "a"), only=("a", "b"), avoid=("y",)),
        "y": Placement(),
    }
    with pytest.raises(AttributeError):
        placements(whole)["y"].spread = False  # type: ignore[misc]


# --- which one is meant -----------------------------------------------------------------------------------------------


def test_which_one_is_meant_is_asked_only_where_there_are_several() -> None:
    several, single = made({"mail": None, "bill": None}), made({"mail": None})
    with pytest.raises(UsageError, match=r"--election with one of mail, bill"):
        one_of(several, None)
    with pytest.raises(UsageError, match=r"--election mial: .* is mail meant\? There are mail, bill"):
        one_of(several, "mial")
    assert one_of(single, None).election.name == "mail"
    assert one_of(settings.of_mapping({}), "other").election.name == "other"


# --- what is refused --------------------------------------------------------------------------------------------------


def test_all_problems_at_once_each_at_its_own_place() -> None:
    found = refused(
        {
            "bill": {"run": {"comand": ["x"]}, "stratgy": "raft"},
            "mail": {"strategy": "lease"},
            "ring": {"strategy": "ring"},
            "probe": {"run": {"health": [{"tcp": "h:1", "command": ["x"]}]}},
        }
    )
    assert found == [
        "elections.bill.run.comand: there is no such setting; is `command` meant?",
        "elections.bill.stratgy: there is no such setting; is `strategy` meant?",
        "elections.ring.strategy = ring: its nodes join each other over HTTP, one election per agent; here use raft or "
        "lease",
        "elections.mail.store.url: elections.mail.strategy = lease needs a store, such as sqlite:///leases.db",
        "elections.probe.run.health[0]: a probe asks exactly one of http, tcp or command; here tcp and command is "
        "given",
    ]


def test_what_is_taken_from_the_common_sections_is_said_once_and_there() -> None:
    found = refused({"x": None, "y": None}, election={"timing": {"hold_ms": 2_000}})
    assert len(found) == 1
    assert found[0].startswith("election.timing.deadman_at_ms = 2700: must be below election.timing.hold_ms")
    own = refused({"x": {"timing": {"hold_ms": 2_000}}, "y": None})
    assert len(own) == 1
    assert own[0].startswith("elections.x.timing.deadman_at_ms = 2700: must be below elections.x.timing.hold_ms")


@pytest.mark.parametrize(
    ("placement", "wrong"),
    [
        ({"prefer": ["z"]}, "x.placement.prefer = z: is no node of cluster.manager.nodes, which has a, b, c"),
        ({"only": ["z"]}, "x.placement.only = z: is no node of cluster.manager.nodes, which has a, b, c"),
        ({"prefer": "b", "only": "a"}, "x.placement.prefer = b: is not in elections.x.placement.only = a"),
        ({"avoid": "yy"}, "x.placement.avoid = yy: there is no such election; is `yyy` meant?"),
        ({"with": "x"}, "x.placement.with = x: is this election itself"),
        ({"with": "yyy", "avoid": "yyy"}, "x.placement.with = yyy: elections.x.placement.avoid says the opposite"),
        ({"capacity": -1}, "x.placement.capacity = -1: must be at least 0"),
        ({"spred": True}, "x.placement.spred: there is no such setting; is `spread` meant?"),
    ],
)
def test_a_placement_names_what_is_there(placement: dict[str, Any], wrong: str) -> None:
    assert refused({"x": {"placement": placement}, "yyy": None})[0].startswith(f"elections.{wrong}")


def test_a_name_is_a_key_and_their_number_is_bounded() -> None:
    assert "leave this one out" in refused({"x": None}, election={"name": "y"})[0]
    assert "a name has letters" in refused({"a/b": None})[0]
    assert "at most" in refused({f"e{n}": None for n in range(ELECTIONS_MAX + 1)})[0]


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "primacy.yaml"
    path.write_text(
        "elections:\n  mail: {run: {command: [mail]}, profile: wan}\n"
        "  bill: {run: {command: [bill]}, store: {url: 'sqlite:///x.db'}}\n"
    )
    return str(path)


def test_check_prints_all_with_a_configuration_each(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["check", file]) == 0
    said = capsys.readouterr().out
    assert "2 elections, each with its configuration" in said
    assert yaml.safe_load(said)["elections"]["bill"]["strategy"] == "lease"
    assert main.run(["check", file, "--json"]) == 0
    each = json.loads(capsys.readouterr().out)["elections"]
    assert each["mail"]["timing"]["hold_ms"] > each["bill"]["timing"]["hold_ms"]


def test_contract_is_of_one_of_them(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["contract", "--config", file, "--election", "mail"]) == 0
    assert "election mail: raft, profile wan" in capsys.readouterr().out
    assert main.run(["contract", "--config", file]) == 2
    assert "one of mail, bill" in capsys.readouterr().err


def test_run_and_status_want_one_by_its_name(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", "--config", file, "--", "true"]) == 2
    assert "primacy agent runs all of them" in capsys.readouterr().err
    assert main.run(["step-down", "--config", file]) == 2
    assert "--election with one of mail, bill" in capsys.readouterr().err


def test_a_trial_is_of_one_of_them(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["simulate", "--config", file]) == 2
    assert "--election with one of mail, bill" in capsys.readouterr().err
