"""What the store on Kubernetes says and understands, where no API server is: a recorded conversation, and nonsense."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.errors import CannotHere, PrimacyError, UsageError
from primacy.store import open_store
from primacy.store.kubernetes import KubernetesStore
from primacy.store.kubernetes_http import Api, by_kubeconfig
from primacy.store.kubernetes_rows import object_name
from tests.support.kubernetes_recorded import RECORDED, Played, spoken
from tests.support.store_harness import Harness


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    server = Played(tmp_path)
    yield server
    server.end()


def test_the_store_still_speaks_as_the_real_server_understood_it(played: Played) -> None:
    store = KubernetesStore(Api(played.account, 20_000))
    said = spoken(Harness(store))
    store.close()
    assert played.wrong == []
    assert said == json.loads(RECORDED.read_text())["said"]
    assert not played.left


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"metadata": {"uid": ""}},
        {"metadata": {"uid": 7}, "items": "x"},
        {"metadata": {"uid": "u", "resourceVersion": "x"}, "items": []},
        {"metadata": {"uid": "u", "resourceVersion": "-1"}, "items": []},
        {"metadata": {"uid": "u", "resourceVersion": "1"}, "items": [{}]},
        {"metadata": {"uid": "u", "resourceVersion": "1"}, "items": {"a": 1}},
        {"metadata": None},
        {"metadata": {"uid": "u" * 500}},
    ],
)
def test_what_is_not_kubernetes_proves_nothing(played: Played, nonsense: Any) -> None:
    played.left = [{"status": 200, "said": nonsense} for _ in range(8)]
    store = KubernetesStore(Api(played.account, 20_000))
    answer = Harness(store).look()
    store.close()
    assert answer.row is None
    assert not answer.done
    if not answer.ok:
        assert "does not answer like the API of Kubernetes" in answer.reason


@pytest.mark.parametrize(("status", "final"), [(401, True), (403, True), (429, False), (500, False), (504, False)])
def test_a_refusal_is_told_with_the_remedy(played: Played, status: int, final: bool) -> None:
    played.left = [{"status": status, "said": {"message": "no, said the server"}}]
    answer = Harness(KubernetesStore(Api(played.account, 20_000))).look()
    assert (answer.ok, answer.final) == (False, final)
    assert "no, said the server" in answer.reason


def test_addresses(tmp_path: Path) -> None:
    for url, told in (
        ("kubernetes://Upper", "a namespace has at most 63"),
        ("kubernetes:?context=x", "name the file, too"),
        ("kubernetes:?kubeconfig=relative", "name the file from the root"),
        ("kubernetes:?nonsense=1", "there are kubeconfig, context"),
    ):
        with pytest.raises(UsageError, match=told.replace("?", r"\?")):
            open_store(url)
    with pytest.raises(UsageError, match="underscore"):
        open_store("kubernetes:", table="_x")
    answer = Harness(open_store(f"kubernetes:?kubeconfig={tmp_path}/none")).look()
    assert (answer.ok, answer.final) == (False, True)
    assert "No such file" in answer.reason


def test_kubeconfigs_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    path = tmp_path / "config"
    user: dict[str, Any] = {"token": "x"}
    cluster: dict[str, Any] = {"server": "https://127.0.0.1:6443"}
    whole = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "jobs"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(whole))
    found = by_kubeconfig(str(path))
    assert (found.host, found.port, found.namespace, found.token()) == ("127.0.0.1", 6443, "jobs", "x")
    assert by_kubeconfig(str(path), namespace="other").namespace == "other"

    def refused(told: str, text: str = "", context: str = "") -> None:
        path.write_text(text or json.dumps(whole))
        with pytest.raises((UsageError, CannotHere), match=told):
            by_kubeconfig(str(path), context)

    refused("is no kubeconfig", "[")
    refused("it holds no settings", "- 1")
    refused("there is no context 'other'; there are: c", context="other")
    user["exec"] = {"command": "aws"}
    refused("signs in by `exec`")
    del user["exec"]
    user["client-certificate-data"] = "?"
    refused("is not base64")
    user["client-certificate-data"] = base64.b64encode(b"nonsense").decode()
    refused("certificate and key cannot be used")
    del user["client-certificate-data"]
    cluster["insecure-skip-tls-verify"] = True
    refused("a server that proves nothing")
    cluster["server"] = "http://127.0.0.1"
    refused("is no https:// address")
    user["tokenFile"] = str(tmp_path / "none")
    cluster |= {"server": "https://127.0.0.1", "insecure-skip-tls-verify": False}
    path.write_text(json.dumps(whole))
    with pytest.raises(PrimacyError, match="No such file"):
        by_kubeconfig(str(path)).token()


def test_names_of_objects_are_valid_and_never_the_same() -> None:
    names = ["job", "Job", "JOB", "job.", "job_1", "job-1", "x--abc", "a.b", "a-b", "=job", "x" * 120, "-x".strip("-")]
    found = {object_name("primacy_leases", name) for name in names}
    assert len(found) == len(set(names))
    for one in found:
        assert len(one) <= 253
        assert all(part and part[0].isalnum() and part[-1].isalnum() for part in one.split("."))
        assert one == one.lower()
        assert one.isascii()
