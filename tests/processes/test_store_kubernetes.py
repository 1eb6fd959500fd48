"""Leases in Kubernetes, on a real API server with a real etcd below it, where the program is built (L1 to L5)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from primacy.election.store import (
    WAIT_MAX_MS,
    Genesis,
    Look,
    Place,
    Prune,
    ReleaseRow,
    Renew,
    Row,
    StoreAnswer,
    StoreRequest,
    Take,
)
from primacy.errors import CannotHere
from primacy.store import open_store, perform
from primacy.store.kubernetes import KubernetesStore
from primacy.store.kubernetes_http import Api, in_pod
from primacy.store.kubernetes_rows import object_name
from primacy.store.memory import MemoryStore
from primacy.store.port import Lists, Notifies
from primacy.store.pruning import prune
from primacy.store.schema import schema
from tests.support.canary import Canary
from tests.support.kubernetes_server import ADMIN, Kubernetes
from tests.support.real_nodes import kill_all
from tests.support.real_nodes_on_lease import LeaseCrowd
from tests.support.servers import fresh_of
from tests.support.store_harness import LIMIT_MS, Harness, Placing, plain, row
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=23)

if reason := Kubernetes.missing():
    pytest.skip(reason, allow_module_level=True)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture(scope="module")
def api() -> Iterator[Kubernetes]:
    server = fresh_of(Kubernetes)
    assert isinstance(server, Kubernetes)
    yield server
    server.remove()


@pytest.fixture
def here(api: Kubernetes) -> Iterator[list[KubernetesStore]]:
    api.empty()
    opened: list[KubernetesStore] = []
    yield opened
    for store in opened:
        store.close()


def made(api: Kubernetes, opened: list[KubernetesStore], who: str = "admin", limit_ms: int = LIMIT_MS) -> Placing:
    store = open_store(api.url(who), limit_ms=limit_ms)
    assert isinstance(store, KubernetesStore)
    opened.append(store)
    return Placing(store)


@pytest.fixture
def harness(api: Kubernetes, here: list[KubernetesStore]) -> Placing:
    return made(api, here)


def test_L5_it_always_has_to_be_watched(harness: Placing) -> None:
    """It names no start: neither a row nor a fresh name is believed at once."""
    answer = harness.look()
    assert (answer.ok, answer.done, answer.row, answer.genesis) == (True, False, None, None)
    assert (answer.linked, answer.watched) == (True, True)
    assert answer.server.startswith("kubernetes:")
    assert answer.position > 0
    taken = harness.take()
    assert taken.done
    assert taken.position > answer.position
    assert (taken.linked, taken.watched) == (True, True)


@pytest.mark.parametrize("seed", range(2))
def test_it_does_what_the_store_in_memory_does(harness: Placing, seed: int) -> None:
    """But for the genesis row, which is not there: that one applies the conditions of the rules."""
    rng, model = random.Random(seed), Harness(MemoryStore())
    seen: dict[str, tuple[Row | None, Row | None]] = {}
    for _ in range(150):
        name = rng.choice(("job", "other"))
        expected, found = model.look(name), harness.look(name)
        same(expected, found)
        seen.setdefault(name, (expected.row, found.row))
        if rng.random() < 0.8:
            seen[name] = (expected.row, found.row)
        draws = rng.randrange(5), rng.random(), rng.random(), rng.randrange(1, 9), rng.choice(("a#1", "b#2"))
        asked = (drawn(draws, name, expected, seen[name][0]), drawn(draws, name, found, seen[name][1]))
        same(model.ask(asked[0]), harness.ask(asked[1]), asked)


def drawn(draws: tuple[int, float, float, int, str], name: str, now: StoreAnswer, seen: Row | None) -> StoreRequest:
    kind, odd, foreign, step, somebody = draws
    server = now.server if foreign < 0.9 else "elsewhere"
    present = now.row or row(token=5)
    token, seq = (present.token, present.seq) if odd > 0.2 else (present.token + 1, present.seq)
    holder = present.holder if odd < 0.8 else somebody
    match kind:
        case 0 | 1 if seen is not None:
            return Take(name, seen, server, Row(somebody, seen.token + step, present.seq + 1, 3_000, 3_061, False))
        case 2:
            return Renew(name, holder, token, seq, server)
        case 3:
            return ReleaseRow(name, holder, token, seq, "c" if odd < 0.5 else "")
    return Place(name, server)


def same(expected: StoreAnswer, found: StoreAnswer, why: object = "") -> None:
    assert (found.ok, found.done) == (True, expected.done), (why, expected, found)
    assert (found.row is None) == (expected.row is None), (why, expected, found)
    if found.row is not None and expected.row is not None:
        server = found.server if expected.row.server == expected.server else expected.row.server
        assert plain(found.row) == plain(expected.row._replace(server=server)), why


def test_L5_what_is_removed_and_made_anew_is_not_what_was_seen(api: Kubernetes, harness: Placing) -> None:
    """A PUT after a DELETE would create it anew: the uid is sent, so that it does not."""
    harness.take()
    seen = harness.look()
    named = f"{LEASES}/{object_name('primacy_leases', 'job')}"
    kept = api.ask("GET", named)
    api.ask("DELETE", named)
    answer = harness.take(new=row("b#2", 20, 2), seen=seen)
    assert (answer.ok, answer.done, answer.row) == (True, False, None)
    meta = {key: kept["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    api.ask("POST", LEASES, {**kept, "metadata": meta})
    answer = harness.take(new=row("b#2", 20, 2), seen=seen)
    assert (answer.ok, answer.done) == (True, False)
    assert answer.row is not None
    assert seen.row is not None
    assert (answer.row.proof, answer.row.token) == (seen.row.proof, seen.row.token), "put back, word for word"
    assert answer.row.mark != seen.row.mark


def test_people_see_who_holds_it(api: Kubernetes, harness: Placing) -> None:
    """As `kubectl get leases` shows it. What others add to the object stays."""
    harness.take("scheduler", new=row("eu-west-1#5f"))
    named = f"{LEASES}/primacy-leases.scheduler"
    found = api.ask("GET", named)
    assert found["spec"]["holderIdentity"] == "eu-west-1"
    assert (found["spec"]["leaseDurationSeconds"], found["spec"]["leaseTransitions"]) == (4, 2)
    found["metadata"]["labels"]["team"] = "payments"
    api.ask("PUT", named, found)
    assert harness.renew("scheduler", "eu-west-1#5f").done, "what somebody else wrote there changes no row"
    assert harness.release("scheduler", "eu-west-1#5f", seq=2).done
    found = api.ask("GET", named)
    assert "holderIdentity" not in found["spec"]
    assert found["metadata"]["labels"]["team"] == "payments"


def test_names_are_compared_as_bytes(api: Kubernetes, harness: Placing) -> None:
    names = ("job", "Job", "job.", "job_1", "a/b:c@d+e", "x--mpxwe", "x" * 120, "0")
    for number, name in enumerate(names):
        assert harness.take(name, new=row(token=10 + number)).done
    found = [harness.look(name).row for name in names]
    assert [r.token for r in found if r is not None] == list(range(10, 10 + len(names)))
    assert isinstance(harness.store, Lists)
    assert [listing.name for listing in harness.store.listings()] == sorted(names)
    assert len(api.ask("GET", LEASES)["items"]) == len(names)
    assert len({object_name("t", name) for name in names}) == len(names)


def test_a_lease_of_somebody_else_is_left_alone(api: Kubernetes, harness: Placing) -> None:
    body: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "primacy-leases.job"},
        "spec": {"holderIdentity": "theirs"},
    }
    api.ask("POST", LEASES, body)
    answer = harness.ask(Place("job", harness.server()))
    assert not answer.ok
    assert "primacy-leases.job is there already and is not one of primacy's" in answer.reason
    body = api.ask("GET", f"{LEASES}/primacy-leases.job")
    body["metadata"]["labels"] = {"primacy-table": "primacy_leases"}
    body["metadata"]["annotations"] = {"primacy-row": '{"name":"job","token":"no"}'}
    api.ask("PUT", f"{LEASES}/primacy-leases.job", body)
    assert harness.take("other").done, "one that is broken costs the others nothing"
    assert not harness.look().ok
    assert "not one of primacy's" in harness.look().reason


def test_what_never_passes_by_itself_is_final(api: Kubernetes, here: list[KubernetesStore]) -> None:
    for who, remedy in (("wrong", "renew it"), ("weak", "primacy lease schema --store kubernetes:")):
        answer = made(api, here, who).look()
        assert (answer.ok, answer.final) == (False, True), answer
        assert remedy in answer.reason


def test_the_rights_that_are_printed_are_enough(api: Kubernetes, here: list[KubernetesStore]) -> None:
    app = made(api, here, "app")
    assert app.look().final, "without them nothing is allowed"
    for document in yaml.safe_load_all(schema("kubernetes", "primacy_leases", "app").replace("NAMESPACE", "default")):
        space, kind = document["metadata"]["namespace"], document["kind"].lower() + "s"
        api.ask("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}/{kind}", document)
    deadline = time.monotonic() + 30
    while not (answer := app.look()).ok and time.monotonic() < deadline:
        time.sleep(0.2)  # the server reads its own rules a moment later
    assert answer.ok, answer.reason
    assert app.take().done
    assert app.renew().done
    assert app.release(seq=2).done
    assert isinstance(app.store, Notifies)
    assert app.store.listen() >= 0


def answered(harness: Placing) -> StoreAnswer:
    """Within the limit of its store, which is short: a server that has just come up may need longer at first."""
    found: list[StoreAnswer] = []

    def is_answered() -> bool:
        found.append(harness.look())
        return found[-1].ok

    wait_until(is_answered, "an answer", every_s=0.2)
    return found[-1]


def test_L5_the_server_goes_away_and_comes_back(api: Kubernetes, here: list[KubernetesStore]) -> None:
    """With its etcd stopped an API server tries for half a minute to write: the store waits for its own limit."""
    harness = made(api, here, limit_ms=900)
    made(api, here).take()
    before = answered(harness)
    api.etcd.freeze()
    with Canary(1_000) as canary:
        began_s = time.monotonic()
        (answer,) = perform(harness.store, [Renew("job", "a#1", 10, 1, before.server)])
        took_s = time.monotonic() - began_s
    api.etcd.thaw()
    assert not answer.ok
    canary.judge(took_s < 10, f"{took_s:.1f} s, not the half minute of the server")
    after = answered(harness)
    assert after.server == before.server
    assert after.link != before.link, "all observations start anew"
    assert after.position >= before.position
    api.kill()
    assert not harness.look().ok
    api.start()
    again = answered(harness)
    assert (again.server, again.row) == (before.server, after.row)
    assert again.link != after.link


def test_L10_nothing_is_pruned_and_no_wait_is_raised(harness: Placing) -> None:
    harness.take()
    harness.release()
    assert "keeps all rows" in prune(harness.store, "job")
    seen = harness.look()
    assert seen.row is not None
    assert not harness.ask(Prune("job", seen.row, seen.server, Genesis())).done
    answer = harness.take(new=row("b#2", 20, 2)._replace(hold_ms=60_000, wait_ms=61_000))
    assert (answer.ok, answer.final) == (False, True)
    assert "choose a quicker profile" in answer.reason


def test_in_a_pod_its_service_account_is_used(
    api: Kubernetes, here: list[KubernetesStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CannotHere, match="no pod of Kubernetes"):
        in_pod()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    (tmp_path / "ca.crt").write_bytes((api.folder / "certs/apiserver.crt").read_bytes())
    (tmp_path / "namespace").write_text("default\n")
    token = tmp_path / "token"
    token.write_text("of yesterday\n")
    store = KubernetesStore(Api(lambda: in_pod(folder=str(tmp_path)), LIMIT_MS))
    here.append(store)
    harness = Placing(store)
    assert harness.look().final
    token.write_text(f"{ADMIN}\n")
    assert harness.look().ok, "the token is read again"
    assert harness.take().done


def test_a_look_shows_the_newest(api: Kubernetes, here: list[KubernetesStore]) -> None:
    """Not what a cache of the server holds: a look that comes after a write shows it."""
    one, two = made(api, here), made(api, here)
    one.take()
    for seq in range(1, 60):
        assert one.renew(seq=seq).done
        found = perform(two.store, [Look("job")])[0].row
        assert found is not None
        assert found.seq == seq + 1


def test_L3_real_nodes_are_killed_and_told_to_step_down_and_never_two_run(api: Kubernetes, tmp_path: Path) -> None:
    """`primacy run` on a Lease: killed with its guard, one waits the hold; released, one that has watched is next."""
    api.empty()
    crowd = LeaseCrowd(tmp_path, api.url(), "ab", "lan")
    try:
        crowd.start()
        first = crowd.acting()
        time.sleep(WAIT_MAX_MS / 1_000 + 1)  # the other one has watched for the longest wait
        told = crowd.until(crowd._told_to_step_down, "a leader that steps down")
        second = crowd.acting(told.token)
        assert second.token > first.token
        struck = crowd.strike(kill_all)
        assert struck.took_ms > crowd.timing.hold_ms, "nobody released: the hold is waited out"
        crowd.start_missing()
        api.etcd.freeze()
        crowd.until(crowd.nobody, "the end of a command whose lease cannot be renewed")
        api.etcd.thaw()
        crowd.acting(struck.new.token)
        crowd.one_now()
    finally:
        crowd.end()
