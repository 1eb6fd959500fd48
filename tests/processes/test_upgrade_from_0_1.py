"""From 0.1 to 0.2, as docs/operate.md says it: nodes one by one while the command runs, and users of one table.

The older version is the last commit of 0.1.0, out of the repository's own history (`earlier_version.py`). Never two at
once and tokens that only grow are judged from the stamps of the commands, and from what the users of the library said
themselves; no machine is too slow for that. How often the command moves is judged beside a canary.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primacy import __version__
from tests.processes.test_rolling_upgrade import end, upgrade
from tests.support import stamp
from tests.support.canary import beside_a_canary
from tests.support.earlier_version import LAST_0_1, exported, version_of
from tests.support.holder_harness import WITHIN_S, Holders, Process
from tests.support.real_nodes import CLUSTER, ELECTION, Crowd, crowd_in
from tests.support.real_nodes_on_lease import LeaseCrowd
from tests.support.servers import empty, servers_here
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=186)

OLD = "0.1.0"
HEARTBEAT_MS = 250
KINDS = ("sqlite", "postgresql", "mariadb", "mysql", "etcd")
"""What 0.1 had already."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return exported(tmp_path_factory.mktemp("old"), LAST_0_1)


def say(under: tuple[str, ...], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`primacy WORDS`, of the older version if `under` says so."""
    call = [*under, sys.executable, "-m", "primacy.cli.main", *words]
    return subprocess.run(call, capture_output=True, text=True, cwd=folder, check=False, timeout=WITHIN_S)


def made_by(version: tuple[str, ...], kind: str, folder: Path) -> str:
    """A store's address, whose table this version has made."""
    if kind not in ("sqlite", *servers_here()):
        pytest.skip(f"{kind} is not installed here")
    url = f"sqlite:///{folder}/leases.db" if kind == "sqlite" else empty(kind)
    made = say(version, folder, "lease", "schema", "--new", "--yes", "--store", url)
    assert made.returncode == 0, made.stderr
    return url


# --- nodes ------------------------------------------------------------------------------------------------------------


@beside_a_canary(HEARTBEAT_MS, passes_if_late=True)
def test_raft_nodes_of_0_1_are_upgraded_as_the_page_says_and_the_command_moves_once(
    tmp_path: Path, old: tuple[str, ...]
) -> None:
    with crowd_in(tmp_path, profile="lan") as crowd:
        crowd.start(under=old)
        crowd.agree()
        first = crowd.one_now()
        versions = dict.fromkeys(crowd.names, old)
        assert told(crowd) == [OLD] * 3
        for number, name in enumerate(sorted(crowd.names, key=lambda each: each == first.node), 1):
            all_well(crowd, versions, name)
            if name == first.node:
                to = next(each for each in crowd.names if each != name)
                asked = by_command(crowd, versions, name, "transfer", to)
                assert asked.returncode == 0, asked.stderr
                assert crowd.acting(first.token).node == to
            end(crowd.nodes[name], by_force=False)
            crowd.start(name)
            versions[name] = ()
            crowd.agree()
            all_well(crowd, versions, name)
            assert sorted(told(crowd)) == [OLD] * (3 - number) + [__version__] * number
        crowd.one_now()
        assert len(stamp.starts(crowd.stamped())) == 2, crowd.stamped()
        assert not [node.log.name for node in crowd.started if "Traceback" in node.text]


def by_command(
    crowd: Crowd, versions: dict[str, tuple[str, ...]], on: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """On the machine of that node, which has the version that the node has."""
    where = ("--config", str(crowd.folder / "primacy.yaml"), "--state-dir", str(crowd.nodes[on].state))
    return say(versions[on], crowd.folder, *words, *where)


def all_well(crowd: Crowd, versions: dict[str, tuple[str, ...]], on: str) -> None:
    """`primacy status` there: one runs the command, all are heard, no alert."""

    def look() -> bool:
        said = by_command(crowd, versions, on, "status")
        bad = [word for word in ("ALERT", "never heard", "last heard", "older version") if word in said.stdout]
        return said.returncode == 0 and not bad

    crowd.until(look, f"a status of {on} that says that all is well")


def told(crowd: Crowd) -> list[str]:
    return [version_of(crowd.nodes[name].state / CLUSTER / ELECTION) for name in crowd.names]


def test_raft_nodes_of_0_1_are_upgraded_by_force(tmp_path: Path, old: tuple[str, ...]) -> None:
    with crowd_in(tmp_path) as crowd:
        upgrade(crowd, old)


def test_nodes_of_0_1_on_a_lease_are_upgraded_one_by_one(tmp_path: Path, old: tuple[str, ...]) -> None:
    crowd = LeaseCrowd(tmp_path, made_by(old, "sqlite", tmp_path), "ab")
    try:
        upgrade(crowd, old)
        assert crowd.row().token >= crowd.tokens()[-1]
    finally:
        crowd.end()


# --- users of the library ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def users_of(url: str, folder: Path) -> Iterator[Holders]:
    """Judged when they end: no two at once, and tokens that grow."""
    found = Holders(folder, url)
    try:
        yield found
    finally:
        found.end()


@pytest.mark.parametrize("kind", KINDS)
def test_users_of_0_1_and_of_0_2_share_what_0_1_has_made(tmp_path: Path, old: tuple[str, ...], kind: str) -> None:
    with users_of(made_by(old, kind, tmp_path), tmp_path) as users:
        they_follow_each_other(users, old)


def test_users_of_0_1_and_of_0_2_share_a_table_that_0_2_has_made(tmp_path: Path, old: tuple[str, ...]) -> None:
    with users_of(made_by((), "sqlite", tmp_path), tmp_path) as users:
        they_follow_each_other(users, old)


def they_follow_each_other(users: Holders, old: tuple[str, ...]) -> None:
    """A new one follows an old one, and an old one a new one, after a kill and after a release; then four at once."""
    holder = users.start("lead", under=old)
    assert holder.hear("leads")["version"] == OLD
    holder.hear("works")
    for under, ends in (((), Process.kill), (old, Process.kill), ((), Process.terminate), (old, Process.terminate)):
        following = users.start("lead", under=under)
        following.hear("sees")
        holder = followed(holder, ends, following)
        assert holder.words("leads")[0]["version"] == (OLD if under else __version__)
    crowd = [users.start("lead", under=under) for under in (old, (), old, ())]
    for each in crowd:
        each.hear("sees")
    for ends in (Process.kill, Process.terminate, Process.kill):
        holder = followed(holder, ends, *crowd)
        crowd.remove(holder)


def followed(holder: Process, ends: Callable[[Process], None], *waiting: Process) -> Process:
    """Who of these leads, once this one has ended like that."""
    ends(holder)
    holder.child.wait(WITHIN_S)
    found = wait_until(lambda: [one for one in waiting if one.heard("works")], "the next one that leads")
    return found[0]
