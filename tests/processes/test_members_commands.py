"""What an operator says about members, with real nodes and the real command: two at once, cancelled, refused, passed
on, nodes that never come, come back, forgot or moved, and the last resort (R8 to R14).

Safety, judged from the stamps, and what people read, in the profile `lan`. Several clusters live at the same time.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from primacy.errors import Refused
from tests.support import real_nodes as crowds
from tests.support.ports import free_ports
from tests.support.real_members import MembersCrowd, members_crowd, side_by_side
from tests.support.safety_checks import safe

pytestmark = pytest.mark.beside(order=11)

AT_ONCE = 4


def others(crowd: MembersCrowd) -> list[str]:
    leader = crowd.agree()
    return [name for name in crowd.names if name != leader]


def ended(crowd: MembersCrowd, name: str) -> None:
    crowd.nodes[name].process.terminate()
    crowd.nodes[name].wait()


def waits_for(crowd: MembersCrowd, name: str, what: str) -> None:
    crowd.until(lambda: what in (crowd.nodes[name].document()["waits_for"] or ""), f"{name} to wait for {what}")


def well(crowd: MembersCrowd, name: str) -> str:
    """`primacy status` there, once it has heard that the command runs: what nodes say of themselves takes a second."""

    def look() -> str:
        said = crowd.say(name, "status")
        return said.stdout if said.returncode == 0 else ""

    found: str = crowd.until(look, f"{name} to know that all is well")
    return found


def priority(crowd: MembersCrowd, name: str) -> int:
    return next(int(row["priority"]) for row in crowd.members(name)["members"] if row["node"] == name)


def two_operators(folder: Path) -> None:
    """The first adds a node that never comes up: it costs nothing. The second is told who asked for what."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        one, other = others(crowd)
        crowd.list("abcx")
        crowd.names = "abc"
        crowd.done(one, "members", "add", "x", "--addr", crowd.addr("x"), "--no-wait")
        crowd.until(
            lambda: "x to be heard" in str(crowd.members(crowd.leader().name)["waits_for"]), "what it waits for"
        )
        busy = crowd.refused(other, "members", "add", "y", "--addr", "127.0.0.1:9")
        assert "a change is on its way (x as voter, version 2 by" in busy, busy
        assert "nothing has changed for the others; primacy members cancel" in crowd.done(crowd.agree(), "members")
        crowd.hand_over()
        assert "version" in crowd.done(one, "members", "cancel")
        assert "nothing is on its way" in crowd.refused(one, "members", "cancel")
        assert crowd.settled()[0] == {*"abc"}
        crowd.done(other, "members", "remove", "x")
        with ThreadPoolExecutor(1) as operator:
            waiting = operator.submit(crowd.say, one, "members", "add", "x", "--addr", crowd.addr("x"))
            crowd.until(
                lambda: crowd.members(one)["goal"] and crowd.kinds(one).get("x") == "observer", "that x is to be added"
            )
            assert "x (observer)" in crowd.done(other, "members", "cancel")
            said = waiting.result()
        assert said.returncode == 1, said
        assert "add was given up, by an operator, or with the leader that it was said to" in said.stderr
        assert "not confirmed" in crowd.refused(one, "members", "set", one, "--priority", "9", "--within", "0")
        # It was not waited for, and is on its way, perhaps to the leader still: the next one would be refused.
        crowd.until(lambda: priority(crowd, one) == 9, "the priority that was set")
        crowd.settled()
        crowd.done(other, "members", "remove", "x")
        version = crowd.agreed("abc")["version"]
        ranked = ("members", "set", other, "--priority", "5", "--version")
        moved_on = crowd.refused(one, *ranked, str(version - 1))
        assert f"the members are at version {version} by now, not {version - 1}" in moved_on
        assert f"version {version + 1}:" in crowd.done(one, *ranked, str(version))
        demoted = crowd.done(one, "members", "demote", other, "--yes")
        assert f"{other} is an observer since version" in demoted
        crowd.done(other, "members", "promote", other)
        crowd.agreed("abc")
        crowd.one_now()


def removed_while_down(folder: Path) -> None:
    """It comes back and stays out, with its memory and without; added again, it votes."""
    with members_crowd(folder, "abcd", "lan") as crowd:
        crowd.settle()
        gone = others(crowd)[-1]
        ended(crowd, gone)
        staying = "".join(name for name in "abcd" if name != gone)
        assert f"{gone} is out since version" in crowd.done(staying[0], "members", "remove", gone)
        crowd.agreed(staying)
        crowd.start(gone)
        waits_for(crowd, gone, f"it is not among the members (version {crowd.members(staying[0])['version']})")
        waits_for(crowd, gone, f"primacy members add {gone}")
        crowd.until(lambda: crowd.nodes[gone].document()["role"] == "observer", "one that only observes")
        assert crowd.one_now().node != gone
        ended(crowd, gone)
        shutil.rmtree(crowd.nodes[gone].state)
        crowd.start(gone)
        waits_for(crowd, gone, "an operator to add it to the members")
        crowd.until(lambda: crowd.nodes[gone].document()["role"] == "recovering", "one that recovers")
        assert crowd.one_now().node != gone
        crowd.done(staying[1], "members", "add", gone, "--addr", crowd.addr(gone))
        crowd.agreed("abcd")
        crowd.one_now()


def renewed(folder: Path) -> None:
    """One of five forgot while another is down: not all can answer it, and a majority suffices for `renew`."""
    with members_crowd(folder, "abcde", "lan") as crowd:
        crowd.settle()
        down, forgot, third, *_ = others(crowd)
        for name in (down, forgot):
            crowds.kill_all(crowd.nodes[name])
            crowd.nodes[name].wait()
        crowd.nodes[forgot].ballot.unlink()
        crowd.start(forgot)
        waits_for(crowd, forgot, f"answers from memory, for its own is lost, by {down}")
        crowd.until(lambda: crowd.nodes[forgot].document()["role"] == "recovering", "that it stays so")
        assert f"{forgot} votes since version" in crowd.done(third, "members", "renew", forgot)
        crowd.start(down)
        crowd.agreed("abcde")
        crowd.one_now()


def moved(folder: Path) -> None:
    """A node is started at another port: nobody finds it there until that is said."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        one, moves = others(crowd)
        ended(crowd, moves)
        (crowd.ports[moves],) = free_ports(1)
        crowd.listed[moves] = crowd.ports[moves]
        file = crowd.write_file(moves, "abc").name
        crowd.start(moves, file=file)
        crowd.nodes[moves].document()
        said = crowd.done(one, "members", "set", moves, "--addr", crowd.addr(moves))
        assert "version 2" in said
        rows = {row["node"]: row["addr"] for row in crowd.agreed("abc")["members"]}
        assert rows[moves] == crowd.addr(moves)
        crowd.agree()
        crowds.kill_all(crowd.nodes[one])
        crowd.until(
            lambda: (crowd.nodes[moves].ask() or {}).get("leader") and crowd.living(), "a command that it votes for"
        )
        crowd.one_now()


def forced(folder: Path) -> None:
    """Two of three are gone for good. Refused while somebody leads; then one goes on alone, and is given others."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        gone = crowd.agree()
        left, second = (name for name in "abc" if name != gone)
        words = ("members", "force", "--without", gone, "--without", second, "--yes")
        assert "leads: change the members there" in crowd.refused(left, *words)
        before = crowd.acting().token
        for name in (gone, second):
            crowds.kill_all(crowd.nodes[name])
            crowd.nodes[name].wait()
        crowd.until(lambda: crowd.say(left, *words).returncode == 0, "that no leader was heard for long enough")
        assert crowd.acting(before).node == left
        crowd.agreed(left)
        crowd.come("d")
        crowd.done(left, "members", "add", "d", "--addr", crowd.addr("d"))
        crowd.agreed("".join(sorted((left, "d"))))
        crowd.one_now()


def applied(folder: Path) -> None:
    """A file that was edited: nothing happens but a sentence, on a node that is restarted with it, too. `apply`."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        one, leaves = others(crowd)
        crowd.list("".join(sorted({*"abcd"} - {leaves})))
        ended(crowd, one)
        crowd.start(one)
        crowd.agree()
        differs = f"the file names {','.join(sorted(crowd.names))}; the members (version 1) are a,b,c"
        crowd.until(lambda: crowd.members(one)["version"] == 1, "its members")
        assert differs in crowd.done(one, "members")
        assert differs in well(crowd, one)
        assert crowd.kinds(one) == crowd.kinds(leaves) == dict.fromkeys("abc", "voter")
        crowd.start("d")
        assert "remove " + leaves in crowd.say(one, "members", "apply").stderr  # asked, and not answered
        assert crowd.members(one)["version"] == 1
        crowd.done(one, "members", "apply", "--yes")
        crowd.agreed(crowd.names)
        assert "nothing to apply" in crowd.done(one, "members", "apply")
        assert differs[:20] not in well(crowd, one)
        waits_for(crowd, leaves, "it is not among the members")
        crowd.one_now()


def joins(folder: Path) -> None:
    """`first_start: join`: all are fresh and up, and begin nothing, not if told to either."""
    with members_crowd(folder, "abc", "lab", first="join") as crowd:
        crowd.start()
        for node in crowd.nodes.values():
            node.document()
        crowd.nobody_for(4 * crowd.timing.promise_ms)
        for node in crowd.nodes.values():
            with pytest.raises(Refused, match="first_start is join"):
                node.ask("/v1/init", {})
            assert not node.ballot.exists() or node.document()["role"] == "recovering"
        safe(crowd.stamped() == [], "a command runs where nothing was founded")


def alone(folder: Path) -> None:
    """One whose file names nobody but itself takes no others: without its ballot it would begin a cluster of its own.
    A second one joins once the file has its line."""
    with members_crowd(folder, "a", "lan") as crowd:
        crowd.start()
        first = crowd.acting()
        crowd.write_file("b", "ab", first_start="join")
        crowd.start("b", file="b.yaml")
        crowd.nodes["b"].document()
        said = crowd.refused("a", "members", "add", "b", "--addr", crowd.addr("b"))
        assert "names nobody but itself" in said
        crowd.list("ab")
        assert "node b has no members yet" in crowd.say("b", "members", file="b.yaml").stderr
        crowd.done("a", "members", "add", "b", "--addr", crowd.addr("b"))
        crowd.agreed("ab")
        assert crowd.one_now().token >= first.token


def test_R_what_an_operator_says(tmp_path: Path) -> None:
    stories = (two_operators, applied, moved, alone)
    side_by_side([lambda s=story: s(tmp_path / s.__name__) for story in stories], AT_ONCE)  # type: ignore[misc]


def test_R_nodes_that_come_back_forgot_or_are_gone_for_good(tmp_path: Path) -> None:
    stories = (renewed, removed_while_down, forced, joins)
    side_by_side([lambda s=story: s(tmp_path / s.__name__) for story in stories], AT_ONCE)  # type: ignore[misc]
