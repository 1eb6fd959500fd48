"""What nodes of an earlier version say is understood while a cluster is upgraded: commands and the dashboard read both.

`data/earlier_version.json` was recorded from real nodes of that version.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from primacy.cli.local import Local
from primacy.cli.status import lines, seen
from primacy.control.client import FoundNode, ask
from primacy.control.earlier import CODES, DEEP, KEYS, current, current_settings
from primacy.control.eventlog import FILE_NAME, kept
from primacy.control.gossip_rows import GossipEvent, read
from primacy.control.summary import ROLES
from primacy.dashboard.plan import plan_of
from primacy.dashboard.rows import chain_of, cluster_of, event_row, lab_of
from primacy.errors import SettingsError
from primacy.lab.screen import lines as lab_lines
from primacy.settings import config_hash, of_mapping
from primacy.settings.timing import PROFILES, RANK_PROFILES

EARLIER: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/earlier_version.json").read_text())


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = json.dumps(EARLIER[self.path.rpartition("/")[2]]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def earlier_node() -> Iterator[FoundNode]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield FoundNode("127.0.0.1", server.server_port, "")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {*value, *(key for each in value.values() for key in keys_of(each))}
    return {key for each in value for key in keys_of(each)} if isinstance(value, list) else set()


def test_status_shows_an_earlier_node(earlier_node: FoundNode) -> None:
    state = seen(Local("", "main", earlier_node))
    text = "\n".join(lines(state, verbose=True))
    assert state["workload"]["containment"] == "strong"
    assert [row["workload"]["state"] for row in state["rows"]] == ["stopped"] * 3
    assert "nobody is known to run the command" in text
    assert "ALERT: node a runs with another configuration than c" in text


def test_a_lab_of_an_earlier_version_is_shown(earlier_node: FoundNode) -> None:
    text = "\n".join(lab_lines(ask(earlier_node, "/v1/lab")))
    assert "c     running  candidate   nobody  1     stopped  -" in text
    assert "node a waits for answers from memory" in text
    assert "0 stale refused, 1 double signature" in text
    assert "DOUBLE SIGNATURE: height 12 has two signers: a and b" in text


@pytest.mark.parametrize("name", ["state", "cluster", "lab"])
def test_no_key_of_before_is_left(name: str) -> None:
    assert keys_of(EARLIER[name]) & set(KEYS), "the record shows what was"
    assert not keys_of(current(EARLIER[name])) & set(KEYS)


def test_the_dashboard_reads_both_alike() -> None:
    for reader, name in ((cluster_of, "cluster"), (lab_of, "lab")):
        found = reader(EARLIER[name])
        assert found is not None
        assert found == reader(current(EARLIER[name]))
    cluster = cluster_of(EARLIER["cluster"])
    assert cluster is not None
    assert [(row.workload_kind, row.workload) for row in cluster.rows] == [("process", "stopped")] * 3


def test_roles_and_codes_are_read_under_their_names_of_today() -> None:
    assert current(EARLIER["state"])["role"] == "recovering"
    cluster = cluster_of(EARLIER["cluster"])
    assert cluster is not None
    assert [row.role for row in cluster.rows] == ["recovering", "follower", "candidate"]
    told = [row for row in map(event_row, EARLIER["events"]) if row is not None]
    assert len(told) == len(EARLIER["events"])
    codes = {row.code for row in told}
    assert {"recovering", "recovered", "campaigns"} <= codes
    assert not codes & set(CODES)


def test_an_event_log_of_before_is_read_and_goes_on(tmp_path: Path) -> None:
    kept_before = [{**each, "number": at} for at, each in enumerate(EARLIER["events"], 1)]
    file = tmp_path / FILE_NAME
    file.write_text("".join(json.dumps(each) + "\n" for each in kept_before))
    codes = {entry.code for entry in kept(str(file))}
    assert {"recovering", "recovered", "campaigns", "elected"} <= codes
    assert not codes & set(CODES)
    assert len(kept(str(file))) == len(kept_before)


def test_gossip_of_an_earlier_node_is_understood() -> None:
    """Roles travel as places of this tuple: a name may change, an order never."""
    assert ROLES == ("starting", "follower", "candidate", "leader", "observer", "paused", "recovering")
    told = read([2, 5, 1, "unmuted", "a speaks again after being mute", 0])
    assert read([2, 5, 1, "alarm", "two act", 0]) == GossipEvent(5, 1, "alert", "two act", 0)
    assert told == GossipEvent(5, 1, "recovered", "a speaks again after being mute", 0)


def test_the_dashboard_shows_the_alerts_of_a_chain_of_before() -> None:
    chain = chain_of(EARLIER["lab"]["chain"])
    assert chain is not None
    assert (chain.seen, chain.double_signatures, chain.alerts) == (142, 1, ("height 12 has two signers: a and b",))


@pytest.mark.parametrize(
    ("strategy", "profile", "heartbeat_ms", "hashed"),
    [
        ("raft", "lan", 0, "3024b0dcfd8cb5938d3b39bb897d05eb"),
        ("raft", "lan", 200, "42350e1333fc2cd9c7497ed16a0f0361"),
        ("lease", "lan", 0, "c6ef0b64f45868439bb55cec362a0d25"),
        ("lease", "coordinator", 3_000, "646dcabae73d261a7ae55b95cfe47d05"),
        ("bully", "lan", 0, "f1fd4170fe6bd7eb5135b60e9eb9452b"),
        ("ring", "ghoti", 1_500, "d285e365b28d152ee09ceb885fe63ac8"),
    ],
)
def test_the_hash_that_nodes_compare_is_that_of_the_version_before(
    strategy: str, profile: str, heartbeat_ms: int, hashed: str
) -> None:
    """The right-hand side was made by that version: nodes of both must vote for each other."""
    election: dict[str, Any] = {"strategy": strategy, "profile": profile}
    if heartbeat_ms:
        election["timing"] = {"heartbeat_ms": heartbeat_ms}
    if strategy == "lease":
        election["store"] = {"url": "sqlite:///x.db"}
    assert config_hash(of_mapping({"cluster": {"name": "x"}, "election": election})) == hashed


def test_the_file_of_an_earlier_node_has_todays_names_and_its_own_hash() -> None:
    said = EARLIER["config"]
    settings = current_settings(said["settings"])
    assert settings["election"]["timing"] == {"heartbeat_ms": 120}
    del settings["election"]["timing"]  # it was added to the record
    assert config_hash(of_mapping(settings)) == said["hash"]
    plan = plan_of(said, "c")
    assert plan is not None
    assert (plan.heartbeat_ms, plan.contract is not None) == (120, True)
    for strange in ({}, {"election": 3}, {"election": {"timing": []}}):
        assert current_settings(strange) == strange


def test_the_old_name_of_a_time_is_an_error_that_says_the_new_one() -> None:
    with pytest.raises(SettingsError, match=r"election\.timing\.beat_ms.*is `heartbeat_ms` meant\?"):
        of_mapping({"election": {"timing": {"beat_ms": 100}}})
    for timing in (PROFILES["lan"], RANK_PROFILES["lan"]):
        with pytest.raises(AttributeError, match=r"timing\.beat_ms is called timing\.heartbeat_ms now"):
            timing.beat_ms  # noqa: B018


def test_names_that_people_gave_are_left_alone() -> None:
    """A node may be called as a key was: `links` and the values of rows have such names."""
    said = {"nodes": [{"node": "duty", "links": {"duty": "none"}, "leader": "duty"}], "signer": {"duty": 1}}
    assert current(said) == said


def test_todays_document_wins_over_what_stands_beside_it_and_depth_is_bounded() -> None:
    assert current({"duty": 1, "workload": 2}) == {"workload": 2}
    assert current([{"duty": 1}, 2, "duty"]) == [{"workload": 1}, 2, "duty"]
    deep: Any = {"duty": 1}
    for _ in range(100_000):
        deep = {"nodes": deep}
    found = current(deep)
    for _ in range(DEEP):
        found = found["nodes"]
    while "nodes" in found:  # undone by hand: a deep one cannot be freed by recursion everywhere
        found = found["nodes"]
    assert found == {"duty": 1}
