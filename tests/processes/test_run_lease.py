"""`primacy run` on a lease, with real processes: what users see, what is kept, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.agent.stored import HOLDERS, earlier_holders
from primacy.errors import PrimacyError
from primacy.node.ballot import FileDurable
from primacy.node.folder import Folder
from primacy.node.lock import RunLock
from primacy.settings import of_mapping, store_url, timing_of
from primacy.settings.timing import PROFILES, for_lease
from tests.contracts.test_cli import Said, say  # noqa: F401
from tests.support import real_nodes as crowds
from tests.support import servers, stamp
from tests.support.canary import beside_a_canary
from tests.support.real_nodes import CLUSTER, ELECTION
from tests.support.real_nodes_on_lease import LeaseCrowd, lease_crowd
from tests.support.safety_checks import safe, tokens_grow
from tests.support.store_harness import made_new, short_waits

pytestmark = pytest.mark.beside(order=70)

Say = Callable[..., Said]
who_leads = beside_a_canary(for_lease(PROFILES["fast"]).heartbeat_ms, passes_if_late=True)
"""Stories in which this node leads, and no other, are asked of a machine that lets the holder run."""
SHORT_MS = 3_500
"""The longest wait of a table, above that for a hold of `lan`: nobody need wait for the usual one here."""
PER_S_MOST = 4.0
"""Statements of one holder and two others, in the default profile."""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[LeaseCrowd]:
    with lease_crowd("sqlite", tmp_path, "ab", "lan") as made:
        made.start()
        yield made


def other(crowd: LeaseCrowd, name: str) -> crowds.Node:
    return next(node for each, node in crowd.nodes.items() if each != name)


def refusal(asked: crowds.Node, order: str, **body: object) -> str:
    with pytest.raises(PrimacyError) as caught:
        asked.ask(f"/v1/{order}", body)
    return str(caught.value)


# --- what users see ---------------------------------------------------------------------------------------------------


@who_leads
def test_status_why_and_orders_work_as_elsewhere(two: LeaseCrowd, say: Say) -> None:  # noqa: F811
    """One story, for each start costs seconds: first use, holder and other, step-down, pause, transfer, the end."""
    first = two.acting()
    assert two.agree() == first.node
    holder, waits = two.nodes[first.node], other(two, first.node)
    assert f"node {first.node} campaigns for the lease main" in holder.text
    seen = waits.ask("/v1/cluster")
    rows = {row["node"]: row for row in seen["nodes"]}
    assert set(rows) == {"a", "b"}
    assert (rows[first.node]["role"], rows[first.node]["token"]) == ("leader", first.token)
    assert 0 < rows[first.node]["hold_left_ms"] <= two.timing.hold_ms
    assert rows[waits.name]["role"] == "follower"
    assert (rows[first.node]["health"], rows[first.node]["workload"]["state"]) == ("?", "?"), "the row does not say"
    assert seen["acting"] == [], "whether the other's command runs is not in the row"
    shown = say("status", "--state-dir", str(waits.state), "--config", str(two.folder / "primacy.yaml"))
    assert f"node {first.node} holds the lease; whether its command runs, primacy status says there" in shown.out
    assert shown.code == 1, "not known is not well"
    assert f"node {waits.name} waits for node {first.node}'s hold to run out" in shown.out
    shown = say("status", "--state-dir", str(holder.state), "--config", str(two.folder / "primacy.yaml"))
    assert f"the command runs on {first.node}" in shown.out
    assert shown.code == 0
    counted = waits.document()["counters"]
    assert counted["store_failed"] == 0
    assert counted["store_performed"] > 0
    assert b"primacy_store_total" in str(metrics(waits)).encode()

    assert "does not lead, " + first.node in refusal(waits, "step-down")
    assert "none can be named" in refusal(holder, "transfer", to=waits.name)
    assert "needs no first start" in refusal(holder, "init")
    assert "nothing to rejoin" in refusal(holder, "rejoin", without=["c"])
    assert f"say it on {first.node}" in refusal(waits, "pause", node=first.node)

    holder.ask("/v1/step-down", {})
    second = two.acting(first.token)
    assert second.node == waits.name, "after giving up in order a node lets the others go first"
    two.agree()
    waits.ask("/v1/pause", {})
    third = two.acting(second.token)
    assert third.node == holder.name
    assert waits.document()["role"] == "paused"
    holder.process.send_signal(signal.SIGTERM)
    assert holder.wait() == 0
    row = two.row()
    assert (row.released, row.token, row.successor) == (True, third.token, ""), "released before the agent ended"
    two.one_at_a_time()
    told = say("why", "--state-dir", str(holder.state), "--config", str(two.folder / "primacy.yaml")).out
    assert f"{holder.name} leads token {third.token}, because: {holder.name} takes the release by {waits.name}" in told


def metrics(node: crowds.Node) -> str:
    from urllib.request import urlopen

    from primacy.control.client import find

    found = find(str(node.state / CLUSTER / ELECTION))
    assert found is not None
    with urlopen(f"http://{found.host}:{found.port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    """A PostgreSQL of these tests alone, which stop it."""
    found = servers.fresh("postgresql")
    yield found
    found.remove()


def test_a_store_that_is_away_is_said_and_costs_the_role_in_time(server: servers.Server, tmp_path: Path) -> None:
    """Frozen for two holds: the command ends by its own clock, status says why, and it goes on by itself."""
    server.empty()
    crowd = LeaseCrowd(tmp_path, made_new(server.url()), "ab", "fast")
    try:
        crowd.start()
        old = crowd.acting()
        crowd.agree()
        node = crowd.nodes[old.node]
        server.freeze()
        frozen_ns = stamp.now_ns()
        crowd.until(
            lambda: "the store to answer (" in (node.document()["waits_for"] or ""), "a sentence about the store"
        )
        crowd.until(crowd.nobody, "the end of the command")
        lived_ms = (max(one.last_ns for one in crowd.stamped()) - frozen_ns) / 1e6
        safe(lived_ms < crowd.timing.hold_ms, f"the command lived for {lived_ms:.0f} ms without the store")
        time.sleep(crowd.timing.hold_ms / 1_000)
        server.thaw()
        crowd.acting(old.token)
        crowd.one_now()
    finally:
        server.thaw()
        crowd.end()


def test_an_end_while_the_store_is_away_waits_no_longer_than_a_hold(server: servers.Server, tmp_path: Path) -> None:
    server.empty()
    crowd = LeaseCrowd(tmp_path, made_new(server.url()), "a", "fast")
    try:
        crowd.start()
        crowd.acting()
        server.freeze()
        node = crowd.nodes["a"]
        node.process.send_signal(signal.SIGTERM)
        assert node.wait() == 0
        assert "did not take the release of the lease within one hold" in node.text
        safe(not crowd.commands(), "something of it lives")
    finally:
        server.thaw()
        crowd.end()


# --- before a start ---------------------------------------------------------------------------------------------------


@who_leads
def test_G8_approval_and_fence_command_on_a_lease(tmp_path: Path) -> None:
    """The fence command runs after a loss, and not after a release of work that ran."""
    fenced = tmp_path / "fenced"
    more = "  mode: manual\nrun:\n  fence_command: [sh, -c, 'echo $PRIMACY_NODE $PRIMACY_PREDECESSOR >> FILE']\n"
    with lease_crowd("sqlite", tmp_path, "ab", "lan", more=more.replace("FILE", str(fenced))) as crowd:
        crowd.start("a")
        first = approved(crowd, crowd.nodes["a"])
        assert fenced.read_text() == "a\n", "nothing proves that nobody worked before"
        crowd.start("b")
        crowd.agree()
        crowd.nodes["a"].ask("/v1/step-down", {})
        second = approved(crowd, crowd.nodes["b"], first.token)
        assert fenced.read_text() == "a\n", "a's release covers it"
        crowds.kill_all(crowd.nodes["b"])
        third = approved(crowd, crowd.nodes["a"], second.token)
        assert fenced.read_text() == "a\na\n", "whether b's command ran is not in the row, so that nobody is named"
        assert third.node == "a"
        crowd.one_at_a_time()


def approved(crowd: LeaseCrowd, node: crowds.Node, above: int = 0) -> stamp.Stamp:
    def waiting() -> dict[str, Any] | None:
        state = node.document()
        return state if "an approval" in (state["waits_for"] or "") and state["token"] > above else None

    state = crowd.until(waiting, f"{node.name} to wait for an approval")
    node.ask("/v1/approve", {"node": node.name, "term": state["term"]})
    return crowd.acting(above)


def test_a_health_probe_costs_the_role_and_a_hook_tells(tmp_path: Path) -> None:
    told = tmp_path / "told"
    more = f"run:\n  hooks: {{lost: [sh, -c, 'echo $PRIMACY_NODE $PRIMACY_REASON >> {told}']}}\n"

    def lost() -> int:
        return len(told.read_text().splitlines()) if told.exists() else 0

    with lease_crowd("sqlite", tmp_path, "ab", "fast", more=more) as crowd:
        crowd.start()
        for _ in range(5):  # on a machine that stalls the role may be lost for that before the order comes
            before = lost()
            name, acts = crowd.agree(), crowd.acting()
            crowd.nodes[name].ask("/v1/health", {"ok": False, "detail": "no route"})
            while acts.node == name:
                acts = crowd.acting(acts.token)
            crowd.until(lambda before=before: lost() > before, "the hook")
            assert "no route" in crowd.nodes[name].document()["waits_for"]
            if f"{name} unhealthy" in told.read_text().splitlines():
                break
            crowd.nodes[name].ask("/v1/health", {"ok": True})
        assert f"{name} unhealthy" in told.read_text().splitlines()
        crowd.one_at_a_time()


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_T2_the_largest_token_is_kept_whatever_the_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a lease to raft and back: every start is above all that this machine has seen.

    Who else used the lease nobody knows, so that an operator has to say first that nobody does (M1).
    """
    short_waits(monkeypatch, SHORT_MS)
    with lease_crowd("sqlite", tmp_path, "a", "lan") as crowd:
        crowd.start()
        first = crowd.acting()
        end(crowd)
        state = crowd.nodes["a"].state / CLUSTER / ELECTION
        assert token_kept(state) == first.token
        (crowd.folder / "raft.yaml").write_text(f"cluster: {{name: {CLUSTER}}}\nelection: {{profile: lan}}\n")
        refused = crowd.start("a", file="raft.yaml")
        assert refused.wait() == 5
        assert "nobody knows who else did" in refused.text
        assert f"rm {state / 'ballot'}" in refused.text
        (state / "ballot").unlink()
        crowd.start("a", file="raft.yaml")
        second = crowd.acting(first.token)
        end(crowd)
        os.unlink(tmp_path / "leases.db")  # the store was lost, and all tokens with it
        made_new(crowd.url)
        crowd.start("a")
        third = crowd.acting(second.token)
        tokens_grow([first.token, second.token, third.token])
        assert crowd.tokens() == [first.token, second.token, third.token]
        end(crowd)
        (state / "tokens").write_text("torn")
        node = crowd.start("a")
        assert node.wait() == 5
        assert "rm " in node.text


@who_leads
def test_T2_a_node_whose_disk_takes_no_token_leaves_the_lease_to_others(tmp_path: Path) -> None:
    """What it takes it gives back at once, nothing of it ever starts, and it stands again when the disk is well."""
    with lease_crowd("sqlite", tmp_path, "ab", "fast") as crowd:
        sick = crowd.start("a")
        first = crowd.acting()
        end(crowd)
        blocked = sick.state / CLUSTER / ELECTION / "tokens.new"
        blocked.mkdir()  # the file that a save begins with cannot be made
        sick = crowd.start("a")

        def waits() -> bool:
            return "cannot be saved (Is a directory)" in (sick.document()["waits_for"] or "")

        crowd.until(waits, "a sentence about the disk")
        crowd.until(lambda: crowd.row().released, "the lease, given back")
        crowd.start("b")
        second = crowd.acting(first.token)
        assert second.node == "b"
        blocked.rmdir()
        crowd.until(lambda: not waits(), "a disk that is well")
        crowd.nodes["b"].process.send_signal(signal.SIGTERM)
        assert crowd.nodes["b"].wait() == 0
        assert crowd.acting(second.token).node == "a"
        assert sick.text.count("cannot save to the disk") == 1
        crowd.one_at_a_time()


def token_kept(folder: Path) -> int:
    opened = Folder(str(folder))
    try:
        ballot = FileDurable(opened, "tokens").load().ballot
        assert ballot is not None
        return ballot.token_max
    finally:
        opened.close()


def end(crowd: LeaseCrowd) -> None:
    node = crowd.nodes["a"]
    node.process.send_signal(signal.SIGTERM)
    assert node.wait() == 0, node.text


def test_L4_earlier_starts_are_believed_on_this_boot_and_under_this_lock_only(tmp_path: Path) -> None:
    def noted(where: str, holder: str) -> tuple[str, ...]:
        folder = Folder(str(tmp_path / where))
        lock = RunLock(folder)
        try:
            return earlier_holders(folder, lock, holder)
        finally:
            lock.close()
            folder.close()

    assert noted("one", "a#1") == ()
    assert noted("one", "a#2") == ("a#1",)
    assert noted("one", "a#3") == ("a#1", "a#2")
    (tmp_path / "two").mkdir(mode=0o700)
    copy = tmp_path / "two" / HOLDERS
    copy.write_bytes((tmp_path / "one" / HOLDERS).read_bytes())
    copy.chmod(0o600)
    assert noted("two", "a#4") == (), "a copy of the folder has another lock"
    kept = json.loads((tmp_path / "one" / HOLDERS).read_text())
    (tmp_path / "one" / HOLDERS).write_text(json.dumps({**kept, "boot": "another"}))
    assert noted("one", "a#5") == (), "before the machine was started anew"
    (tmp_path / "one" / HOLDERS).write_text("{torn")
    assert noted("one", "a#6") == ()
    for n in range(40):
        noted("one", f"a#{n + 7}")
    assert len(noted("one", "a#99")) == 16


# --- what it costs, what is refused -----------------------------------------------------------------------------------


@beside_a_canary(for_lease(PROFILES["lan"]).heartbeat_ms, passes_if_late=True)
def test_three_nodes_in_the_default_profile_ask_at_most_four_statements_a_second(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of a machine that lets them ask when it is time: a holder that stood still is replaced, which is asked for."""
    with lease_crowd("sqlite", tmp_path_factory.mktemp("three"), "abc", "lan") as crowd:
        crowd.start()
        crowd.acting()
        crowd.agree()

        def asked() -> int:
            return sum(node.document()["counters"]["store_performed"] for node in crowd.nodes.values())

        began_s, before = time.monotonic(), asked()
        time.sleep(6)
        after, took_s = asked(), time.monotonic() - began_s
        # Of each node one more may fall into a span than on the average fits.
        assert 2.0 < (after - before) / took_s <= PER_S_MOST + len(crowd.nodes) / took_s


def test_what_cannot_be_is_refused_with_the_reason(say: Say, tmp_path: Path) -> None:  # noqa: F811
    for options, sentence in (
        (("--strategy", "lease"), "needs a store: say --store URL"),
        (("--store", "memory:"), "a store is one of"),
        (("--store", "sqlite:///f.db", "--node", "no such/name"), "a name has letters"),
        (("--store", "sqlite:///f.db", "--profile", "ghoti"), "does not fit the strategy lease"),
        (("--store", "mysql://host"), "names its database"),
    ):
        done = say("run", "--state-dir", str(tmp_path / "s"), *options, "--", "true")
        assert done.code == 2, done
        assert sentence in done.err
    (tmp_path / "f.yaml").write_text(
        "cluster: {manager: {nodes: {a: {addr: '127.0.0.1:1'}, b: {addr: '127.0.0.1:2'}}}}\n"
        "election: {strategy: lease, failsafe: true, store: {url: 'sqlite:///f.db'}}\n"
    )
    done = say("run", "--config", "f.yaml", "--node", "a", "--state-dir", str(tmp_path / "s"), "--", "true")
    assert (done.code, "needs cluster.secret_file" in done.err) == (2, True)


def test_a_relative_file_of_a_store_counts_from_the_settings(tmp_path: Path, say: Say) -> None:  # noqa: F811
    from primacy.settings import load

    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "primacy.yaml").write_text("election: {store: {url: 'sqlite:///leases.db'}}\n")
    settings = load(str(folder / "primacy.yaml"))
    assert store_url(settings) == f"sqlite:///{folder}/leases.db"
    assert settings.node, "the host's name: there is no list that it could be missing from"
    assert store_url(of_mapping({"election": {"store": {"url": "sqlite:////x/y.db"}}})) == "sqlite:////x/y.db"
    assert say("contract", "--config", str(folder / "primacy.yaml")).code == 0
    timing = timing_of(settings)
    assert (timing.heartbeat_ms, timing.look_ms) == (550, 900)
