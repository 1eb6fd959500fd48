"""etcd that is restarted, put back, restored and written by hand while leases are held in it (L3, L4, L5)."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.election.store import GENESIS, Look, ReleaseRow, Renew, Take
from primacy.node.clock import HandClock
from primacy.store import perform
from primacy.store.etcd import EtcdStore
from primacy.store.etcd_http import Endpoint, Gateway
from tests.support.servers import Etcd, find, wait_for
from tests.support.store_harness import LIMIT_MS, Harness, row
from tests.support.store_proxy import Proxy
from tests.support.store_world import LONG_MS, World

pytestmark = [
    pytest.mark.beside(order=230),
    pytest.mark.skipif(bool(Etcd.missing()), reason="etcd is not installed here"),
]
CONTROL = find("etcdctl", str(Path(__file__).parents[2] / ".venv/peers/usr/bin"))
needs_control = pytest.mark.skipif(CONTROL is None, reason="etcdctl is not installed here (make packages)")
PREFIX = "primacy_leases/"


class Real(Etcd):
    """A server of one test, whose folder is copied and put back."""

    token = "first"

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[EtcdStore] = []

    def command(self) -> list[str]:
        words = super().command()
        words[words.index("--initial-cluster-token") + 1] = self.token
        return [*words, "--unsafe-no-fsync"] if "--unsafe-no-fsync" in HELP else words

    def copy(self) -> Path:
        """The data folder, as it stands on the disk."""
        backup = self.folder / "backup"
        shutil.rmtree(backup, ignore_errors=True)
        self.run("cp", "-a", f"{self.folder}/data", str(backup))
        return backup

    def put_back(self, backup: Path) -> None:
        """Killed, with the older folder in place of its own, and started again."""
        self.kill()
        shutil.rmtree(self.folder / "data")
        self.run("cp", "-a", str(backup), f"{self.folder}/data")
        self.start()

    def snapshot(self) -> Path:
        assert CONTROL is not None
        where = self.folder / "snapshot.db"
        where.unlink(missing_ok=True)
        self.run(CONTROL, "--endpoints", f"127.0.0.1:{self.port}", "snapshot", "save", str(where))
        return where

    def restore(self, snapshot: Path, token: str) -> None:
        assert CONTROL is not None
        self.kill()
        shutil.rmtree(self.folder / "data")
        peer = f"http://127.0.0.1:{self.peer_port}"
        self.run(
            CONTROL, "snapshot", "restore", str(snapshot), "--data-dir", f"{self.folder}/data", "--name", "one",
            "--initial-cluster", f"one={peer}", "--initial-advertise-peer-urls", peer, "--initial-cluster-token", token,
        )  # fmt: skip
        self.token = token
        self.start()

    def open(
        self, clock: HandClock | None = None, limit_ms: int = LIMIT_MS, user: str = "", password: str = ""
    ) -> EtcdStore:
        gateway = Gateway([Endpoint("127.0.0.1", self.port)], limit_ms, user=user, password=password)
        self.opened.append(EtcdStore(gateway, clock=clock))
        return self.opened[-1]

    def close_all(self) -> None:
        while self.opened:
            self.opened.pop().close()

    def remove(self) -> None:
        self.close_all()
        super().remove()

    def new_table(self) -> None:
        with contextlib.closing(self.open()) as store:
            store.make_table(new=True)

    def put(self, name: str, value: str) -> None:
        """By hand."""
        self.post("kv/put", {"key": coded(PREFIX + name), "value": coded(value)})

    def value(self, name: str) -> str:
        (found,) = self.post("kv/range", {"key": coded(PREFIX + name)})["kvs"]
        return base64.b64decode(found["value"]).decode()


HELP = (
    subprocess.run([str(Etcd.where()), "--help"], capture_output=True, check=False).stderr.decode()
    if Etcd.where()
    else ""
)


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def started() -> Real:
    """A cluster in use for a while."""
    server = Real()
    server.prepare()
    server.start()
    server.age()
    return server


@pytest.fixture
def etcd() -> Iterator[Real]:
    """One that is damaged, with a table that an operator has called new."""
    server = started()
    try:
        server.new_table()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="module")
def kept() -> Iterator[Real]:
    server = started()
    yield server
    server.remove()


@pytest.fixture
def calm(kept: Real) -> Iterator[Real]:
    """One that nobody stops, with a table that an operator has called new."""
    kept.empty()
    kept.new_table()
    yield kept
    kept.close_all()


@pytest.fixture
def world(etcd: Real) -> Iterator[World]:
    found = World(etcd.open)
    yield found
    found.close()


@pytest.fixture
def calm_world(calm: Real) -> Iterator[World]:
    found = World(calm.open)
    yield found
    found.close()


def test_L5_a_restart_is_another_server_and_a_live_holder_moves_along(world: World, etcd: Real) -> None:
    a, before = world.node("a"), Harness(etcd.open()).server()
    assert world.until_leads(a) <= 50
    b = world.node("b")
    world.run(1_000)
    etcd.kill()
    etcd.start()
    assert Harness(etcd.open()).server() != before
    world.run(5_000)
    assert a.leads, "its hold is unbroken"
    assert len(a.holds) == 1
    assert a.refusals, "but its connection was not"
    a.step_down()
    a.is_cut = True
    world.until_leads(b)
    assert world.overlaps() == []


def test_L5_a_folder_put_back_is_told_by_the_connection_alone(world: World, etcd: Real) -> None:
    """It comes up with the raft term of the history that was lost: the same identity, and the same row.

    A watcher has watched the row of a dead holder for almost the whole wait, in the lost history; another took it.
    """
    a = world.node("a")
    world.until_leads(a)
    a.is_cut = True
    etcd.stop()
    backup = etcd.copy()
    etcd.start()
    b, watcher = world.node("b"), world.node("w")
    lost = Harness(etcd.open()).look()
    world.run(LONG_MS - 400)
    assert not b.holds
    watcher.is_cut = True
    world.until_leads(b)
    etcd.put_back(backup)
    found = Harness(etcd.open()).look()
    assert (found.server, found.row) == (lost.server, lost.row), "nothing in the answer tells"
    b.is_cut, watcher.is_cut = True, False
    began_ms = world.clock.ms
    world.until_leads(watcher)
    assert world.overlaps() == []
    assert world.clock.ms - began_ms >= LONG_MS


def test_L5_a_take_under_way_is_not_sent_over_a_new_connection(world: World, etcd: Real) -> None:
    """The evidence came over the old one."""
    harness = Harness(etcd.open())
    harness.take()
    harness.release()
    etcd.stop()
    backup = etcd.copy()
    etcd.start()
    assert not harness.look().ok, "the connection broke: that is told, not mended in silence"
    seen = harness.look()
    etcd.put_back(backup)
    first = harness.take(new=row("b#2", 20, 2), seen=seen)
    assert not first.ok
    second = harness.ask(Take("job", seen.row, seen.server, row("b#2", 20, 2), link=seen.link))
    assert (second.ok, second.done) == (True, False)
    assert second.server == seen.server
    assert second.link != seen.link


@needs_control
@pytest.mark.parametrize("token", ["first", "second"])
def test_L5_a_restored_snapshot_proves_nothing(world: World, etcd: Real, token: str) -> None:
    """With the same token it has the same cluster id and term: the rows are older than its log is long."""
    a = world.node("a")
    world.until_leads(a)
    a.step_down()
    a.is_cut = True
    snapshot, before = etcd.snapshot(), Harness(etcd.open()).look(count=True)
    b = world.node("b")
    assert world.until_leads(b) <= 50
    etcd.restore(snapshot, token)
    after = Harness(etcd.open()).look(count=True)
    assert (after.server == before.server) == (token == "first")
    assert after.row is not None
    assert after.genesis is not None
    assert (after.row.released, after.row.vouches, after.genesis.vouches) == (True, False, False)
    b.is_cut = True
    c = world.node("c")
    assert world.until_leads(c) >= LONG_MS
    assert c.holds[-1][0] > b.holds[-1][0]
    assert world.overlaps() == []
    c.step_down()
    c.is_cut = True
    d = world.node("d")
    assert world.until_leads(d) <= LONG_MS + 2_000, "a young cluster again"


@needs_control
def test_L5_a_young_cluster_is_watched() -> None:
    """Its first entries cannot tell a restored snapshot from the cluster itself: whoever comes watches first."""
    young = Real()
    try:
        young.prepare()
        young.start()
        young.new_table()
        world = World(young.open)
        a = world.node("a")
        assert LONG_MS <= world.until_leads(a) <= LONG_MS + 2_000
        world.run(5_000)
        assert a.leads, "it renews like anywhere"
        assert len(a.holds) == 1
        a.step_down()
        a.is_cut = True
        snapshot = young.snapshot()
        b = world.node("b")
        assert LONG_MS <= world.until_leads(b) <= LONG_MS + 2_000
        young.restore(snapshot, young.token)
        for _ in range(100):
            young.post("kv/put", {"key": coded("else"), "value": ""})  # now its log is longer than the rows are old
        found = Harness(young.open()).look(count=True)
        assert found.row is not None
        assert found.genesis is not None
        assert (found.row.released, found.row.vouches, found.watched) == (True, True, True)
        b.is_cut = True
        c = world.node("c")
        world.until_leads(c)
        assert world.overlaps() == []

        young.age()
        world.run(LONG_MS + 5_000)
        assert c.leads
        c.step_down()
        c.is_cut = True
        other = Harness(young.open()).look("other", count=True)
        assert not other.watched, "its genesis row was written anew by then"
        d = world.node("d")
        assert world.until_leads(d) <= 50
        world.close()
    finally:
        young.remove()


def test_L5_a_compaction_changes_nothing(calm_world: World, calm: Real) -> None:
    a = calm_world.node("a")
    calm_world.until_leads(a)
    b = calm_world.node("b")
    calm_world.run(3_000)
    revision = calm.post("kv/range", {"key": "AA=="})["header"]["revision"]
    calm.post("kv/compaction", {"revision": revision, "physical": True})
    calm_world.run(3_000)
    assert (len(a.holds), b.holds, a.leads) == (1, [], True)
    a.step_down()
    a.is_cut = True
    assert calm_world.until_leads(b) <= 1_500


def test_L5_a_key_put_back_by_hand_does_not_vouch(calm_world: World, calm: Real) -> None:
    a = calm_world.node("a")
    calm_world.until_leads(a)
    a.step_down()
    a.is_cut = True
    backup, genesis = calm.value("job"), calm.value(GENESIS)
    b = calm_world.node("b")
    calm_world.until_leads(b)
    calm.put("job", backup)
    calm.put(GENESIS, genesis)
    b.is_cut = True
    found = Harness(calm.open()).look(count=True)
    assert found.row is not None
    assert found.genesis is not None
    assert (found.row.released, found.row.vouches, found.genesis.vouches) == (True, False, False)
    assert calm_world.until_leads(calm_world.node("c")) >= LONG_MS
    assert calm_world.overlaps() == []


def test_L9_a_row_removed_by_hand_leaves_nobody_fast(calm_world: World, calm: Real) -> None:
    a = calm_world.node("a")
    calm_world.until_leads(a)
    calm.post("kv/deleterange", {"key": coded(PREFIX + "job")})
    a.is_cut = True
    b = calm_world.node("b")
    assert calm_world.until_leads(b) >= LONG_MS
    assert calm_world.overlaps() == []


def test_L5_no_connection_is_replaced_unnoticed(calm: Real) -> None:
    """Between the store and etcd stands a proxy that closes what is idle, as load balancers do."""
    proxy = Proxy(calm.port)
    store = EtcdStore(Gateway([Endpoint("127.0.0.1", proxy.port)], LIMIT_MS))
    harness = Harness(store)
    first = harness.look()
    assert (first.ok, harness.look().link) == (True, first.link)
    proxy.drop_all()
    wait_for(lambda: not proxy.connections, "the end of all connections")
    lost = harness.look()
    assert not lost.ok
    again = harness.look()
    assert again.ok
    assert again.link != first.link
    store.close()
    proxy.close()


# --- hostile keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["", "not JSON", "[]", "[" * 100_000, '{"holder": 1}', "\udcff", json.dumps({"token": "1"})],
    ids=["empty", "text", "list", "deep", "number", "bytes", "strings"],
)
def test_a_hostile_key_is_named_and_costs_the_others_nothing(calm: Real, value: str) -> None:
    harness = Harness(calm.open())
    assert harness.take("good").done
    raw = value.encode(errors="surrogateescape")
    calm.post("kv/put", {"key": coded(PREFIX + "bad"), "value": base64.b64encode(raw).decode()})
    good, bad = perform(harness.store, [Look("good"), Look("bad")])  # together, as the thread asks
    assert good.ok
    assert (bad.ok, bad.final) == (False, False)
    assert "'primacy_leases/bad' in etcd" in bad.reason
    assert "not one of primacy's" in bad.reason
    (renewed,) = perform(harness.store, [Renew("good", "a#1", 10, 1, good.server)])
    assert renewed.done


def test_a_hostile_genesis_row_costs_no_live_holder_its_lease(calm: Real) -> None:
    harness = Harness(calm.open())
    server = harness.take().server
    good = calm.value(GENESIS)
    calm.put(GENESIS, '{"token": "x"}')
    assert harness.renew(server=server).done
    answer = harness.look()
    assert (answer.ok, answer.final) == (False, False)
    assert "'primacy_leases/:genesis' in etcd" in answer.reason
    assert harness.renew(seq=2, server=server).done
    assert harness.release(seq=3).done
    calm.put(GENESIS, good)
    assert harness.look().ok


def test_a_hostile_row_costs_no_other_renewal_its_proof(calm: Real) -> None:
    """All in one transaction: what was done for the others is told to them."""
    harness = Harness(calm.open())
    names = [f"job{number}" for number in range(5)]
    for name in names:
        assert harness.take(name).done
    calm.put("job3", "[]")
    answers = perform(harness.store, [Renew(name, "a#1", 10, 1, harness.server()) for name in names])
    assert [answer.done for answer in answers] == [True, True, True, False, True]
    assert "'primacy_leases/job3' in etcd is not one of primacy's" in answers[3].reason


def test_numbers_out_of_bounds_are_refused(calm: Real) -> None:
    harness = Harness(calm.open())
    harness.take()
    found = json.loads(calm.value("job"))
    for change in ({"token": 2**60}, {"wait_ms": 10**12}, {"released": 2}, {"holder": "x" * 500}, {"index": "9"}):
        calm.put("job", json.dumps({**found, **change}))
        answer = harness.look()
        if "index" in change:
            assert answer.row is not None
            assert not answer.row.vouches
        else:
            assert not answer.ok, change


# --- what cannot pass -------------------------------------------------------------------------------------------------


def test_what_never_passes_by_itself_is_final(etcd: Real) -> None:
    for path, body in (
        ("auth/user/add", {"name": "root", "password": "secret"}),
        ("auth/user/grant", {"user": "root", "role": "root"}),
        ("auth/user/add", {"name": "app", "password": "word"}),
        ("auth/user/add", {"name": "reader", "password": "word"}),
        ("auth/role/add", {"name": "app"}),
        ("auth/role/add", {"name": "reader"}),
        ("auth/role/grant", permission("app", 2)),
        ("auth/role/grant", permission("reader", 0)),
        ("auth/user/grant", {"user": "app", "role": "app"}),
        ("auth/user/grant", {"user": "reader", "role": "reader"}),
    ):
        if path == "auth/role/add" and body["name"] == "root":
            continue
        etcd.post(path, body)
    plain = Harness(etcd.open(user="app", password="word")).look()
    assert (plain.ok, plain.final) == (False, True)
    assert "leave the user out of the address, or enable authentication" in plain.reason
    etcd.post("auth/enable", {})

    def harness(user: str, password: str) -> Harness:
        return Harness(etcd.open(user=user, password=password))

    app = harness("app", "word")
    assert app.take().done
    assert app.renew().done
    for name, password, remedy in (
        ("", "", "this cluster asks for a user"),
        ("app", "wrong", "correct the user or the password in the address"),
        ("nobody", "word", "correct the user"),
    ):
        answer = harness(name, password).look()
        assert (answer.ok, answer.final) == (False, True), answer
        assert remedy in answer.reason
        assert "word" not in answer.reason.replace("password", "")
    reader = harness("reader", "word")
    assert reader.look().row is not None, "one who may only read can look"
    answer = reader.take(new=row("b#2", 20, 2))
    assert (answer.ok, answer.final) == (False, True)
    assert "give this user the rights that `primacy lease schema --store etcd://…` prints" in answer.reason


def permission(role: str, kind: int) -> dict[str, Any]:
    return {"name": role, "perm": {"permType": kind, "key": coded(PREFIX), "range_end": coded(PREFIX[:-1] + "0")}}


# --- version 0.1 ------------------------------------------------------------------------------------------------------


class Old:
    """A user of version 0.1, by what it wrote and compared: nine fields, and the revision of the key."""

    def __init__(self, etcd: Real) -> None:
        self.etcd = etcd
        cluster = etcd.post("kv/range", {"key": "AA=="})["header"]["cluster_id"]
        self.server = f"etcd:{cluster}"

    def read(self) -> tuple[int, dict[str, Any]]:
        (kv,) = self.etcd.post("kv/range", {"key": coded(PREFIX + "job")})["kvs"]
        found = json.loads(base64.b64decode(kv["value"]))
        fields = ("holder", "token", "seq", "hold_ms", "wait_ms", "released", "members", "successor", "server")
        return int(kv["mod_revision"]), {field: found[field] for field in fields}

    def write(self, revision: int, **fields: Any) -> bool:
        new = {"hold_ms": 3_000, "wait_ms": 3_061, "released": 0, "members": "", "successor": "", **fields}
        value = json.dumps({**new, "server": self.server, "written_at": ""})
        key = coded(PREFIX + "job")
        same = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        put = {"request_put": {"key": key, "value": coded(value)}}
        return bool(self.etcd.post("kv/txn", {"compare": [same], "success": [put]}).get("succeeded"))


def test_old_and_new_users_of_one_cluster_at_once(calm_world: World, calm: Real) -> None:
    old = Old(calm)
    assert old.write(0, holder="o#1", token=50, seq=1)
    a = calm_world.node("a")
    for _ in range(30):
        calm_world.run(500)
        revision, found = old.read()
        assert found["holder"] == "o#1"
        assert old.write(revision, **{**found, "seq": found["seq"] + 1}), "the new one keeps away"
    assert not a.holds
    revision, found = old.read()
    assert old.write(revision, **{**found, "released": 1})
    assert calm_world.until_leads(a) >= 8_000, "a row without a mark does not vouch, so its release is not believed"
    revision, found = old.read()
    assert (found["holder"], found["released"]) == ("a#1", 0), "the old one can read it"
    assert found["server"] != old.server, "so it never believes a release of the new one at once"
    calm_world.run(1_000)
    assert not old.write(revision, holder="o#2", token=2**50, seq=9), "it was renewed"
    genesis = json.loads(calm.value(GENESIS))
    assert {"holder", "token", "seq", "hold_ms", "wait_ms", "released", "members", "successor", "server"} <= set(
        genesis
    )
    a.is_cut = True
    calm_world.run(3_100)
    revision, _ = old.read()
    assert old.write(revision, holder="o#2", token=2**50, seq=9)
    a.is_cut = False
    calm_world.run(3_000)
    assert not a.leads


def test_the_genesis_row_is_made_if_it_is_missing(calm: Real) -> None:
    harness = Harness(calm.open())
    harness.take()
    calm.post("kv/deleterange", {"key": coded(PREFIX + GENESIS)})
    found = harness.look(count=True)
    assert found.genesis is not None
    assert (found.genesis.settled, found.genesis.names, found.genesis.count) == ("", 0, 1)
    assert calm.value(GENESIS)


def test_more_leases_than_are_remembered_cost_no_answer(calm: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primacy.store.etcd.KNOWN_MAX", 10)
    harness = Harness(calm.open())
    for numbers in (range(5), range(5, 10), (0, 1, 2, 10, 11), (3, 4, 5, 12), range(8)):
        assert all(found.ok for found in perform(harness.store, [Look(f"job{n}") for n in numbers]))


def test_a_watch_hears_only_names(calm: Real) -> None:
    """And which of them are mere renewals, which is a hint and no more."""
    holder, watcher = Harness(calm.open()), calm.open()
    Harness(watcher).look()
    assert watcher.listen() >= 0
    heard: list[Any] = []

    def hears(number: int) -> list[Any]:
        wait_for(lambda: bool(heard.extend(watcher.news()) or len(heard) >= number), "news")
        return [tuple(news) for news in heard]

    holder.take()
    holder.renew()
    holder.renew(seq=2)
    assert hears(3) == [("job", False), ("job", True), ("job", True)]
    holder.ask(ReleaseRow("job", "a#1", 10, 3))
    assert hears(4)[3] == ("job", False)
    watcher.close()
