"""Another strategy, another store, other times, rolled out over real nodes one after the other (M1, rule R).

Safety is judged from the stamps of the commands: never two, and tokens that only grow. Never are all agents down at
once. Several clusters live at the same time, each in a thread of its own: how soon something happens is not judged.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from primacy.node.ballot import packed, unpacked
from tests.support import real_nodes as crowds
from tests.support import servers, stamp
from tests.support.canary import Canary
from tests.support.real_changes import ChangingCrowd, changing_crowd, kill_agent
from tests.support.real_members import side_by_side
from tests.support.safety_checks import safe

pytestmark = pytest.mark.beside(order=12)

PAGE = Path(__file__).parents[2] / "docs/operate.md"
HEADING = "## Change the strategy, the store, the times or the mode"


def typed() -> list[list[str]]:
    """The commands of the page, in order, for one node."""
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    block = section.partition("\n    primacy check")[0:2]
    lines = (section[len(block[0]) :].partition("\n\n")[0]).splitlines()
    found = [line.partition("#")[0].split()[1:] for line in lines if line.startswith("    primacy ")]
    assert [words[0] for words in found] == ["check", "status", "status"], found
    return found


def as_the_page_says(crowd: ChangingCrowd, order: str, old: str, new: str) -> None:
    """Every command of the page, on every node: all work, and the last one says what the node waits for."""
    (check, _), before, after = typed()
    left = list(order)
    for name in order:
        left.remove(name)
        crowd.call(check, f"{new}.yaml")
        crowd.say(name, *before, file=old)
        crowd.change(name, new)
        if left:
            crowd.recovers(name, *left)
            assert re.search(rf"{name}.* waits for its new strategy", crowd.say(name, *after, file=new))
        crowd.one_at_a_time()


def walked(folder: Path) -> None:
    """Raft, SQLite, PostgreSQL, another table there, etcd, raft with other times, and raft as it was before."""
    with changing_crowd(folder) as crowd:
        crowd.begin(crowd.raft())
        old = crowd.acting()
        crowd.lease("sqlite")
        as_the_page_says(crowd, crowd.leader_last(), "raft", "sqlite")
        files = []
        if not servers.Postgres.missing():
            url = servers.empty("postgresql")
            files += [crowd.lease("postgresql", url), crowd.lease("table", url, table="other_leases")]
        if not servers.Etcd.missing():
            files.append(crowd.lease("etcd", servers.empty("etcd")))
        for file in [*files, crowd.raft("times", profile="fast"), "raft"]:
            new = crowd.acting(old.token)
            assert new.token > old.token
            old = crowd.one_now()
            crowd.walk(crowd.leader_last(), file)
        crowd.acting(old.token)
        crowd.agree()
        crowd.one_now()


def in_bad_orders(folder: Path) -> None:
    """The leader first and by SIGKILL, half of it taken back, a node forgotten, all of it taken back."""
    with changing_crowd(folder) as crowd:
        leader = crowd.begin(crowd.raft()).name
        crowd.lease("lease")
        b, c = (name for name in crowd.names if name != leader)
        crowd.change(leader, "lease", kill_agent)  # its guard ends the command, and releases
        crowd.recovers(leader, b, c)
        old = crowd.acting(crowd.tokens()[-1] - 1)
        assert old.node in (b, c), "two of three have the old file: they go on"
        crowd.change(b, "lease", crowds.kill_all)
        crowd.recovers(b, c)
        crowd.until(crowd.nobody, "the end of the command: one of three is no majority")
        crowd.nobody_for(2 * crowd.timing.promise_ms)  # c was forgotten
        crowd.change(b, "raft", kill_agent)
        crowd.recovers(b, leader)  # half of it was taken back, which is a change like any other
        crowd.nobody_for(2 * crowd.timing.promise_ms)
        crowd.change(leader, "raft", kill_agent)
        new = crowd.acting(old.token)
        crowd.agree()
        assert crowd.one_now().token >= new.token


def gone_for_good(folder: Path) -> None:
    """A node is gone, and the others say so; a new machine in its place, with the new file, is let in."""
    with changing_crowd(folder) as crowd:
        crowd.begin(crowd.raft())
        crowd.lease("lease")
        gone, *others = list(crowd.leader_last())
        crowds.kill_all(crowd.nodes[gone])
        crowd.nodes[gone].wait()
        old = crowd.acting(crowd.tokens()[-1] - 1)
        for name in others:
            crowd.change(name, "lease")
        for name in others:
            crowd.recovers(name, gone)
        crowd.until(crowd.nobody, "the end of the command")
        for name in others:
            crowd.say(name, "rejoin", "--without", gone, "--yes", file="lease")
        assert crowd.acting(old.token).node in others
        (crowd.folder / f"state-{gone}").rename(crowd.folder / "gone")
        crowd.change(gone, "lease")
        crowd.agree()
        crowd.one_now()


def replaced_while_away(folder: Path) -> None:
    """The others leave the lease, as a node is said to be gone; it returns with the old file, and takes nothing."""
    with changing_crowd(folder) as crowd:
        crowd.lease("old")
        crowd.lease("new")
        crowd.begin("old")
        *others, away = list(crowd.leader_last())  # the one that could take the old lease again at once
        crowds.kill_all(crowd.nodes[away])
        crowd.nodes[away].wait()
        old = crowd.acting(crowd.tokens()[-1])
        for name in others:
            crowd.change(name, "new")
        for name in others:
            crowd.recovers(name, away)
            crowd.say(name, "rejoin", "--without", away, "--yes", file="new")
        new = crowd.acting(old.token)
        since_ns = stamp.now_ns()
        crowd.change(away, "old")
        crowd.until(lambda: "its file was replaced" in str(crowd.document(away)["waits_for"]), "the sentence")
        assert crowd.document(away)["role"] == "recovering"
        with Canary(crowd.timing.heartbeat_ms) as canary:
            old = crowd.acting(new.token - 1)  # on a late machine, perhaps another than before
            time.sleep(2 * crowd.timing.promise_ms / 1_000)
            new = crowd.one_now()
        took = [one for one in crowd.stamped() if one.node == away and one.last_ns > since_ns]
        safe(not took, f"it takes something: {took}")
        canary.judge(new.token == old.token, f"it disturbs the others: {old}, {new}")
        crowd.change(away, "new")
        crowd.agree()
        crowd.one_now()


def blank(folder: Path) -> None:
    """A machine without memory gets the new file first: it waits with the others, and takes nothing."""
    with changing_crowd(folder) as crowd:
        crowd.begin(crowd.raft())
        crowd.lease("lease")
        first, second, last = list(crowd.leader_last())
        old = crowd.acting()
        crowds.kill_all(crowd.nodes[first])
        crowd.nodes[first].wait()
        (crowd.folder / f"state-{first}").rename(crowd.folder / "lost")
        crowd.change(first, "lease")
        crowd.recovers(first, second, last)
        time.sleep(2 * crowd.timing.promise_ms / 1_000)
        crowd.one_at_a_time()
        for name in (second, last):
            crowd.change(name, "lease")
        crowd.acting(old.token)
        crowd.agree()
        crowd.one_now()


def unlisted(folder: Path) -> None:
    """Leases without a list: only an operator's word lets a node go to another one, or to raft."""
    with changing_crowd(folder) as crowd:
        crowd.lease("one", listed=False)
        crowd.lease("two", listed=False)
        crowd.raft()
        crowd.begin("one")
        *others, last = list(crowd.leader_last())
        for name in (*others, last):
            crowd.change(name, "two")
            crowd.until(
                lambda n=name: "--others-stopped" in str(crowd.document(n)["waits_for"]),  # type: ignore[misc]
                "the sentence",
            )
        old = crowd.stamped()[-1]
        crowd.until(crowd.nobody, "the end of the command")
        crowd.nobody_for(2 * crowd.timing.promise_ms)
        for name in crowd.names:
            crowd.say(name, "rejoin", "--others-stopped", "--yes", file="two")
        old = crowd.acting(old.token)
        for name in crowd.leader_last():
            crowd.change(name, "raft")
        crowd.until(lambda: all("primacy init" in str(crowd.document(n)["waits_for"]) for n in "abc"), "the sentence")
        crowd.nobody_for(2 * crowd.timing.promise_ms)
        crowd.say("b", "init", "--yes", file="raft")
        crowd.acting(old.token)
        crowd.agree()
        crowd.one_now()


def far_token(folder: Path) -> None:
    """One node alone has seen a token that is millions above the terms of raft, as those of a lease are (T2)."""
    with changing_crowd(folder) as crowd:
        crowd.begin(crowd.raft())
        aware, leader = crowd.leader_last()[0], crowd.leader_last()[-1]
        old = crowd.acting()
        crowds.kill_all(crowd.nodes[aware])
        crowd.nodes[aware].wait()
        path = crowd.nodes[aware].ballot
        kept = unpacked(path.read_bytes()).ballot
        assert kept is not None
        path.write_bytes(packed(kept._replace(token_max=kept.token_max + 5_000_000)))
        with Canary(crowd.timing.heartbeat_ms) as canary:
            crowd.change(aware, "raft")
            crowd.agree()
            now = crowd.one_now()
        canary.judge(now.token == old.token, f"it is no reason to disturb the leader: {old}, {now}")
        crowds.kill_all(crowd.nodes[leader])
        crowd.nodes[leader].wait()
        new = crowd.acting(old.token)
        safe(new.token > kept.token_max + 5_000_000, f"{new.token} is below a token that was seen")
        with Canary(crowd.timing.heartbeat_ms) as canary:
            new = crowd.acting(new.token - 1)
            crowd.change(leader, "raft")
            crowd.agree()
            now = crowd.one_now()
        canary.judge(now.token == new.token, f"who returns disturbs the leader: {new}, {now}")


def test_M1_every_strategy_and_store_one_node_after_the_other(tmp_path: Path) -> None:
    walked(tmp_path / "walk")


def test_M1_bad_orders_kills_and_operators(tmp_path: Path) -> None:
    side_by_side(
        [
            lambda: in_bad_orders(tmp_path / "bad"),
            lambda: gone_for_good(tmp_path / "gone"),
            lambda: replaced_while_away(tmp_path / "away"),
            lambda: blank(tmp_path / "blank"),
            lambda: unlisted(tmp_path / "unlisted"),
            lambda: far_token(tmp_path / "far"),
        ],
        at_once=6,
    )
