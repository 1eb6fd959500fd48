"""`primacy lease`: what is in the store, the schema, a foreign table, and breaking a lease in the right order."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.cli import main
from primacy.cli.lease import Watched
from primacy.election.store import Place as PlaceRow
from primacy.election.store import Settle, StoreAnswer, covers, list_hash
from primacy.errors import Refused
from primacy.settings.timing import PROFILES
from primacy.store import LeaseStore, open_store, perform, pruning
from primacy.store.etcd import EtcdStore
from primacy.store.etcd_rows import b64
from primacy.store.port import MakesTable
from primacy.store.sql_coordinator import CoordinatorTable, Old, import_coordinator
from tests.support.servers import MariaDb, Postgres, Redis, empty, server, servers_here
from tests.support.store_harness import LIMIT_MS, Harness, Place, place, row, short_waits

pytestmark = pytest.mark.beside(order=260)

SHORT = row()._replace(hold_ms=100, wait_ms=103)
SHORT_MS = 150


@pytest.fixture(params=["sqlite", *servers_here()])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Place]:
    with place("sqlite", tmp_path) as found:
        yield found


def new_table(store: LeaseStore) -> LeaseStore:
    """Names are free in it at once."""
    assert isinstance(store, MakesTable)
    store.make_table(new=True)
    return store


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(["lease", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_list_and_show(here: Place, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "list", "--store", here.url)
    if not here.url.startswith(("etcd", "redis")):
        assert (code, "no file" in err or "no table" in err) == (3, True), "reading makes no table"
    harness = here.harness()
    harness.take("reports")
    harness.take("billing")
    harness.release("billing", to="b")
    code, out, _ = told(capsys, "list", "--store", here.url)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["lease", "held", "by", "token", "hold", "written", "(by", "the", "store's", "clock)"]
    assert "billing  nobody (released by a to b)" in lines[1]
    assert "reports  node a" in lines[2]
    code, out, _ = told(capsys, "list", "--store", here.url, "--json")
    found = json.loads(out)["leases"]
    assert [(one["lease"], one["node"], one["token"], one["released"]) for one in found] == [
        ("billing", "a", 10, True), ("reports", "a", 10, False),
    ]  # fmt: skip
    code, out, _ = told(capsys, "show", "reports", "--store", here.url, "--json")
    assert json.loads(out)["holder"] == "a#1"
    code, _, err = told(capsys, "show", "nothing", "--store", here.url)
    assert (code, "there is no lease 'nothing'" in err) == (1, True)


def spoil(here: Place, harness: Harness, name: str) -> None:
    """Somebody writes into the row by hand."""
    text = f"UPDATE primacy_leases SET holder = 'two words' WHERE name = '{name}'"
    if here.url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(here.url.removeprefix("sqlite:///"), isolation_level=None)) as file:
            file.execute(text)
    elif here.url.startswith("postgres"):
        found = server("postgresql")
        assert isinstance(found, Postgres)
        found.admin(text, database="app")
    elif isinstance(harness.store, EtcdStore):
        key = b64(harness.store._prefix + name)
        harness.store._post("kv/put", {"key": key, "value": b64("no row")})
    elif here.url.startswith("redis"):
        found = server("redis")
        assert isinstance(found, Redis)
        found.admin("HSET", "primacy_leases", name, "no row")
    else:
        found = server("mariadb")
        assert isinstance(found, MariaDb)
        found.admin(text.replace("primacy_leases", "app.primacy_leases"))


def test_a_row_that_is_not_primacys_costs_the_others_nothing(here: Place, capsys: pytest.CaptureFixture[str]) -> None:
    harness = here.harness()
    for name in ("billing", "reports"):
        harness.take(name)
    spoil(here, harness, "billing")
    code, out, err = told(capsys, "list", "--store", here.url)
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["lease", "reports"]
    assert "billing" in err
    assert "not one of primacy's" in err
    assert "remove the row by hand" in err
    assert "1 of 2 rows are not leases" in err
    code, out, _ = told(capsys, "list", "--store", here.url, "--json")
    found = json.loads(out)
    assert (code, [one["lease"] for one in found["leases"]], list(found["refused"])) == (1, ["reports"], ["billing"])
    assert told(capsys, "show", "reports", "--store", here.url)[0] == 0
    code, _, err = told(capsys, "show", "billing", "--store", here.url)
    assert (code, "remove the row by hand" in err) == (1, True)
    code, _, err = told(capsys, "prune", "--store", here.url, "--dry-run")
    assert code == 1
    assert "lease billing stays: " in err
    assert "1 of 1 leases stay" in err


def test_a_text_that_is_not_utf8_costs_the_others_nothing(local: Place, capsys: pytest.CaptureFixture[str]) -> None:
    harness = local.harness()
    for name in ("billing", "reports"):
        harness.take(name)
    with contextlib.closing(sqlite3.connect(local.url.removeprefix("sqlite:///"), isolation_level=None)) as file:
        file.execute("UPDATE primacy_leases SET holder = CAST(x'ff41' AS TEXT) WHERE name = 'billing'")
    code, out, err = told(capsys, "list", "--store", local.url)
    assert (code, [line.split()[0] for line in out.splitlines()]) == (1, ["lease", "reports"])
    assert "billing" in err


def test_which_store_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = told(capsys, "list")
    assert (code, "say --store URL" in err) == (2, True)
    harness = Harness(new_table(open_store(f"sqlite:///{tmp_path}/leases.db", table="other")))
    assert harness.take().done
    harness.store.close()
    (tmp_path / "primacy.yaml").write_text(
        f"election: {{strategy: lease, store: {{url: 'sqlite:///{tmp_path}/leases.db', table: other}}}}\n"
    )
    code, out, err = told(capsys, "list")
    assert (code, "node a" in out) == (0, True), err
    code, _, err = told(capsys, "list", "--store", "postgresql://u:hidden@127.0.0.1:1/db")
    assert (code, "hidden" in err) == (3, False)
    assert err.startswith("primacy: PostgreSQL at 127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://bob@h/db", ['COLLATE "C"', 'GRANT SELECT, INSERT, UPDATE ON primacy_leases TO "bob"']),
        ("mysql://bob@h/db", ["ascii_bin", "GRANT SELECT, INSERT, UPDATE ON primacy_leases TO 'bob'@'%'"]),
        ("sqlite:///x.db", ["WITHOUT ROWID", "to write the file"]),
        ("etcd://bob@h", ["readwrite primacy_leases/"]),
        ("rediss://bob@h", ["ACL SETUSER bob '~primacy_leases'", "'+config|get'"]),
    ],
)
def test_schema_needs_no_server(url: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "schema", "--store", url)
    assert code == 0
    assert all(word in out for word in words)


@pytest.mark.parametrize("kind", [kind for kind in servers_here() if kind not in ("etcd", "redis")])
def test_the_schema_and_its_rights_suffice(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An administrator runs what is printed; a user who may make no table can then hold leases."""
    url = empty(kind)
    found = server(kind)
    assert isinstance(found, Postgres | MariaDb)
    poor = url.replace("app:secret%20word@", "poor@").replace("//app@", "//poor@")
    if isinstance(found, Postgres):
        found.admin("DO $$ BEGIN CREATE ROLE poor LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    else:
        found.admin("CREATE USER IF NOT EXISTS poor@'%'", "GRANT USAGE ON *.* TO poor@'%'")
        with_no_rights = Harness(open_store(poor, limit_ms=LIMIT_MS)).look()
        assert not with_no_rights.ok
    if isinstance(found, Postgres):
        refused = Harness(open_store(poor, limit_ms=LIMIT_MS))
        answer = refused.look()
        refused.store.close()
        assert not answer.ok
        assert "primacy lease schema" in answer.reason
    _, out, _ = told(capsys, "schema", "--store", poor)
    found.admin(*[statement for statement in out.split(";\n") if statement.strip()], database="app")
    harness = Harness(open_store(poor, limit_ms=LIMIT_MS))
    seen = harness.look(count=True)
    assert seen.genesis is not None
    assert not harness.take().done, "a table that was just made is not settled"
    assert harness.ask(Settle("job", seen.server, seen.genesis)).done
    assert harness.take().done
    assert harness.renew().done
    assert harness.release(seq=2).done
    harness.store.close()


def test_the_schema_says_where_a_user_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("election: {store: {url: 'postgresql://host/db'}}\n")
    _, out, _ = told(capsys, "schema", "--config", str(file))
    assert out.startswith("-- instead of USER: who uses the leases; --user NAME puts it in\nCREATE TABLE")
    _, out, _ = told(capsys, "schema", "--config", str(file), "--user", "bob")
    assert out.startswith("CREATE TABLE")
    _, out, _ = told(capsys, "schema", "--store", "etcd://h:1")
    assert out.startswith("# instead of USER")


def test_a_noun_without_its_verb_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(capsys)
    assert (code, out, err.startswith("Usage: primacy lease")) == (2, "", True)
    assert "..." not in err.partition("Commands:")[2], "every command is told in one whole line"
    assert not told(capsys, "list", "--store", "nonsense")[2].startswith("Usage")


def test_what_is_in_another_process_cannot_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "list", "--store", "memory:")
    assert (code, "inside of the process that uses it" in err) == (2, True)


def test_the_schema_of_the_files_own_table_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("primacy.yaml").write_text("election: {store: {url: 'postgresql://app@host/db', table: ours}}\n")
    code, out, _ = told(capsys, "schema")
    assert (code, out.startswith("CREATE TABLE IF NOT EXISTS ours (")) == (0, True)
    code, out, _ = told(capsys, "schema", "--table", "mine", "--json")
    found = json.loads(out)
    assert (code, found["store"], found["table"]) == (0, "postgresql", "mine")
    assert 'ON mine TO "app"' in found["text"]


def test_L7_break_waits_until_the_old_work_is_dead(
    here: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short_waits(monkeypatch, SHORT_MS)
    harness = here.harness()
    assert harness.take("job", new=SHORT).done
    code, _, err = told(capsys, "break", "nothing", "--store", here.url, "--yes")
    assert (code, "there is no lease 'nothing'" in err) == (1, True)
    code, out, err = told(capsys, "break", "job", "--store", here.url, "--yes", "--json")
    assert code == 0, err
    assert f"waiting {SHORT_MS} ms" in err, "the table's longest wait: what the store forgot may have had it"
    found = harness.look()
    assert found.row is not None
    assert (found.row.released, found.row.holder[:6], covers(found.row)) == (True, "break#", False), "nobody saw it end"
    assert found.row.token == json.loads(out)["token"] > 10
    assert not harness.renew().done, "the old holder learns it with its next renewal"
    assert harness.take(new=row("b#2", found.row.token + 1)).done
    code, _, err = told(capsys, "break", "job", "--store", here.url, "--yes", "--now")
    assert (code, "waiting" in err) == (0, False)
    code, _, err = told(capsys, "break", "job", "--store", here.url, "--yes", "--now")
    assert (code, "nobody holds the lease" in err) == (1, True)


def test_L7_break_of_a_failsafe_row_never_releases_it(
    here: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder may live on by its peers alone: a listed node takes over, or an operator says that all are stopped."""
    short_waits(monkeypatch, SHORT_MS)
    harness = here.harness()
    held = SHORT._replace(members=list_hash(("a", "b", "c")))
    assert harness.take("=job", new=held).done
    call = ("break", "=job", "--store", here.url, "--yes")
    code, _, err = told(capsys, *call, "--now")
    assert (code, "--now is not offered" in err) == (1, True)
    code, out, err = told(capsys, *call)
    assert code == 0, err
    assert "a listed node takes it within" in out
    assert "if none reaches the store, nobody does" in out
    taken = harness.look("=job").row
    assert taken is not None
    assert (taken.holder[:6], taken.released, taken.members) == ("break#", False, held.members)
    assert not harness.renew("=job").done
    code, _, err = told(capsys, *call, "--free", "a,b")
    assert (code, "these are not all nodes" in err) == (1, True)
    code, out, err = told(capsys, *call, "--free", "c,a,b")
    assert code == 0, err
    assert f"waiting {SHORT_MS} ms" in err
    freed = harness.look("=job").row
    assert freed is not None
    assert freed.released
    assert freed.token > taken.token
    code, _, err = told(capsys, "break", "job", "--store", here.url, "--yes", "--free", "a,b,c")
    assert code == 1, "another lease, and there is none of that name"


def test_L10_prune_removes_what_was_released_long_ago(
    here: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = here.harness()
    for name in ("held", "old", "used"):
        assert harness.take(name).done
    for name in ("old", "used"):
        assert harness.release(name).done
    code, out, err = told(capsys, "prune", "--store", here.url)
    assert (code, "no lease was unused for 7 days" in out) == (0, True), err
    monkeypatch.setattr(pruning, "unused_ms", lambda listing, _: 8 * 86_400_000 * (listing.name != "used"))
    code, out, err = told(capsys, "prune", "--store", here.url, "--dry-run")
    assert (code, out) == (0, "lease old would be removed\n"), err
    code, out, err = told(capsys, "prune", "--store", here.url, "--json")
    assert (code, json.loads(out)["removed"]) == (0, ["old"]), err
    assert harness.look("old").row is None
    assert harness.look("held").row is not None
    genesis = harness.look("old", count=True).genesis
    assert genesis is not None
    assert (genesis.floor, genesis.names, genesis.count) == (10, 2, 2)
    assert not harness.take("old", new=row("b#2", 10)).done, "tokens go on above the floor"
    assert harness.take("old", new=row("b#2", 11)).done


def test_schema_makes_a_new_table_and_raises_its_longest_wait(here: Place, capsys: pytest.CaptureFixture[str]) -> None:
    call = ("schema", "--store", here.url, "--json")
    code, out, err = told(capsys, *call, "--new", "--yes", "--wait-max-ms", "20000")
    assert (code, json.loads(out)["wait_max_ms"]) == (0, 20_000), err
    code, out, err = told(capsys, *call, "--wait-max-ms", "11000")
    assert (code, json.loads(out)["wait_max_ms"]) == (0, 20_000), "never lowered"
    harness = Harness(here.open())
    assert harness.take().done, "names are free at once"
    code, _, err = told(capsys, *call, "--new", "--yes")
    assert (code, "so it is not new" in err) == (1, True), err


def test_break_asks_and_says_what_is_at_risk(local: Place) -> None:
    harness = local.harness()
    harness.take("job", new=SHORT)
    for said, code in (("no\n", 1), ("", 1), ("yes\n", 0)):
        call = [sys.executable, "-m", "primacy.cli.main", "lease", "break", "job", "--now", "--store", local.url]
        done = subprocess.run(call, input=said, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "for up to 100 ms both may work" in done.stderr
        assert "node a loses the lease job" in done.stderr


def test_break_that_is_interrupted_says_what_it_leaves(local: Place) -> None:
    harness = local.harness()
    harness.take("job", new=row()._replace(hold_ms=60_000, wait_ms=61_213))
    call = [sys.executable, "-m", "primacy.cli.main", "lease", "break", "job", "--yes", "--store", local.url]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as breaking:
        try:
            assert breaking.stderr is not None
            assert "waiting 61,213 ms" in breaking.stderr.readline()
            breaking.send_signal(signal.SIGINT)
            assert breaking.wait(120) == 130
            left = "lease job stays taken away, and becomes free by itself after 61,213 ms\nprimacy: stopped.\n"
            assert breaking.stderr.read() == left
        finally:
            breaking.kill()
    found = harness.look()
    assert found.row is not None
    assert (found.row.holder[:6], found.row.released) == ("break#", False)


def test_watch_says_each_change_once() -> None:
    watched = Watched("job")
    held, other = row(), row("b#2", 20, 2)
    assert watched.look(0, True, None, "s1", "") == ["nobody has used this name yet"]
    assert watched.look(100, True, held, "s1", "") == ["node a, token 10"]
    assert watched.look(200, True, held._replace(seq=2), "s1", "") == []
    assert watched.look(3_000, True, held._replace(seq=2), "s1", "") == []
    assert watched.look(3_262, True, held._replace(seq=2), "s1", "") == [
        "not renewed for 3,062 ms: free for the next that asks"
    ]
    assert watched.look(3_500, True, held._replace(seq=2), "s1", "") == []
    assert watched.look(3_600, True, held._replace(seq=3), "s1", "") == ["renewed again"]
    assert watched.look(3_700, False, None, "", "gone") == ["the store does not answer: gone"]
    assert watched.look(3_800, False, None, "", "gone") == []
    assert watched.look(3_900, True, other, "s2", "") == [
        "the store answers again",
        "another server answers: s2; the observation starts anew",
        "node b, token 20",
    ]
    assert watched.look(4_000, True, other._replace(released=True, successor="c"), "s2", "") == [
        "nobody (released by b to c), token 20"
    ]


STALLS = ("not renewed", "renewed", "the store does not answer", "the store answers again")


def test_watch_follows_a_row_until_ctrl_c(local: Place) -> None:
    """The command itself: a line of JSON for each change, as it happens, and 130 at the end."""
    harness = local.harness()
    harness.server()  # the file is there
    call = [sys.executable, "-m", "primacy.cli.main", "lease", "watch", "job", "--json", "--store", local.url]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None

            def heard() -> Any:
                """The next change but that of a machine which stalls between two lines of this test."""
                while (found := json.loads(watching.stdout.readline()))["text"].startswith(STALLS):
                    pass
                return found

            assert heard()["text"] == "nobody has used this name yet"
            harness.take("job")
            taken = heard()
            assert (taken["lease"], taken["text"], taken["row"]["token"]) == ("job", "node a, token 10", 10)
            harness.release("job")
            assert heard()["text"] == "nobody (released by a), token 10"
            watching.send_signal(signal.SIGINT)
            assert watching.wait(120) == 130
        finally:
            watching.kill()


# --- the SQL coordinator's table (L8) ---------------------------------------------------------------------------------

OLD_ROWS = {
    "sqlite": ("datetime('now', '{} seconds')", "TEXT"),
    "postgresql": ("now() + interval '{} seconds'", "timestamptz"),
    "mariadb": ("NOW() + INTERVAL {} SECOND", "TIMESTAMP"),
    "mysql": ("NOW() + INTERVAL {} SECOND", "TIMESTAMP"),
}


class OldNode:
    """A node of the SQL coordinator, with its statements."""

    def __init__(self, url: str, kind: str) -> None:
        self.store: Any = open_store(url, limit_ms=LIMIT_MS)
        self.kind = kind
        Harness(self.store).look()
        self.run("CREATE TABLE locks (lock_key VARCHAR(255) PRIMARY KEY, owner_id VARCHAR(255) NOT NULL, "
                 f"expires_at {OLD_ROWS[kind][1]} NOT NULL)")  # fmt: skip

    def run(self, text: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.store._execute(text, {})
        return found

    def hold(self, seconds: int, owner: str = "old") -> None:
        expiry = OLD_ROWS[self.kind][0].format(f"{seconds:+}")
        self.run(f"INSERT INTO locks VALUES ('coordinator_lock', '{owner}', {expiry})")

    def renew(self, owner: str = "old") -> None:
        expiry = OLD_ROWS[self.kind][0].format("+10")
        self.run(f"UPDATE locks SET expires_at = {expiry} WHERE lock_key = 'coordinator_lock' AND owner_id = '{owner}'")

    def owner(self) -> str:
        return str(self.run("SELECT owner_id FROM locks WHERE lock_key = 'coordinator_lock'")[0][0])


@pytest.fixture(params=[kind for kind in ("sqlite", *servers_here()) if kind not in ("etcd", "redis")])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[OldNode, Place]]:
    with place(request.param, tmp_path) as found:
        node = OldNode(found.url, request.param)
        yield node, found
        node.store.close()


def test_L8_an_expired_row_is_taken_for_good(old: tuple[OldNode, Place], capsys: pytest.CaptureFixture[str]) -> None:
    node, here = old
    node.hold(-5)
    code, out, err = told(capsys, "import", "--store", here.url)
    assert code == 0, err
    assert "the first node leads after 10,500 ms" in out
    assert node.owner().startswith("primacy-import-")
    node.renew()
    assert CoordinatorTable(node.store).look() == Old(
        node.owner(), CoordinatorTable(node.store).look().expires_at, False
    )  # type: ignore[union-attr]
    answer = Harness(here.open()).look("coordinator")
    assert answer.row is not None
    assert (answer.row.released, answer.row.is_placeholder) == (False, True)
    assert answer.row.wait_ms >= 10_203, "nobody starts at once"
    code, _, err = told(capsys, "import", "--store", here.url)
    assert (code, "there is a lease 'coordinator' already" in err) == (1, True)


def test_L8_a_held_row_is_waited_for_and_left_alone(
    old: tuple[OldNode, Place], capsys: pytest.CaptureFixture[str]
) -> None:
    node, here = old
    node.hold(+60)
    code, _, err = told(capsys, "import", "--store", here.url, "--wait-ms", "0")
    assert (code, "held by old until" in err, "Nothing was changed" in err) == (1, True, True)
    assert node.owner() == "old"
    assert here.harness().look("coordinator").row is None


def test_L8_no_row_yet_and_an_import_that_broke_off(old: tuple[OldNode, Place]) -> None:
    """The import of an earlier version was two steps: one that broke off in between is finished."""
    node, here = old
    assert CoordinatorTable(node.store).take("primacy-import-0a")
    assert not CoordinatorTable(node.store).take("primacy-import-0b"), "it never expires"
    made = import_coordinator(node.store, "coordinator", "0c", 10_203)
    assert not isinstance(made, Old)
    assert made == Harness(here.open()).look("coordinator").row


def test_L8_old_and_new_row_change_together_or_not_at_all(old: tuple[OldNode, Place]) -> None:
    """A new row that cannot be made leaves the old one to its nodes."""
    node, here = old
    node.hold(-5)
    other = Harness(here.open())

    def made_meanwhile(store: Any, requests: Any) -> Any:
        if node.kind != "sqlite":  # there one transaction locks out all others
            assert other.ask(PlaceRow("coordinator", other.server())).done
            return perform(store, requests)
        return [StoreAnswer(ok=False, reason="the disk is full")]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("primacy.store.sql_coordinator.perform", made_meanwhile)
        with pytest.raises(Refused, match="was not made"):
            import_coordinator(node.store, "coordinator", "0c", 10_203)
    assert node.owner() == "old", "rolled back"
    with pytest.raises(Refused, match="admits waits of 10,500 ms"):
        import_coordinator(node.store, "another", "0d", 60_000)


def test_L8_etcd_and_a_database_without_the_table_say_so(local: Place, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, "import", "--store", "etcd://127.0.0.1:1")
    assert (code, "the table of the old nodes is in a database" in err) == (2, True)
    file = Path(local.url.removeprefix("sqlite:///"))
    code, _, err = told(capsys, "import", "--store", local.url)
    assert (code, "there is no file" in err, file.exists()) == (3, True, False), "a wrong address makes no file"
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE theirs (n)")
        code, _, err = told(capsys, "import", "--store", local.url)
        assert (code, "there is no table locks" in err) == (1, True)
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)], "nor a table"
    with pytest.raises(Refused, match="there is no table absent"):
        CoordinatorTable(local.open(), table="absent").look()


def test_the_profile_coordinator_is_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert (PROFILES["coordinator"].hold_ms, PROFILES["coordinator"].heartbeat_ms) == (10_000, 3_333)
