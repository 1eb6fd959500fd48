"""Nodes on a lease that also speak to each other: what they see, and the failsafe (L7) against a real PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from primacy.settings.timing import PROFILES, for_lease
from tests.contracts.test_cli import Said, say  # noqa: F401
from tests.support import real_nodes as crowds
from tests.support import servers
from tests.support.canary import Canary, beside_a_canary
from tests.support.real_nodes_on_lease import LeaseCrowd, lease_crowd
from tests.support.servers import Server
from tests.support.store_harness import made_new, short_waits

pytestmark = pytest.mark.moments(order=210)

Say = Callable[..., Said]
PROFILE = "fast"
TIMING = for_lease(PROFILES[PROFILE])
HOLDS = 10
SHORT_MS = 1_500
"""The longest wait of a table, above that for a hold: nobody need wait for the usual one here."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL of these tests alone, which stop it."""
    found = servers.fresh("postgresql")
    yield found
    found.remove()


@contextmanager
def on(server: Server, folder: Path) -> Iterator[LeaseCrowd]:
    """Three nodes with the failsafe that meet in this server; names are free in it at once."""
    server.empty()
    url = made_new(server.url())
    crowd = LeaseCrowd(folder, url, "abc", PROFILE, speak=True, more="  failsafe: true\n")
    try:
        crowd.start()
        yield crowd
    finally:
        server.thaw()
        crowd.end()


def all_heard(crowd: LeaseCrowd, node: crowds.Node) -> bool:
    rows = (node.ask("/v1/cluster") or {"nodes": []})["nodes"]
    return {row["node"] for row in rows if row["version"]} == set(crowd.names)


@beside_a_canary(TIMING.heartbeat_ms)
def test_L7_the_command_goes_on_while_the_store_is_stopped_for_ten_holds(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with on(server, tmp_path_factory.mktemp("crowd")) as crowd:
        old = crowd.acting()
        crowd.agree()
        node = crowd.nodes[old.node]
        crowd.until(lambda: all_heard(crowd, node), "all nodes to be heard")
        server.freeze()
        crowd.until(lambda: "agree that it goes on meanwhile" in (node.document()["waits_for"] or ""), "the failsafe")
        time.sleep(HOLDS * TIMING.hold_ms / 1_000)
        assert crowd.acting().first_ns == old.first_ns, "the very same start"
        server.thaw()
        crowd.until(lambda: not node.document()["waits_for"], "a renewal by the store")
        time.sleep(2 * TIMING.hold_ms / 1_000)
        now = crowd.one_now()
        assert (now.token, now.run) == (old.token, old.run)
        assert crowd.tokens() == [old.token], "nobody else ever started"
        assert "keeps its work going without the store, for all nodes of the list agree" in node.text


def test_L7_without_one_of_the_list_the_command_ends_in_time(server: Server, tmp_path: Path) -> None:
    """The store is away and one node is gone: nobody could know whether that one takes the row."""
    with on(server, tmp_path) as crowd:
        old = crowd.acting()
        crowd.agree()
        node = crowd.nodes[old.node]
        crowd.until(lambda: all_heard(crowd, node), "all nodes to be heard")
        gone = next(other for name, other in crowd.nodes.items() if name != old.node)
        server.freeze()
        crowds.kill_all(gone)
        gone.wait()
        crowd.until(crowd.nobody, "the end of the command")
        server.thaw()
        crowd.acting(old.token)
        crowd.one_at_a_time()
        crowd.until(lambda: "gives up the lease" in node.text, "the holder to say so")


def test_L7_the_row_belongs_to_the_list_until_it_is_released(
    tmp_path: Path,
    say: Say,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short_waits(monkeypatch, SHORT_MS)
    with lease_crowd("sqlite", tmp_path, "ab", PROFILE, speak=True, more="  failsafe: true\n") as crowd:
        crowd.start()
        old = crowd.acting()
        for node in crowd.nodes.values():
            crowds.stop_agent_and_guards(node)  # so that none of them releases anything for another
        for node in crowd.nodes.values():
            crowds.kill_all(node)
            node.wait()
        assert not crowd.row().released
        assert crowd.row().members
        crowd.list("ac")
        stranger = crowd.start("a", state="state-other")
        crowd.until(lambda: "another list of nodes" in (stranger.document()["waits_for"] or ""), "a refusal")
        told = say("lease", "break", "=main", "--store", crowd.url, "--yes")
        assert told.code == 0, told.err
        assert "if none reaches the store, nobody does" in told.out
        assert not crowd.row().released, "a listed node takes it, and nobody else"
        told = say("lease", "break", "=main", "--store", crowd.url, "--yes", "--free", "a,b")
        assert told.code == 0, told.err
        assert crowd.acting(old.token).node == "a"


def test_with_a_list_and_a_secret_every_node_shows_all_and_orders_are_passed_on(tmp_path: Path) -> None:
    """No statement is spent on it: what each says of itself travels by UDP, sealed."""
    with lease_crowd("sqlite", tmp_path, "abc", "lan", speak=True) as crowd:
        crowd.start()
        first = crowd.acting()
        crowd.agree()
        others = [name for name in crowd.names if name != first.node]
        asked = crowd.nodes[others[0]]
        crowd.until(lambda: all_heard(crowd, asked), "all nodes to be heard")

        def all_shown() -> bool:
            """What each said last may be older than what it is now."""
            seen = asked.ask("/v1/cluster") or {"acting": [], "nodes": []}
            rows = {row["node"]: row for row in seen["nodes"]}
            acts = seen["acting"] == [first.node] and rows[first.node]["workload"]["state"] == "running"
            return acts and {rows[name]["role"] for name in others} == {"follower"}

        crowd.until(all_shown, "who acts, and who follows")
        with Canary(crowd.timing.heartbeat_ms) as canary:
            crowd.order(asked, "/v1/transfer", {"to": others[1]})
            second = crowd.acting(first.token)
        canary.judge(second.node == others[1], f"the others leave it to {others[1]}, that was named: {second}")
        crowd.order(asked, "/v1/pause", {"node": second.node})
        third = crowd.acting(second.token)
        assert third.node != second.node
        crowd.until(lambda: crowd.nodes[second.node].document()["role"] == "paused", "a pause")
        crowd.one_at_a_time()
