"""The one file: what is accepted, what is refused, and that every refusal says where, what and what would be right."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from primacy import settings
from primacy.errors import SettingsError
from primacy.settings import checks
from primacy.settings.canonical import HIDDEN, canonical
from primacy.settings.loading import containment_required, of_tree
from primacy.settings.rule import rule_of
from primacy.settings.schema import Settings
from primacy.settings.timing import PROFILES, PROFILES_OF, RANK_PROFILES, RankTiming, Timing
from primacy.settings.tree import DEPTH_MAX, FILE_BYTES_MAX, NODES_MAX, parse

FILES = Path(__file__).parents[1] / "files"
THREE = {"a": {"addr": "h:1"}, "b": {"addr": "h:2"}, "c": {"addr": "h:3"}}


def problems_of(text: str | bytes, tmp_path: Path, node: str | None = None) -> list[str]:
    file = tmp_path / "f.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(SettingsError) as caught:
        settings.load(file, node)
    return [str(p) for p in caught.value.problems]


def problems_in(values: dict[str, Any]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings.of_mapping(values)
    return [str(p) for p in caught.value.problems]


# --- what is accepted -----------------------------------------------------------------------------------------------


def test_the_complete_file_is_right() -> None:
    made = settings.load(FILES / "complete.yaml")
    assert made.cluster.manager.nodes["a"].priority == 2
    assert made.cluster.manager.nodes["c"].kind == "witness"
    assert made.slots.numbered["000"].kind == "simple_memory"
    assert made.run.health[0].failures == 3
    assert made.run.hooks == {"started": ("/usr/local/bin/tell", "started")}
    assert settings.membership_rows(made) == (("a", "voter", 2), ("b", "voter", 0), ("c", "witness", 0))


def test_both_examples_of_seed_000_are_right() -> None:
    first, joining = settings.load(FILES / "ghoti_first.yaml"), settings.load(FILES / "ghoti_joining.yaml")
    assert first.election.strategy == joining.election.strategy == "bully"
    assert (first.node, joining.node) == ("node1", "node2")
    assert (first.slots.addr, joining.slots.addr) == ("localhost:25873", "localhost:25874")
    assert (first.cluster.manager.join, joining.cluster.manager.join) == ((), ("localhost:2222",))
    assert first.cluster.password == "cluster_pass"
    assert settings.config_hash(first) == settings.config_hash(joining)


def test_a_whole_ghoti_file_is_right() -> None:
    made = settings.load(FILES / "ghoti_slots.yaml")
    assert (made.slots.addr, made.slots.protocol) == ("localhost:9090", "telnet")
    assert made.slots.users == {"pepe": "12345"}
    assert sorted(made.slots.numbered) == ["000", "001", "007"]
    assert made.slots.numbered["001"].kind == "timeout_memory"
    assert made.slots.telemetry.rotation == "hourly"


def test_metrics_that_ghoti_passes_over_are_no_reason_to_refuse_its_file() -> None:
    """There `metrics` alone switches nothing on, and here nothing is written: no folder is needed."""
    made = settings.of_mapping({"metrics": {"enabled": True}, "slot_000": {"kind": "simple_memory"}})
    assert (made.slots.telemetry.enabled, made.slots.telemetry.output_dir) == (True, "")


def test_a_file_of_a_later_ghoti_is_right_and_what_does_not_count_is_said() -> None:
    made = settings.of_mapping(
        {
            "metrics": {"addr": ":9100"},
            "slot_000": {"kind": "timeout_memory", "timeout": 30 * 86_400},
            "slot_001": {"kind": "multicast", "timeout": 2, "dereg_tries": 5},
            "cluster": {
                "node": "node1",
                "user": "my_user",
                "pass": "my_pass",
                "leader": {"enabled": True},
                "manager": {"type": "join_server", "addr": "localhost:2222"},
            },
        }
    )
    said = " ".join(checks.notes(made))
    assert "slots.telemetry (Ghoti's metrics) is read and not acted on" in said
    assert "cluster.leader (Ghoti's GET /leader) is read and not acted on" in said


def test_no_file_is_one_node_alone() -> None:
    made = settings.load(None)
    assert (made.election.strategy, made.cluster.manager.type) == ("raft", "none")
    assert settings.timing_of(made) == PROFILES["lan"]
    assert settings.membership_rows(made) == (("a", "voter", 0),)


def test_an_empty_file_and_empty_sections_are_defaults(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    for text in ("", "# nothing\n", "---\n", "cluster:\nelection:\nrun:\n", "\ufeffcluster: {}\n"):
        file.write_text(text, encoding="utf-8")
        assert dataclasses.replace(settings.load(file), source="") == settings.load(None)


def test_scalars_are_read_by_what_the_setting_needs(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("cluster: {name: 007, manager: {nodes: {no: {addr: 'h:1'}, 12: {addr: 'h:2'}, on: {addr: 'h:3'}}}}")
    made = settings.load(file)
    assert made.cluster.name == "007"
    assert list(made.cluster.manager.nodes) == ["no", "12", "on"]


def test_which_node_this_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"manager": {"nodes": THREE}}
    assert settings.of_mapping({"cluster": listed}).node == ""
    assert settings.of_mapping({"cluster": {**listed, "node": "b"}}).node == "b"
    assert settings.of_mapping({"cluster": {**listed, "node": "b"}}, "c").node == "c"
    monkeypatch.setattr("os.uname", lambda: type("U", (), {"nodename": "c.example.org"}))
    assert settings.of_mapping({"cluster": listed}).node == "c"


def test_default_strategy_follows_the_manager_and_the_store() -> None:
    assert settings.of_mapping({"cluster": {"manager": {"nodes": THREE}}}).election.strategy == "raft"
    assert settings.of_mapping({"cluster": {"manager": {"addr": "h:1"}}}).election.strategy == "bully"
    assert settings.of_mapping({"election": {"store": {"url": "sqlite:///x"}}}).election.strategy == "lease"
    plugged = settings.of_mapping({"election": {"strategy": "my.module:Own"}})
    assert settings.timing_of(plugged) == PROFILES["lan"]


def test_timing_over_the_profile() -> None:
    made = settings.of_mapping({"election": {"profile": "wan", "timing": {"heartbeat_ms": 500, "drift_ppm": 200}}})
    assert settings.timing_of(made) == PROFILES["wan"]._replace(heartbeat_ms=500, drift_ppm=200)
    ranked = {"strategy": "ring", "profile": "lan", "timing": {"misses": 5}}
    made = settings.of_mapping({"cluster": {"manager": {"nodes": THREE}}, "election": ranked})
    assert settings.timing_of(made) == RANK_PROFILES["lan"]._replace(misses=5)


# --- what is refused ------------------------------------------------------------------------------------------------


def test_all_problems_at_once_each_with_its_line(tmp_path: Path) -> None:
    text = """\
cluster:
  nam: x
  node: "way too long for an identifier"
  manager:
    nodes:
      a: {addr: nowhere}
      b/c: {addr: "h:1"}
election:
  strategy: raaft
  timing:
    hold_ms: 3 parsecs
    heartbeat_ms: -4
run:
  command: /bin/true --fast
  stop_ms: many
log: {level: loud}
"""
    found = problems_of(text, tmp_path)
    assert found == [
        "line 2: cluster.nam: there is no such setting; is `name` meant?",
        "line 3: cluster.node = way too long for an identifier: an id has 1 to 20 characters that "
        "can be printed, none of them a slash",
        "line 6: cluster.manager.nodes.a.addr = nowhere: this is no host:port with a port from 1 to 65535, such as "
        "10.0.0.1:7400",
        "line 7: cluster.manager.nodes.b/c: an id is 1 to 20 letters, digits, dots, dashes or underscores, the first a "
        "letter or digit",
        "line 9: election.strategy = raaft: a strategy is one of raft, lease, bully, ring, or your own as "
        "package.module:Class",
        "line 11: election.timing.hold_ms = 3 parsecs: must be a span of time: 250ms, 3s, 2m, or 3000 (milliseconds)",
        "line 12: election.timing.heartbeat_ms = -4: must be at least 1",
        "line 14: run.command = /bin/true --fast: must be a list, such as [/bin/true, --fast]",
        "line 15: run.stop_ms = many: must be a span of time: 250ms, 3s, 2m, or 3000 (milliseconds)",
        "line 16: log.level = loud: must be one of debug, info, warn, error",
    ]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("3s", 3_000), ("250ms", 250), ("2m", 120_000), ("1 h", 3_600_000), ("4_000", 4_000), (3000, 3_000)],
)
def test_spans_of_time_have_units_or_are_milliseconds(text: object, ms: int) -> None:
    assert settings.of_mapping({"run": {"stop_ms": text}}).run.stop_ms == ms


def test_a_unit_where_no_time_is_meant_is_refused() -> None:
    nodes = {"a": {"addr": "h:1", "priority": "3s"}}
    found = problems_in({"cluster": {"manager": {"nodes": nodes}, "node": "a"}})
    assert found == ["cluster.manager.nodes.a.priority = 3s: must be a whole number, without a unit"]


def test_a_setting_in_the_wrong_place_is_told_where_it_belongs() -> None:
    assert problems_in({"hold_ms": 3}) == ["hold_ms: there is no such setting; it belongs at `election.timing.hold_ms`"]
    (only,) = problems_in({"zzzz": 1})
    assert "known here: cluster, election, run" in only


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"\xff\xfe\x00c", "not UTF-8 text: byte 0xff at position 0"),
        (b"cluster: \x00", "not a text file"),
        (bytes(range(32, 127)) * 3, "not YAML"),
        (b"a: [1, 2", "not YAML"),
        (b"- a\n- b\n", "a file of settings is a mapping"),
        (b"just words", "a file of settings is a mapping"),
        (b"a: 1\n---\nb: 2\n", "one file holds one document"),
        (b"log: {level: info}\nlog: {level: debug}\n", "is set twice; the first is on line 1"),
        (b"log: !!python/object/apply:os.system [ls]\n", "has no meaning here"),
        (b"log: *nobody\n", "names nothing"),
        (b"a: &a [*a]\n", "names nothing"),
        (b"? [a, b]\n: c\n", "a key must be a word"),
        (b"a: " + b"[" * (DEPTH_MAX + 5), f"nested more than {DEPTH_MAX} deep"),
        (b"a: " + b"{a: " * 5000, f"nested more than {DEPTH_MAX} deep"),
        (b"x" * (FILE_BYTES_MAX + 1), f"larger than {FILE_BYTES_MAX} bytes"),
        (b"a: [" + b"1," * NODES_MAX + b"]", f"more than {NODES_MAX} values"),
    ],
)
def test_junk_gets_one_sentence(tmp_path: Path, text: bytes, sentence: str) -> None:
    (only,) = problems_of(text, tmp_path)
    assert sentence in only
    assert "\n" not in only


def test_a_bomb_of_aliases_is_defused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    (only,) = problems_of("\n".join(lines), tmp_path)
    assert f"more than {NODES_MAX} values" in only


def test_anchors_are_fine_in_moderation() -> None:
    tree = parse(b"a: &x {k: v}\nb: *x\n")
    assert tree.items["b"][1] is tree.items["a"][1]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("missing.yaml", "there is no such file"), ("", "this is a folder"), ("a\0b", "cannot be read")],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        settings.load(f"{tmp_path}/{name}")


def test_secrets_stay_out_of_messages_and_of_the_canonical_form() -> None:
    values: dict[str, Any] = {
        "cluster": {"user": "someone", "pass": "hushhush", "manager": {"addr": "h:1"}},
        "slots": {"users": {"pepe": "hush1234"}},
        "election": {"strategy": "lease", "store": {"url": "postgresql://me:hush5678@h/db?sslpassword=hush9"}},
    }
    made = settings.of_mapping(values)
    assert "hush" not in str(canonical(made))
    assert canonical(made)["election"]["store"]["url"] == f"postgresql://me:{HIDDEN}@h/db?sslpassword={HIDDEN}"
    values["cluster"]["pass"] = "hu\nsh"
    assert "hush" not in problems_in({"slots": {"users": "hush"}})[0]
    values["slots"]["users"]["pepe"] = "hus"
    values["election"]["store"]["url"] = "hush://"
    assert "hu" not in str([p.partition(":")[2] for p in problems_in(values)]).replace("such", "")


# --- relations ------------------------------------------------------------------------------------------------------


def times(strategy: str = "raft", **over: int) -> dict[str, Any]:
    store = {"store": {"url": "sqlite:///x"}} if strategy == "lease" else {}
    return {"election": {"strategy": strategy, "timing": over, **store}}


@pytest.mark.parametrize(
    ("values", "path", "both"),
    [
        (times(heartbeat_ms=1200), "election.timing.heartbeat_ms", ("heartbeat_ms = 1200", "term_at_ms = 1200")),
        (times(term_at_ms=2300), "election.timing.term_at_ms", ("term_at_ms = 2300", "kill_at_ms = 2300")),
        (times(kill_at_ms=2800), "election.timing.kill_at_ms", ("kill_at_ms = 2800", "deadman_at_ms = 2700")),
        (times(deadman_at_ms=3000), "election.timing.deadman_at_ms", ("deadman_at_ms = 3000", "hold_ms = 3000")),
        (times(deadman_at_ms=2980), "election.timing.deadman_at_ms", ("leaves the kernel 20 ms", "hold_ms = 3000")),
        (times(kill_at_ms=2900, deadman_at_ms=2940), "election.timing.kill_at_ms", ("leaves 100 ms", "110 ms")),
        (
            times(heartbeat_ms=500),
            "election.timing.heartbeat_ms",
            ("bears 1 lost heartbeats", "2 are needed", "at most 383"),
        ),
        (times("lease", heartbeat_ms=700), "election.timing.heartbeat_ms", ("bears 0 lost heartbeats", "1 are needed")),
        (times(promise_ms=3060), "election.timing.promise_ms", ("3061 ms", "promise_ms = 3060", "hold_ms = 3000")),
        (times(hold_ms=6000), "election.timing.promise_ms", ("promise_ms = 3100", "hold_ms = 6000", "at least 6122")),
        (times(drift_ppm=20_000), "election.timing.promise_ms", ("3123 ms",)),
        (times(spread_ms=10), "election.timing.spread_ms", ("spread_ms = 10", "at least 50")),
        (times(misses=2), "election.timing.misses", ("raft has no such time",)),
        (times("bully", hold_ms=3000), "election.timing.hold_ms", ("bully has no such time", "coordinator_ms")),
        (times("bully", coordinator_ms=100), "election.timing.coordinator_ms", ("election_ms = 250",)),
    ],
)
def test_times_that_break_an_inequality(values: dict[str, Any], path: str, both: tuple[str, ...]) -> None:
    found = [p.replace("election.strategy = ", "") for p in problems_in(values)]
    (about,) = [p for p in found if p.startswith(path)]
    assert all(part in about for part in both), about


@pytest.mark.parametrize("strategy", PROFILES_OF)
def test_every_profile_passes_its_own_checks(strategy: str) -> None:
    for profile in PROFILES_OF[strategy]:
        timing = checks.profile_or_default(strategy, profile)
        if isinstance(timing, Timing):
            assert not checks.timing_problems(timing, strategy)
        else:
            assert not checks.rank_timing_problems(timing)


def test_every_field_of_the_times_can_be_overridden() -> None:
    for kind in (Timing, RankTiming):
        assert set(kind._fields) <= {f.name for f in dataclasses.fields(Settings().election.timing)}


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"election": {"profile": "ghoti"}}, ("does not fit the strategy raft", "lab, fast, lan, wan, executor")),
        ({"election": {"profile": "lam"}}, ("there is no such profile",)),
        ({"election": {"strategy": "lease"}}, ("needs a store",)),
        ({"election": {"rank": "natural"}}, ("only bully and ring use it",)),
        ({"election": {"failsafe": True}}, ("only lease uses it",)),
        (
            {"election": {"strategy": "lease", "failsafe": True, "store": {"url": "sqlite:///x"}}},
            ("at least two nodes",),
        ),
        (
            {"election": {"store": {"url": "redis://h", "durability": "durable"}}},
            ("election.store.durability = durable: is called strict now",),
        ),
        (
            {"election": {"store": {"url": "redis://h", "durability": "advisory"}}},
            ("election.store.durability = advisory: two nodes can hold", "postgresql://host/db"),
        ),
        (
            {"election": {"store": {"url": "rediss://u:hidden@h/1?ca=x&durability=%61dvisory#y"}}},
            ("election.store.url = ?durability=advisory: two nodes can hold", "appendfsync always"),
        ),
        (
            {"election": {"store": {"url": "sqlite:///x", "durability": "advisory"}}},
            ("election.store.durability = advisory: only redis:// has it",),
        ),
        (
            {"election": {"strategy": "raft"}, "cluster": {"manager": {"type": "join_server", "addr": "h:1"}}},
            ("counts votes over a fixed list", "set cluster.manager.type to static"),
        ),
        ({"cluster": {"manager": {"type": "static"}}}, ("needs the list of nodes",)),
        ({"cluster": {"manager": {"type": "join_server"}}}, ("listens somewhere",)),
        ({"cluster": {"manager": {"nodes": THREE, "join": "h:9"}}}, ("only join_server uses it",)),
        ({"cluster": {"manager": {"type": "none", "nodes": THREE}}}, ("a list needs type static",)),
        ({"cluster": {"manager": {"nodes": {"a": {"addr": "h:1"}, "b": {"addr": "h:1"}}}}}, ("nodes.a.addr too",)),
        ({"cluster": {"manager": {"nodes": {"a": {}}}}}, ("what others dial",)),
        ({"cluster": {"manager": {"nodes": {"a": {"addr": ":1"}}}}}, ("the host is missing",)),
        ({"cluster": {"manager": {"nodes": {"a": {"addr": "::1:80"}}}}}, ("[::1]:80",)),
        ({"cluster": {"manager": {"nodes": {"a": {"addr": "h:1", "kind": "witness"}}}}}, ("no node of the list",)),
        (
            {
                "election": {"strategy": "bully"},
                "cluster": {"manager": {"nodes": {"a": {"addr": "h:1", "kind": "witness"}, "b": {"addr": "h:2"}}}},
            },
            ("only raft counts votes", "use observer"),
        ),
        (
            {"cluster": {"node": "z", "manager": {"nodes": THREE}}, "election": {"strategy": "bully"}},
            ("cluster.node = z", "which has a, b, c"),
        ),
        ({"cluster": {"node": "z z", "manager": {"nodes": THREE}}}, ("cluster.node = z z", "1 to 20 letters")),
        ({"cluster": {"user": "someone"}}, ("cluster.pass", "is missing")),
        ({"cluster": {"user": "me", "pass": "longer"}}, ("cluster.user = me", "at least 4 characters")),
        ({"run": {"health": [{"every_ms": 1000}]}}, ("exactly one of http, tcp or command; here nothing",)),
        ({"run": {"health": [{"tcp": "h:1", "http": "http://h"}]}}, ("here http and tcp",)),
        ({"run": {"hooks": {"start": ["x"]}}}, ("a hook is one of",)),
        ({"slots": {"001": {}}}, ("slots.001.kind", "is missing")),
        ({"slots": {"001": {"kind": "ticker"}}}, ("slots.001.kind = ticker needs it",)),
        ({"slots": {"1": {"kind": "atomic"}}}, ("there is no such setting",)),
        (
            {"slots": {"001": {"kind": "token_bucket", "bucket_size": 2, "period": "hour", "tokens_per_req": 3}}},
            ("tokens_per_req = 3", "bucket_size = 2"),
        ),
        ({"slots": {"001": {"kind": "atomic", "type": "atomic"}}}, ("is set twice",)),
        ({"addr": "h:1", "slots": {"addr": "h:2"}}, ("is set twice: here and as slots.addr",)),
        ({"cache": {"peers": {"a": {"url": "tcp://h:1"}}}}, ("cache.peers.a.api",)),
        ({"cache": {"source": "ftp:x"}}, ("call:package.module:function",)),
        ({"cache": {"ttl_ms": 10}}, ("at least 100",)),
        ({"control": {"listen": "0.0.0.0:7480"}}, ("is open to others", "control.public")),
        ({"control": {"tls": {"cert": "c.pem"}}}, ("control.tls.key", "belong together")),
    ],
)
def test_relations(values: dict[str, Any], parts: tuple[str, ...]) -> None:
    found = "\n".join(problems_in(values))
    assert all(part in found for part in parts), found


def test_a_wrong_value_is_not_blamed_on_others() -> None:
    """A relation of a setting that is itself wrong would be checked with its default."""
    assert len(problems_in({"cluster": {"manager": {"nodes": {"a": {"addr": "nonsense"}}}}})) == 1
    assert len(problems_in({"election": {"strategy": "lease", "store": {"url": "nonsense"}}})) == 1


def test_an_unknown_word_hides_no_other_problem() -> None:
    assert len(problems_in({"is": 1, "election": 2, "cluster": {"manager": {"type": "static"}}})) == 3


def test_settings_can_be_sent_to_another_process() -> None:
    made = settings.load(FILES / "complete.yaml")
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_wrong_node_option_is_refused() -> None:
    with pytest.raises(SettingsError, match="--node = z: is not in"):
        settings.of_mapping({"cluster": {"manager": {"nodes": THREE}}, "election": {"strategy": "ring"}}, "z")


def test_R12_a_node_of_raft_need_not_be_in_the_file() -> None:
    made = settings.of_mapping({"cluster": {"manager": {"nodes": THREE}}}, "z")
    assert made.node == "z"
    assert "primacy members add z --addr HOST:PORT" in " ".join(checks.notes(made))
    with pytest.raises(SettingsError, match=r"--node = z/: is not in cluster\.manager\.nodes, and an id has 1 to 20"):
        settings.of_mapping({"cluster": {"manager": {"nodes": THREE}}}, "z/")


def test_notes_say_what_is_unusual() -> None:
    two = {"a": {"addr": "h:1"}, "b": {"addr": "h:2"}}
    found = " ".join(checks.notes(settings.of_mapping({"cluster": {"manager": {"nodes": two}}})))
    assert "2 voters bear as many losses as 1" in found
    assert "secret_file" in found
    lone = {"a": {"addr": "h:1"}, "b": {"addr": "h:2", "kind": "witness"}, "c": {"addr": "h:3", "kind": "witness"}}
    assert "Only a may lead" in " ".join(checks.notes(settings.of_mapping({"cluster": {"manager": {"nodes": lone}}})))


# --- canonical form and hash ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(p.name for p in FILES.glob("*.yaml")))
def test_the_canonical_form_reads_as_the_same_settings(name: str, tmp_path: Path) -> None:
    made = settings.load(FILES / name)
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(canonical(made), sort_keys=False))
    assert canonical(settings.load(again)) == canonical(made)
    assert settings.config_hash(settings.load(again)) == settings.config_hash(made)


def test_what_the_configuration_hash_covers() -> None:
    def of(**values: Any) -> str:
        base: dict[str, Any] = {"cluster": {"name": "n", "manager": {"nodes": THREE}}, "election": {}}
        for path, value in values.items():
            section = base
            *above, last = path.split("__")
            for word in above:
                section = section.setdefault(word, {})
            section[last] = value
        return settings.config_hash(settings.of_mapping(base))

    same = of()
    assert of(run__stop_ms=1) == same
    assert of(election__store__url="sqlite:///y", election__strategy="raft") == same
    assert of(election__timing__hold_ms=3000) == same, "the profile's own value, said aloud, changes nothing"
    assert of(cluster__node="a", log__level="debug", control__lab=True) == same
    other = [
        of(cluster__name="m"),
        of(cluster__manager__nodes={"a": {"addr": "h:1"}, "b": {"addr": "h:2"}}),
        of(cluster__manager__nodes={**THREE, "c": {"addr": "h:3", "kind": "observer"}}),
        of(cluster__manager__nodes={**THREE, "c": {"addr": "h:3", "priority": 1}}),
        of(election__name="other"),
        of(election__profile="wan"),
        of(election__timing__heartbeat_ms=200),
        of(election__mode="manual"),
        of(election__strategy="bully"),
    ]
    assert len({same, *other}) == 10


def test_the_hash_does_not_depend_on_the_order_of_the_file() -> None:
    turned = dict(reversed(THREE.items()))
    first, second = ({"cluster": {"manager": {"nodes": nodes}}} for nodes in (THREE, turned))
    assert settings.config_hash(settings.of_mapping(first)) == settings.config_hash(settings.of_mapping(second))


# --- the schema itself ----------------------------------------------------------------------------------------------


def test_every_setting_says_what_it_means() -> None:
    def visit(section: Any) -> None:
        for field in dataclasses.fields(section):
            rule = rule_of(field)
            assert re.search(r"[.:)]$", rule.text), field.name
            value = getattr(section, field.name)
            if dataclasses.is_dataclass(value):
                visit(value)
            elif rule.least is not None and field.name.endswith("_ms"):
                assert rule.most is not None, f"{field.name} has no upper bound"

    visit(Settings())


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.load(None).cluster.name = "x"  # type: ignore[misc]


# --- nonsense in any shape ------------------------------------------------------------------------------------------

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_bytes_of_any_kind_never_raise_anything_else(data: bytes) -> None:
    with contextlib.suppress(SettingsError):
        of_tree(parse(data, "junk"))


@pytest.mark.later
@hypothesis_settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_right_file_with_junk_in_any_place_never_raises_anything_else(data: st.DataObject) -> None:
    values = yaml.safe_load((FILES / "complete.yaml").read_text())
    section = values
    for _ in range(data.draw(st.integers(0, 4))):
        key = data.draw(st.sampled_from(sorted(map(str, section))))
        if not isinstance(section.get(key), dict) or not section[key]:
            break
        section = section[key]
    section[data.draw(st.sampled_from([*map(str, section), "new"]))] = data.draw(JUNK)
    with contextlib.suppress(SettingsError):
        settings.of_mapping(values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "any"),
        ({"cluster": {"manager": {"nodes": {"a": {"addr": "h:1"}}}}}, "any"),
        ({"cluster": {"secret_file": "s", "manager": {"nodes": THREE}}}, "strong"),
        ({"election": {"store": {"url": "sqlite:////x"}}}, "strong"),
        ({"election": {"strategy": "bully"}, "cluster": {"secret_file": "s", "manager": {"nodes": THREE}}}, "strong"),
        ({"run": {"require_containment": "strong"}}, "strong"),
        ({"run": {"require_containment": "any"}, "election": {"store": {"url": "sqlite:////x"}}}, "any"),
    ],
)
def test_G2_strong_containment_is_required_wherever_another_node_could_start(
    values: dict[str, Any], expected: str
) -> None:
    assert containment_required(settings.of_mapping(values)) == expected
