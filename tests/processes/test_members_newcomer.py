"""A node that the file does not name starts with `--node d`, and is told where it is by the members (R8, R12).

With real nodes and commands: before `add` and after it, killed while it waits, restarted with the same file; a member
whose file has lost it; a wrong secret, a name that is another's, nobody there. The others keep their file all the time.
Several clusters live at the same time, in the profile `lan`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from primacy.cli.new import write_secret
from tests.support import real_nodes as crowds
from tests.support.ports import free_ports
from tests.support.real_members import MembersCrowd, members_crowd, side_by_side

pytestmark = pytest.mark.beside(order=13)

AT_ONCE = 3
ADD = "primacy members add d --addr HOST:PORT"


def place(crowd: MembersCrowd, name: str) -> str:
    """A free address for a node that stands in no file."""
    (crowd.ports[name],) = free_ports(1)
    crowd.listed[name] = crowd.ports[name]
    return crowd.addr(name)


def waits_for(crowd: MembersCrowd, name: str, what: str) -> None:
    crowd.until(lambda: what in (crowd.nodes[name].document()["waits_for"] or ""), f"{name} to wait for {what}")


def killed(crowd: MembersCrowd, name: str) -> None:
    crowds.kill_all(crowd.nodes[name])
    crowd.nodes[name].wait()


def started_first(folder: Path) -> None:
    """It waits, is killed, waits again, is added; is killed, and comes back; is removed, and added at another place."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        address = place(crowd, "d")
        crowd.start("d")
        waits_for(crowd, "d", f"an operator to add it to the members (version 1), on one of their nodes: {ADD}")
        crowd.until(lambda: ADD in crowd.nodes["d"].text, "the same on the terminal")
        said_so = [line.partition(" waits for ")[2] for line in crowd.nodes["d"].text.splitlines()]
        sentences = [sentence for sentence in said_so if sentence]
        assert all(old != new for old, new in pairwise(sentences)), "when it is another one, and not again"
        said = crowd.say("d", "status")
        assert (said.returncode, ADD in said.stdout) == (1, True), said
        crowd.until(
            lambda: "a node that asks to belong: d" in crowd.done("a", "members"), "a, which it asks like the others"
        )
        assert "d is not in the file's list" in crowd.refused("d", "init", "--yes")
        killed(crowd, "d")
        crowd.start("d")
        waits_for(crowd, "d", ADD)
        assert "d votes since version" in crowd.done("b", "members", "add", "d", "--addr", address)
        crowd.agreed("abcd")
        crowd.until(
            lambda: f"node d listens on UDP {address}" in crowd.nodes["d"].text, "a line about where it listens"
        )
        killed(crowd, "d")
        crowd.start("d")
        crowd.agreed("abcd")
        crowd.agree()
        assert "asks" not in crowd.nodes["d"].text
        crowd.done("a", "members", "remove", "d", "--yes")
        crowd.agreed("abc")
        waits_for(crowd, "d", "it is not among the members")
        killed(crowd, "d")
        crowd.start("d")
        waits_for(crowd, "d", "it is not among the members")
        crowd.done("c", "members", "add", "d", "--addr", place(crowd, "d"))
        crowd.agreed("abcd")
        crowd.one_now()


def added_first(folder: Path) -> None:
    """A member is told of it before it is there. It does not begin, and leads like any other."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        crowd.done("a", "members", "add", "d", "--addr", place(crowd, "d"), "--no-wait")
        crowd.until(lambda: "d" in str(crowd.members(crowd.leader().name)["waits_for"]), "that it waits for d")
        crowd.start("d")
        crowd.agreed("abcd")
        crowd.until(lambda: runs_on_d(crowd), "d, which is told to lead and runs the command")
        killed(crowd, "d")
        crowd.until(lambda: {one.node for one in crowd.living()} - {"d"}, "the command on another node")
        crowd.start("d")
        crowd.agreed("abcd")


def runs_on_d(crowd: MembersCrowd) -> bool:
    """Else the leader is told to hand over to it: once or twice, but where the machine stalls another may lead then."""
    if crowd.acting().node == "d":
        return True
    crowd.say("a", "transfer", "d")
    return False


def lost_line(folder: Path) -> None:
    """The file of a member names it no more: it starts from its register, as a voter, and listens where that says."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        crowd.done("a", "members", "set", "c", "--priority", "1")
        crowd.agreed("abc")
        killed(crowd, "c")
        crowd.write_file("c", "ab")
        crowd.start("c", file="c.yaml")
        crowd.agreed("abc")
        crowd.until(lambda: f"node c listens on UDP {crowd.addr('c')}" in crowd.nodes["c"].text, "where it listens")
        leader = crowd.agree()
        killed(crowd, next(name for name in "ab" if name != leader))  # the two that are left need each other
        crowd.hand_over()
        crowd.one_now()


def strangers(folder: Path) -> None:
    """With another secret, under a name that is another's, and with a name that is none."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        write_secret(elsewhere / "secret")
        shutil.copy(folder / "primacy.yaml", elsewhere)
        crowd.start("d", file="elsewhere/primacy.yaml")
        waits_for(crowd, "d", "nobody answers: are a, b, c up, with the same secret, and is d a name of its own?")
        killed(crowd, "d")
        crowd.start("d")
        crowd.done("a", "members", "add", "d", "--addr", place(crowd, "d"))
        crowd.agreed("abcd")
        second = crowd.start("d", state="second")
        crowd.until(lambda: "nobody answers" in (second.document()["waits_for"] or ""), "that the second waits")
        crowd.until(
            lambda: "two nodes run with the id d" in crowd.say("a", "status").stdout,
            "an alert about two nodes of one name",
        )
        assert not second.ballot.exists() or second.document()["role"] == "recovering"
        second.process.kill()
        second.wait()
        crowd.agreed("abcd")
        crowd.one_now()
        for name, why in (("no name!", "letters, digits"), ("x" * 21, "1 to 20")):
            said = refused(crowd, "--node", name, "run", "--", "true")
            assert "is not in cluster.manager.nodes, and an id has" in said
            assert why in said
        assert "--bind nonsense" in refused(crowd, "--node", "e", "run", "--bind", "nonsense", "--", "true")


def refused(crowd: MembersCrowd, *words: str) -> str:
    call = [sys.executable, "-m", "primacy.cli.main", "--config", str(crowd.folder / "primacy.yaml"), *words]
    said = subprocess.run(call, capture_output=True, text=True, cwd=crowd.folder, check=False, timeout=60)
    assert said.returncode == 2, (words, said.returncode, said.stderr)
    assert "Traceback" not in said.stderr
    return said.stderr


def nobody_there(folder: Path) -> None:
    """The nodes of the file are all down: it waits, begins nothing, and is taken in once they are there. `--bind`."""
    with members_crowd(folder, "abc", "lan", options=("--bind", f"127.0.0.1:{free_ports(1)[0]}")) as crowd:
        bound = crowd.options[1]
        crowd.start("d")
        waits_for(crowd, "d", "nobody answers: are a, b, c up")
        crowd.nobody_for(2 * crowd.timing.promise_ms)
        crowd.options = ()
        crowd.start(*"abc")
        crowd.acting()
        waits_for(crowd, "d", ADD)
        crowd.listed["d"] = crowd.ports["d"] = int(bound.rpartition(":")[2])
        crowd.done("a", "members", "add", "d", "--addr", bound)
        crowd.agreed("abcd")
        crowd.until(lambda: crowd.nodes["d"].document()["addr"] == bound, "d at the address where it is bound")
        crowd.one_now()


def second_cluster(folder: Path) -> None:
    """c is wiped, and gets a file that names c and e alone: its old cluster runs, and speaks to it. Nothing begins."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        killed(crowd, "c")
        crowd.until(crowd.living, "the command of the other two")
        shutil.rmtree(crowd.nodes["c"].state)
        crowd.write_file("ce", "ce")
        crowd.start("c", "e", file="ce.yaml")
        for _ in range(2):
            waits_for(crowd, "c", "speaks for it already, and is not in the file's list")
        crowd.until(lambda: crowd.nodes["e"].document()["role"] == "recovering", "e, which begins nothing")
        assert crowd.one_now().node in "ab"
        killed(crowd, "e")
        killed(crowd, "c")
        shutil.rmtree(crowd.nodes["c"].state)
        crowd.start("c")  # with the right file it comes back by what the others remember (R9)
        crowd.agreed("abc")


def third_forgets(folder: Path) -> None:
    """a and b were replaced by d and e, and are wiped; then c loses its memory, too. Of the file's nodes, which begin
    by themselves, nobody remembers; the leader among d and e speaks to c alone."""
    with members_crowd(folder, "abc", "lan") as crowd:
        crowd.settle()
        crowd.start("d", "e")
        for name in "de":
            crowd.done("c", "members", "add", name, "--addr", place(crowd, name))
        crowd.done("c", "members", "remove", "a", "--yes")
        crowd.done("c", "members", "remove", "b", "--yes")
        crowd.agreed("cde")
        for name in "abc":
            killed(crowd, name)
            shutil.rmtree(crowd.nodes[name].state)
        crowd.until(crowd.living, "the command of d or e")
        crowd.start("a", "b")
        waits_for(crowd, "a", "not heard yet: c")  # it listens no more
        crowd.start("c")
        waits_for(crowd, "a", "speaks for it already, and is not in the file's list")
        time.sleep(2 * crowd.timing.promise_ms / 1000)
        assert all(crowd.nodes[name].document()["role"] == "recovering" for name in "abc")
        assert crowd.one_now().node in "de"


def test_R8_a_node_that_the_file_does_not_name(tmp_path: Path) -> None:
    stories = (started_first, added_first, lost_line)
    side_by_side([lambda s=story: s(tmp_path / s.__name__) for story in stories], AT_ONCE)  # type: ignore[misc]


def test_R8_strangers_and_nobody(tmp_path: Path) -> None:
    stories = (strangers, nobody_there, second_cluster, third_forgets)
    side_by_side([lambda s=story: s(tmp_path / s.__name__) for story in stories], AT_ONCE)  # type: ignore[misc]
