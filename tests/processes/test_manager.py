"""The manager: the wire, joining, the list and its way. Real sockets, one loop.

The seven limitations of Ghoti are tests by name: what it says, or what we do better (docs/origins/deviations.md).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from primacy.agent.cluster import ManagedCluster, StandaloneCluster, cluster_of
from primacy.agent.managed import recalled
from primacy.election.events import Code
from primacy.election.model import Leadership
from primacy.errors import InUse, NotReached, Refused, UsageError
from primacy.membership import join as http_join
from primacy.membership.http_wire import (
    Credentials,
    Said,
    address_of,
    as_names,
    is_allowed,
    join_answer,
    pairs,
    read_join_answer,
    texts_in,
)
from primacy.membership.members import Entry, MemberList, entries_in, entry_in, kept
from primacy.node.folder import Folder
from primacy.settings import load, of_mapping, timing_of
from primacy.settings.timing import RANK_PROFILES
from tests.support.managers_in_one_loop import LIMIT_S, STEADY, Nodes, knows, lived, mapping, quiet, three
from tests.support.mixed_clusters import Mixed, played

# --- the wire, without a socket ---------------------------------------------------------------------------------------


def test_texts_are_read_as_go_reads_them() -> None:
    assert texts_in(b' \n{"id":"a"} and more') == {"id": "a"}
    assert texts_in(b'{"id":null,"id2":"x","id2":"y"}') == {"id": "", "id2": "y"}
    assert texts_in(b"null") == {}
    for wrong in (b"", b"x", b"[]", b'"a"', b'{"id":1}', b'{"id":{}}', b"{", b'{"a":[]}', b"[" * 4_000, b"\xff\xfe"):
        assert texts_in(wrong) is None


def test_a_join_answer_is_written_as_go_writes_it_and_read_as_go_reads_it() -> None:
    body = join_answer("<n&1>", {"z": "h:1", 'q"ü': "h:2", "A": "h:3"})
    assert body == b'{"leader":"\\u003cn\\u00261\\u003e","peers":{"A":"h:3","q\\"\xc3\xbc":"h:2","z":"h:1"}}\n'
    found = read_join_answer(body)
    assert found is not None
    assert (found.leader, found.peers['q"ü']) == ("<n&1>", "h:2")
    assert read_join_answer(b'{"Leader":null,"PEERS":null,"more":1}') == ("", {})
    for wrong in (b"", b"[]", b'{"leader":1}', b'{"peers":{"a":1}}', b'{"peers":[]}'):
        assert read_join_answer(wrong) is None


def test_the_header_carries_any_text_in_ascii_and_nonsense_is_not_there() -> None:
    name = 'nö"d&=e %'
    line = pairs({"node": name, "boot": 7, "pruned": as_names([name, "a,b"])})
    assert line.isascii()
    said = Said(line)
    assert (said.node, said.number("boot"), said.names("pruned")) == (name, 7, (name, "a,b"))
    assert Said(None).is_ours is False
    wrong = Said("node=%0A&boot=x&word=%%%&epoch=" + "9" * 30)
    assert (wrong.node, wrong.number("boot"), wrong.data("word"), wrong.number("epoch")) == ("", 0, b"", 0)


def test_credentials_are_compared_whole_and_two_are_accepted_while_they_change() -> None:
    old, new = Credentials("user", "old:pass"), Credentials("user", "new_pass")
    assert is_allowed(old.header, (new, old))
    assert is_allowed(new.header, (new, old))
    assert not is_allowed(old.header, (new,))
    for wrong in (None, "", "Basic", "Basic !!!", "Bearer abc", new.header[:-4], Credentials("user", "").header):
        assert not is_allowed(wrong, (new, old))


def test_an_address_without_a_host_is_the_one_it_came_from() -> None:
    assert address_of("h:1", "1.2.3.4") == "h:1"
    assert address_of(":2222", "1.2.3.4") == address_of("0.0.0.0:2222", "1.2.3.4") == "1.2.3.4:2222"
    assert address_of("[::]:22", "::1") == "[::1]:22"
    for wrong in ("", ":2222", "h", "h:0", "h:70000", "h:1/path", "a b:1", "h:1\n"):
        assert address_of(wrong) is None


def test_of_two_entries_the_later_counts_and_lists_that_were_exchanged_are_equal() -> None:
    a, b = MemberList(Entry("a", "h:1", 10)), MemberList(Entry("b", "h:2", 11))
    a.take(Entry("c", "h:3", 5))
    b.take(Entry("c", "h:4", 6))
    b.take(Entry("d", "h:5", 7, True))
    assert a.digest != b.digest
    assert a.take_all(b.rows)
    assert b.take_all(a.rows)
    assert a.digest == b.digest
    assert a.addr("c") == "h:4"
    assert "d" not in a
    assert not a.newer_than(b.rows)
    assert not a.take(Entry("d", "h:5", 6)), "an old word does not bring a removed node back"
    assert a.take(Entry("d", "h:5", a.next_stamp("d", 1)))
    assert entries_in(json.loads(json.dumps(kept(a)))) == tuple(a.entries[name] for name in sorted(a.entries))
    for wrong in ([], {}, None, ["a"], ["a", "h:1", -1, False, "", 0, 0], ["", "h:1", 1, False, "", 0, 0]):
        assert entry_in(wrong) is None


@pytest.mark.parametrize("stamp", [9, 10, 12])
def test_what_a_node_says_of_itself_counts_whatever_stamp_others_gave_it(stamp: int) -> None:
    """Under an equal stamp two lists stayed different for ever, each content with its own."""
    a, b = MemberList(Entry("a", "h:1", 10)), MemberList(Entry("b", "h:2", 11))
    b.take(Entry("a", "h:9", stamp))
    for _ in range(2):
        a.take_all(b.rows)
        b.take_all(a.rows)
    assert (a.digest, b.addr("a")) == (b.digest, "h:1")
    assert not a.take_all(b.rows), "and it ends"


# --- joining ----------------------------------------------------------------------------------------------------------


def test_a_leader_is_told_of_a_later_stamp_of_its_own() -> None:
    """It asks nobody for a list. Whoever took it in may have given it a stamp of which it never heard."""

    async def scene(nodes: Nodes) -> None:
        await three(nodes)
        leader = await nodes.until(nodes.agreed, "one leads")
        other = nodes.up[next(name for name in "abc" if name != leader)].manager.member_list
        known = other.entries[leader]
        assert other.take(known._replace(stamp=known.stamp + 5))
        await nodes.until(
            lambda: len({node.manager.member_list.digest for node in nodes.up.values()}) == 1, "all lists are the same"
        )
        own = nodes.up[leader].manager.member_list.own
        assert own == known._replace(stamp=known.stamp + 5)

    lived(scene)


def test_three_nodes_join_elect_the_highest_and_hand_over_in_order() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes)
        await nodes.leads("a")
        await nodes.kill("a")
        await nodes.leads("c")
        await nodes.up.pop("c").shutdown()
        await nodes.leads("b")
        assert [event.code for name, event in nodes.events if name == "b"][-1] is Code.ELECTED

    lived(scene)


def test_a_planned_stop_ends_the_work_first_and_has_the_highest_elected() -> None:
    order: list[str] = []

    async def led(leadership: Leadership) -> None:
        order.append(f"{leadership.member} starts")
        try:
            await asyncio.sleep(3_600)
        finally:
            await asyncio.sleep(0.2)
            order.append(f"{leadership.member} ends")

    async def scene(nodes: Nodes) -> None:
        await three(nodes, led=led)
        await nodes.up.pop("a").shutdown()
        await nodes.leads("c")
        await nodes.until(lambda: "c starts" in order, "c works")
        assert order == ["a starts", "a ends", "c starts"]
        assert Code.LEADER_SILENT not in [event.code for _, event in nodes.events], "nobody had to miss it"

    lived(scene)


def test_work_that_fails_while_the_node_leads_is_not_kept_quiet() -> None:
    found: list[BaseException] = []

    async def led(leadership: Leadership) -> None:
        raise ValueError(leadership.member)

    async def scene(nodes: Nodes) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: found.append(told["exception"]))
        await nodes.start("a", led=led)
        await nodes.until(lambda: found, "the loop's handler is told")
        assert repr(found[0]) == "ValueError('a')"

    lived(scene)


@pytest.mark.parametrize("fails", [True, False])
def test_work_that_fails_or_returns_while_the_node_leads_hands_the_role_on(*, fails: bool) -> None:
    async def led(leadership: Leadership) -> None:
        if leadership.member == "a":
            await asyncio.wait_for(over.wait(), LIMIT_S)
            if fails:
                raise ValueError("the disk is full")
        else:
            await asyncio.sleep(3_600)

    over = asyncio.Event()

    async def scene(nodes: Nodes) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await three(nodes, led=led)
        over.set()
        await nodes.until(lambda: nodes.agreed() in ("b", "c"), "another one leads")
        assert nodes.up["a"].leadership() is None
        assert ("a", Code.WORK_ENDED) in [(name, event.code) for name, event in nodes.events]
        why = "failed (ValueError: the disk is full)" if fails else "ended by itself"
        assert f"what runs while this node leads has {why}, so that the role is handed on" in nodes.said
        await nodes.up.pop("a").shutdown()

    lived(scene)


def test_a_node_alone_whose_work_ends_tries_again_after_a_while() -> None:
    began: list[int] = []

    async def led(leadership: Leadership) -> None:
        began.append(leadership.term)

    async def scene(nodes: Nodes) -> None:
        await nodes.start("a", led=led, election={"profile": "fast"})
        await nodes.until(lambda: len(began) >= 2, "it leads, and works, again")
        assert began[0] < began[1]

    lived(scene)


def test_limitation_1_no_data_is_replicated_and_every_leadership_starts_anew() -> None:
    """By design, as in Ghoti; and a node that led, lost and leads again starts clean, too."""
    began: list[tuple[str, int]] = []

    async def led(leadership: Leadership) -> None:
        began.append((leadership.member, leadership.term))
        await asyncio.sleep(3_600)

    async def scene(nodes: Nodes) -> None:
        await nodes.start("a", led=led)
        await nodes.leads("a")
        await nodes.start("b", ["a"], led=led)
        await knows(nodes, "ab")
        nodes.cut("a", "b")
        await nodes.until(lambda: nodes.leaders() == ["a", "b"], "each leads its island")
        nodes.heal()
        await nodes.leads("b")
        await nodes.kill("b")
        await nodes.leads("a")
        await nodes.until(lambda: len(began) == 3, "a starts again")
        assert [name for name, _ in began] == ["a", "b", "a"]
        assert began[2][1] > began[0][1]

    lived(scene)


def test_limitation_2_a_join_is_tried_again_and_said_until_it_succeeds() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.port("a")
        node = await nodes.start("b", ["a"])
        await nodes.until(lambda: node.manager.troubles, "it says that it could not join")
        sentence = node.manager.troubles[0].sentence
        assert "no cluster was joined yet" in sentence
        assert "cannot be reached" in sentence
        await nodes.start("a")
        await nodes.leads("a")
        await nodes.until(lambda: not node.manager.troubles, "the trouble is over")

    lived(scene)


def test_why_a_join_fails_is_said_at_first_and_again_when_it_is_for_another_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_join, "SAY_AGAIN_MS", 3_600_000)

    async def scene(nodes: Nodes) -> None:
        nodes.port("a")
        await nodes.start("b", ["a"])

        def lines(part: str) -> list[str]:
            return [line for line in nodes.said if "no cluster was joined yet" in line and part in line]

        await nodes.until(lambda: lines("nobody listens there"), "the first reason")
        await nodes.start("a", cluster={"pass": "another_one"})
        await nodes.until(lambda: lines("cluster.user and cluster.pass"), "the second reason")
        await nodes.kill("a")
        tries = nodes.up["b"].manager.machine.joining
        again = "nobody listens there"
        await nodes.until(lambda: [each for each in tries.troubles if again in each.sentence], "the first one again")
        assert (len(lines("nobody listens there")), len(lines("cluster.user"))) == (1, 1), "within a minute: not again"

    lived(scene)


def test_without_join_retry_a_join_fails_at_once() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.port("a")
        with pytest.raises(NotReached, match="join_retry is off"):
            await nodes.start("b", ["a"], manager={"join_retry": 0})

    lived(scene)


def test_one_of_several_addresses_suffices_to_join() -> None:
    async def scene(nodes: Nodes) -> None:
        nodes.port("gone")
        await nodes.start("a")
        await nodes.start("b", ["gone", "a"])
        await nodes.leads("a")

    lived(scene)


def test_an_address_in_use_is_said() -> None:
    async def scene(nodes: Nodes) -> None:
        await nodes.start("a")
        nodes.ports["b"] = nodes.ports["a"]
        with pytest.raises(InUse, match=r"cluster\.manager\.addr"):
            await nodes.start("b")

    lived(scene)


def test_limitation_3_two_leaders_that_meet_notice_it_and_one_remains() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes)
        nodes.cut("a", "b c")
        await nodes.until(lambda: nodes.leaders() == ["a", "c"], "one leader per island")
        nodes.heal()
        await nodes.leads("c")
        codes = [event.code for _, event in nodes.events]
        assert Code.CROSSED in codes
        assert Code.OUTRANKED in codes

    lived(scene)


def test_two_bootstrap_nodes_that_meet_become_one_cluster() -> None:
    async def scene(nodes: Nodes) -> None:
        await nodes.start("a")
        await nodes.start("c")
        await nodes.until(lambda: nodes.leaders() == ["a", "c"], "two clusters")
        await nodes.start("b", ["a", "c"])
        await knows(nodes, "abc")
        await nodes.leads("c")

    lived(scene)


def test_a_bootstrap_node_that_restarts_asks_those_it_remembers(tmp_path: Path) -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes)
        await nodes.until(lambda: len(nodes.kept.get("a", {}).get("nodes", ())) == 3, "a keeps the list")
        remembered = entries_in(nodes.kept["a"])
        await nodes.kill("a")
        await nodes.leads("c")
        nodes.events.clear()
        await nodes.start("a", remembered=remembered)
        await nodes.leads("c")
        assert Code.ELECTED not in [event.code for name, event in nodes.events if name == "a"]

    lived(scene)
    folder = Folder(str(tmp_path / "state"))
    try:
        assert recalled(of_mapping(mapping("a", 1)), folder) == ()
        (tmp_path / "state" / "nodes").write_bytes(b"\xff not a list")
        (tmp_path / "state" / "nodes").chmod(0o600)
        assert recalled(of_mapping(mapping("a", 1)), folder) == ()
    finally:
        folder.close()


def test_a_bootstrap_node_that_remembers_nobody_alive_leads() -> None:
    async def scene(nodes: Nodes) -> None:
        gone = Entry("z", f"127.0.0.1:{nodes.port('z')}")
        await nodes.start("a", remembered=(gone,))
        await nodes.leads("a")

    lived(scene)


def test_no_split_brain_when_the_leader_dies_right_after_a_join() -> None:
    """Hecaton's stale list: nobody waits for a refresh, since every node is told of a join at once."""

    async def scene(nodes: Nodes) -> None:
        await nodes.start("a")
        await nodes.leads("a")
        await nodes.start("b", ["a"])
        await knows(nodes, "ab")
        await nodes.start("c", ["a"])
        await nodes.until(lambda: "c" in nodes.up["a"].manager.member_list.peers, "a took c in")
        await nodes.until(lambda: "c" in nodes.up["b"].manager.member_list.peers, "b was told")
        await nodes.kill("a")
        await nodes.leads("c")

    lived(scene)


# --- the list ---------------------------------------------------------------------------------------------------------


def test_limitation_6_a_removed_node_leaves_every_list_and_comes_back_by_joining() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes)
        with pytest.raises(Refused, match="only the leader removes"):
            await nodes.up["b"].remove("c")
        with pytest.raises(Refused, match="step-down"):
            await nodes.up["a"].remove("a")
        await nodes.up["a"].remove("c")
        gone = nodes.up.pop("c")
        await knows(nodes, "ab")
        await nodes.until(lambda: gone.manager.member_list.own.gone, "c is told")
        removed = "was removed"
        await nodes.until(lambda: [each for each in gone.manager.troubles if removed in each.sentence], "and says so")
        await gone.kill()
        await nodes.start("c", ["b"])
        await knows(nodes, "abc")
        await nodes.leads("a")

    lived(scene)


def test_limitation_6_a_leader_that_was_removed_while_it_was_cut_off_learns_of_it_when_it_is_back() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes, election=STEADY)
        nodes.cut("a b", "c")
        await nodes.until(lambda: nodes.leaders() == ["a", "c"], "c leads alone")
        await nodes.up["a"].remove("c")
        await nodes.until(
            lambda: "c" not in nodes.up["b"].manager.member_list.peers, "b is told; the word to c is not sent"
        )
        assert not nodes.up["c"].manager.member_list.own.gone
        nodes.heal()
        await nodes.until(lambda: nodes.leaders() == ["a"], "one leads")
        assert nodes.up["c"].manager.member_list.own.gone

    lived(scene)


def test_limitation_6_the_long_dead_are_left_out_of_elections_when_told_to() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes, election={**STEADY, "prune_after_ms": 500})
        await nodes.kill("c")
        await nodes.until(lambda: nodes.up["a"].machine.pruned == ("c",), "the leader leaves c out")
        await nodes.until(lambda: nodes.up["b"].machine.pruned == ("c",), "and tells b")
        await nodes.start("c", ["a"], election={**STEADY, "prune_after_ms": 500})
        await nodes.until(lambda: nodes.up["a"].machine.pruned == (), "it counts again when it is heard")

    lived(scene)


def test_limitation_4_ids_compare_as_bytes_or_by_their_numbers() -> None:
    async def scene(nodes: Nodes, rank: str, winner: str) -> None:
        election = {**STEADY, "rank": rank}
        await nodes.start("first", election=election)
        for name in ("node9", "node10"):
            await asyncio.sleep(0.01)  # of two that start in one millisecond the higher id is the younger
            await nodes.start(name, ["first"], election=election)
        await knows(nodes, ["first", "node9", "node10"])
        await nodes.kill("first")
        await nodes.leads(winner)

    for rank, winner in (("id", "node9"), ("natural", "node10"), ("started", "node10")):
        lived(lambda nodes, rank=rank, winner=winner: scene(nodes, rank, winner))  # type: ignore[misc]


def test_limitation_5_with_require_majority_no_minority_leads() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes, election={**STEADY, "require_majority": True})
        nodes.cut("a", "b c")
        await nodes.leads("c", "b", "c")
        await nodes.until(lambda: nodes.up["a"].leadership() is None, "a steps back")
        assert nodes.leaders() == ["c"]
        nodes.heal()
        await nodes.leads("c")

    lived(scene)


def test_limitation_7_times_are_a_profile() -> None:
    settings = of_mapping(mapping("a", 1, election={"profile": "ghoti"}))
    assert timing_of(settings) == RANK_PROFILES["ghoti"]
    assert timing_of(of_mapping(mapping("a", 1, election={"timing": {"heartbeat_ms": 77}}))).heartbeat_ms == 77


@pytest.mark.later
@pytest.mark.parametrize("doubles", [2, 3])
def test_a_join_storm_of_real_nodes_is_calmed(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.start("b", election=STEADY)
        await nodes.leads("b")
        await nodes.start("d", ["b"], election=STEADY)
        for name in "ac"[: doubles - 1]:
            await nodes.double(name, "b")
        await nodes.double("x", "b")  # known to all, and told on by each of them

        def heard() -> int:
            return sum(each.heard["/join"] for each in nodes.doubles.values())

        await nodes.until(quiet(heard), "no join for a second")
        assert await nodes.one_leader()

    played(scene)


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_standalone_always_leads() -> None:
    async def scene() -> None:
        cluster = cluster_of(of_mapping({}))
        assert isinstance(cluster, StandaloneCluster)
        assert (cluster.leadership(), cluster.leader()) == (None, "")
        await cluster.start()
        leadership = cluster.leadership()
        assert leadership is not None
        assert leadership.member == cluster.leader() == "standalone"
        for refused in (cluster.join("h:1"), cluster.remove("b")):
            with pytest.raises(Refused, match="no cluster section"):
                await refused
        await cluster.shutdown()
        assert cluster.leadership() is None

    asyncio.run(scene())


def test_the_seed_s_example_files_are_clusters_as_they_stand() -> None:
    for name, join in (("ghoti_first", ()), ("ghoti_joining", ("localhost:2222",))):
        settings = load(Path(__file__).parents[1] / "files" / f"{name}.yaml")
        assert (settings.election.strategy, settings.election.rank, settings.election.profile) == ("bully", "id", "lan")
        cluster = cluster_of(settings)
        assert isinstance(cluster, ManagedCluster)
        assert cluster.manager.plan.join == join
        assert cluster.manager.identity.data == settings.cluster.bind


def test_the_manager_serves_bully_and_ring_only() -> None:
    with pytest.raises(UsageError, match="bully and ring"):
        ManagedCluster(of_mapping({}))
    with pytest.raises(UsageError, match="which node is this"):
        ManagedCluster(of_mapping({"cluster": {"manager": {"addr": "localhost:1"}}}))
    with pytest.raises(UsageError, match="keygen"):
        ManagedCluster(of_mapping({"cluster": {"node": "a", "manager": {"addr": "localhost:1"}}}))


def test_an_address_without_a_host_is_completed_and_said() -> None:
    said: list[str] = []
    settings = of_mapping(mapping("a", 1, manager={"addr": ":2345"}))
    assert ManagedCluster(settings, complain=said.append).manager.identity.addr == "localhost:2345"
    assert "cluster.manager.advertise" in said[0]
