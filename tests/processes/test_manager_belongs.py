"""Who belongs to a cluster of the manager: strategies, passwords, ids, certificates; and real nodes of Ghoti."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from primacy.agent.cluster import ManagedCluster, cluster_of
from primacy.errors import CannotHere, InUse, NotReached, Refused, UsageError
from primacy.membership.http_wire import HEADER_CHARS_MAX, PROBE, PRUNED_MAX, Answer, Said, as_names, id_body, pairs
from primacy.settings import of_mapping
from primacy.settings.accepted import ID_CHARS_MAX
from primacy.transport import MembershipManager
from tests.support.managers_in_one_loop import STEADY, Nodes, knows, lived, mapping, three
from tests.support.mixed_clusters import Mixed, played

# --- who belongs here -------------------------------------------------------------------------------------------------


def test_nodes_with_other_strategies_refuse_each_other_with_a_sentence() -> None:
    async def scene(nodes: Nodes) -> None:
        await nodes.start("a")
        node = await nodes.start("b", ["a"], election={"strategy": "ring"})
        await nodes.until(lambda: node.manager.troubles, "it says why")
        assert "election.strategy is bully at node a and ring at node b" in node.manager.troubles[0].sentence
        assert "election.strategy is bully at node a" in nodes.up["a"].manager.troubles[0].sentence
        assert node.leader() == ""
        with pytest.raises(NotReached, match="need the same"):
            await nodes.start("c", ["a"], election={"rank": "natural"}, manager={"join_retry": 0})
        await nodes.up.pop("c").kill()
        await nodes.kill("b")
        await nodes.start("b", ["a"])
        await nodes.leads("a")
        shown = nodes.up["a"].manager
        await nodes.until(lambda: not any("node b is refused" in each.sentence for each in shown.troubles), "mended")

    lived(scene)


def test_the_password_is_changed_without_a_stop() -> None:
    async def scene(nodes: Nodes) -> None:
        await nodes.start("a", cluster={"pass": "first_one", "pass_other": "second_one"})
        await nodes.leads("a")
        await nodes.start("b", ["a"], cluster={"pass": "second_one", "pass_other": "first_one"})
        await knows(nodes, "ab")
        await nodes.kill("a")
        await nodes.leads("b")
        await nodes.start("a", ["b"], cluster={"pass": "second_one"})
        await nodes.leads("b")

    lived(scene)


def test_ids_with_quotes_and_unicode_lead_and_follow() -> None:
    names = ['a"quote', "b ünï}]{", "zß<&'\\", "\N{FOX FACE}" * ID_CHARS_MAX]

    async def scene(nodes: Nodes) -> None:
        await nodes.start(names[0])
        await nodes.leads(names[0])
        for name in names[1:]:
            await nodes.start(name, [names[0]])
        await knows(nodes, names)
        await nodes.kill(names[0])
        await nodes.leads(names[-1])

    lived(scene)


def test_the_header_stays_readable_whoever_is_left_out() -> None:
    foxes = [f"{number:02}" + "\N{FOX FACE}" * (ID_CHARS_MAX - 2) for number in range(PRUNED_MAX)]
    said = Said(pairs({"node": foxes[0], "pruned": as_names(foxes)}))
    assert said.node == foxes[0]
    assert 1 < len(said.names("pruned")) < len(foxes)
    assert said.names("pruned") == tuple(foxes[: len(said.names("pruned"))])
    assert len(pairs({"pruned": as_names(foxes)})) < HEADER_CHARS_MAX / 2
    plain = [f"node-of-a-long-name{number:02}"[:ID_CHARS_MAX] for number in range(PRUNED_MAX)]
    assert Said(pairs({"pruned": as_names(plain)})).names("pruned") == tuple(plain)


def test_the_port_of_the_list_is_the_managers() -> None:
    async def scene(nodes: Nodes) -> None:
        await nodes.start("a")
        await nodes.leads("a")
        await nodes.start("b")
        await nodes.until(lambda: nodes.leaders() == ["a", "b"], "two clusters")
        here: MembershipManager = nodes.up["a"].membership
        there = f"127.0.0.1:{nodes.port('b')}"
        assert here.nodes == (("a", f"127.0.0.1:{nodes.port('a')}"),)
        await here.join(there)
        assert here.nodes[1] == ("b", there)
        await nodes.leads("b")
        with pytest.raises(NotReached, match="nobody listens there"):
            await here.join(f"127.0.0.1:{nodes.port('gone')}")
        nodes.up["b"].membership.remove("a")
        assert nodes.up["b"].membership.nodes == (("b", there),)
        await nodes.until(lambda: nodes.up["a"].manager.member_list.own.gone, "a is told")

    lived(scene)


def test_no_cluster_stands_for_a_store(tmp_path: Path) -> None:
    """Without a cluster section a node always leads; one on a lease must not, and would here."""
    with pytest.raises(UsageError, match=r"use primacy\.Election"):
        cluster_of(of_mapping({"election": {"store": {"url": f"sqlite:///{tmp_path}/leases.db"}}}))


def test_the_list_is_fetched_at_every_eighth_look_though_nothing_says_that_it_changed() -> None:
    async def scene(nodes: Nodes) -> None:
        await nodes.start("a", election={"profile": "fast"})
        await nodes.leads("a")
        await nodes.start("b", ["a"], election={"profile": "fast"})
        await knows(nodes, "ab")
        a, b = (nodes.up[name].manager for name in "ab")
        await nodes.until(lambda: a.member_list.digest == b.member_list.digest, "the lists are the same")

        def fetched() -> int:
            return a.counters.get("fetched", 0) + b.counters.get("fetched", 0)

        for _ in range(2):
            before, looks = fetched(), b.machine.joining._looks + a.machine.joining._looks
            await nodes.until(lambda before=before: fetched() > before, "fetched again")  # type: ignore[misc]
            assert a.member_list.digest == b.member_list.digest
            assert b.machine.joining._looks + a.machine.joining._looks > looks

    lived(scene)


def test_an_id_that_is_taken_is_refused_and_so_is_ones_own_address_of_another() -> None:
    async def scene(nodes: Nodes) -> None:
        await nodes.start("a")
        await nodes.leads("a")
        nodes.ports["other"] = nodes.port("other")
        settings = of_mapping(mapping("a", nodes.port("other"), [nodes.port("a")], manager={"join_retry": 0}))
        double = ManagedCluster(settings)
        with pytest.raises(NotReached, match="its id is taken"):
            await double.start()
        await double.kill()

    lived(scene)


def test_an_answer_of_another_node_than_the_one_that_was_meant_is_none() -> None:
    async def scene(nodes: Nodes) -> None:
        await three(nodes, election=STEADY)
        await nodes.kill("c")
        nodes.ports["b2"] = nodes.ports["c"]
        await nodes.start("b2", ["a"], election=STEADY)
        await knows(nodes, ["a", "b", "c", "b2"])
        manager = nodes.up["a"].manager
        await nodes.until(lambda: [each for each in manager.troubles if "node b2 answers at" in each.sentence], "said")
        await nodes.kill("a")
        await nodes.leads("b2")

    lived(scene)


def test_a_fixed_list_needs_no_join_and_takes_nobody_in() -> None:
    async def scene(nodes: Nodes) -> None:
        for name in "abcx":
            nodes.port(name)
        wrong = r"already in use; end what has it .* another cluster\.manager\.nodes\.a\.bind$"
        with socket.create_server(("127.0.0.1", nodes.port("a"))), pytest.raises(InUse, match=wrong):
            await fixed(nodes, "a", "abc")
        for name in "abc":
            await fixed(nodes, name, "abc")
        leader = await nodes.until(nodes.agreed, "one leads")
        lead, other = nodes.up[leader], min(set("abc") - {leader})
        for asked in (lead.join(f"127.0.0.1:{nodes.port('x')}"), lead.remove(other)):
            with pytest.raises(Refused, match="a fixed one"):
                await asked
        calls, addr = nodes.up[other].manager.client, lead.manager.identity.addr
        told = [await calls.call("POST", addr, "/remove", id_body(each), "", 30) for each in (other, PROBE)]
        assert [each.status for each in told if isinstance(each, Answer)] == [400, 200], "it leads, and changes nothing"
        assert set(lead.manager.member_list.peers) == set("abc")
        with pytest.raises(NotReached, match="refuses"):
            await nodes.start(
                "x", ["a"], election=STEADY, cluster={"user": "user", "pass": "pass"}, manager={"join_retry": 0}
            )
        await nodes.up.pop("x").kill()
        await nodes.kill(leader)
        await nodes.until(nodes.agreed, "another one leads")

    lived(scene)


async def fixed(nodes: Nodes, name: str, listed: str, password: str = "pass") -> None:
    """A node with a fixed list."""
    told = {each: {"addr": f"127.0.0.1:{nodes.port(each)}"} for each in listed}
    cluster = {"node": name, "user": "user", "pass": password, "manager": {"nodes": told}}
    settings = of_mapping({"cluster": cluster, "election": {"strategy": "bully", **STEADY}})
    nodes.up[name] = ManagedCluster(settings, complain=lambda line: nodes.said.append(f"{name}: {line}"))
    await nodes.up[name].start()


def shows(nodes: Nodes, at: str, of: str, part: str) -> bool:
    """In `status` at the one node, in the row of the other."""
    return any(part in each.sentence for each in nodes.up[at].manager.troubles if each.node == of)


def test_two_that_know_each_other_and_have_other_passwords_both_say_so_and_what_to_do() -> None:
    async def scene(nodes: Nodes) -> None:
        async def is_told(here: str, there: str) -> None:
            wrong = f"node {there} refuses what this node says: cluster.user and cluster.pass"
            await nodes.until(lambda: shows(nodes, here, there, wrong), "status has it")
            line = next(line for line in nodes.said if line.startswith(f"{here}: {wrong}"))
            assert line.endswith("Make them the same in both files, then restart one of the two")
            who = f"{here}: somebody at 127.0.0.1 asks with other credentials"
            await nodes.until(lambda: [line for line in nodes.said if line.startswith(who)], "and who refuses says so")

        await fixed(nodes, "a", "ab", "pass_one")
        await fixed(nodes, "b", "ab", "pass_two")
        await nodes.until(lambda: nodes.leaders() == ["a", "b"], "both lead, for each takes the other for dead")
        await is_told("a", "b")
        await is_told("b", "a")
        sent = nodes.up["b"].manager.machine.state.counters
        before = sent["sent/coordinator"]
        await nodes.until(lambda: sent["sent/coordinator"] > before + 3, "some heartbeats later")
        assert len([line for line in nodes.said if "refuses what" in line]) == 2, "not at every heartbeat"
        await nodes.kill("b")
        await fixed(nodes, "b", "ab", "pass_one")
        await nodes.until(nodes.agreed, "one leads")
        await nodes.until(lambda: not nodes.up["a"].manager.troubles, "and it is over")

    lived(scene)


def test_fixed_lists_that_differ_are_said_on_both_sides() -> None:
    other = "runs with another file than"

    async def scene(nodes: Nodes) -> None:
        async def is_told(name: str) -> None:
            await nodes.until(lambda: shows(nodes, name, name, f"node c {other} {name}"), "so do they of c")
            said = [line for line in nodes.said if line.startswith(f"{name}: node c {other}")]
            assert len(said) == 1
            assert f"is not in cluster.manager.nodes of {name}: more than one may lead" in said[0]

        for name, listed in (("a", "ab"), ("b", "ab"), ("c", "abc")):
            await fixed(nodes, name, listed)
        await nodes.until(lambda: shows(nodes, "c", "a", f"node a {other} c"), "c says it of a")
        await nodes.until(lambda: shows(nodes, "c", "b", f"node b {other} c"), "c says it of b")
        await is_told("a")
        await is_told("b")
        assert not shows(nodes, "a", "b", other), "those that have one file are content"

    lived(scene)


def test_ring_elects_over_the_same_wire() -> None:
    async def scene(nodes: Nodes) -> None:
        election = {"strategy": "ring", "profile": "lan"}
        await three(nodes, election=election)
        await nodes.start("d", ["b"], election=election)
        await knows(nodes, "abcd")
        await nodes.kill("a")
        await nodes.leads("d")
        nodes.cut("d", "b c")
        await nodes.leads("c", "b", "c")
        nodes.heal()
        await nodes.leads("d")
        counters = nodes.up["b"].manager.counters
        assert counters.get("sent/ring", 0) + counters.get("received/ring", 0) > 0

    lived(scene)


def test_a_real_node_is_not_taken_into_a_ring() -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.start("a", election={"strategy": "ring"})
        with pytest.raises(RuntimeError, match="400"):
            await nodes.double("b", "a")
        assert "does not know the ring" in nodes.said[-1]

    played(scene)


# --- our node among real ones -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("doubles", [1, 2])
def test_our_node_joins_a_cluster_of_real_nodes_and_takes_over(doubles: int) -> None:
    async def scene(nodes: Mixed) -> None:
        await nodes.double("a")
        if doubles > 1:
            await nodes.double("b", "a")
        node = await nodes.start("y", ["a"], election=STEADY)
        await nodes.leads("a")
        assert node.leadership() is None
        await nodes.kill("a")
        assert await nodes.one_leader()

    played(scene)


def test_crossed_announcements_of_real_nodes_are_undone() -> None:
    """W4: two nodes that follow each other would stay so for ever; ours asks whether its leader leads."""

    async def scene(nodes: Mixed) -> None:
        double = await nodes.double("z")
        node = await nodes.start("b", ["z"], election=STEADY)
        await nodes.leads("z")
        double.leader = "b"  # as after a crossed announcement
        await nodes.one_leader()
        assert node.leader() in ("b", "z")

    played(scene)


def test_a_real_bootstrap_node_that_restarts_is_told_who_leads() -> None:
    """W2: it would lead a cluster of its own for ever."""

    async def scene(nodes: Mixed) -> None:
        await nodes.double("a")
        await nodes.start("b", ["a"], election=STEADY)
        await nodes.start("c", ["a"], election=STEADY)
        await nodes.leads("a")
        await nodes.kill("a")
        await nodes.leads("c")
        await nodes.until(lambda: nodes.up["c"].manager.machine.state.peer("a").was_down, "its absence is noticed")
        double = await nodes.double("a")
        assert double.leads
        await nodes.leads("c")
        await nodes.until(lambda: set(double.peers) >= {"c"}, "it knows its leader's address again")

    played(scene)


def certificates(folder: Path) -> dict[str, str]:
    """A certificate for localhost that signs itself: the one node's and the authority's."""
    subprocess.run(
        [
            *["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"],
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    return {"cert": cert, "key": key, "ca": cert}


async def answered(port: int, context: ssl.SSLContext) -> bytes:
    """What the manager says to one without a certificate of its own."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return b""
    try:
        writer.write(b"GET /heartbeat HTTP/1.1\r\nHost: b\r\n\r\n")
        return await reader.read(100)
    except (ssl.SSLError, ConnectionError):
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    tls = certificates(tmp_path)
    Path(tls["key"]).chmod(0o640)
    with pytest.raises(CannotHere, match=r"cluster\.manager\.tls\.key = .*others can read it .*chmod 600"):
        ManagedCluster(of_mapping(mapping("a", 1, manager={"tls": tls})))


def test_over_tls_nodes_meet_and_others_do_not(tmp_path: Path) -> None:
    tls = certificates(tmp_path)

    async def scene(nodes: Nodes) -> None:
        await three(nodes, manager={"tls": tls})
        await nodes.kill("a")
        await nodes.leads("c")
        with pytest.raises(NotReached):
            await nodes.start("d", ["b"], manager={"join_retry": 0})
        assert not await answered(nodes.port("b"), ssl.create_default_context(cafile=tls["ca"]))

    lived(scene)
