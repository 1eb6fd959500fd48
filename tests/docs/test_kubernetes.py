"""The manifests in contrib/kubernetes/: by the schema of a real server, and by what the program itself knows."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from primacy import settings
from primacy.cli.main import cli
from primacy.settings.timing import PROFILES
from tests.support.kubernetes_schema import MANIFESTS, RECORDED, ROOT, kind_of, manifests, problems

SCHEMAS = json.loads(RECORDED.read_text())
EVERY = [(file.name, one) for file in MANIFESTS for one in manifests(file)]
CONTAINERFILE = (ROOT / "Containerfile").read_text()


def one(file: str, kind: str) -> Any:
    (found,) = (each for name, each in EVERY if name == file and each["kind"] == kind)
    return found


def pod_of(manifest: dict[str, Any]) -> Any:
    return manifest["spec"]["template"]["spec"]


PODS = [one("statefulset.yaml", "StatefulSet"), one("wrapper.yaml", "Deployment")]


@pytest.mark.parametrize(("file", "manifest"), EVERY, ids=[f"{file} {each['kind']}" for file, each in EVERY])
def test_the_real_server_s_schema_takes_it(file: str, manifest: dict[str, Any]) -> None:
    assert problems(manifest, SCHEMAS) == []


def test_the_recording_says_where_it_is_from() -> None:
    assert re.search(r"kube-apiserver v1\.\d+\.\d+", SCHEMAS["recorded"])
    assert set(SCHEMAS["kinds"]) == {kind_of(each) for _, each in EVERY}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("spec", "replica"), 3, "replica is not known there"),
        (("spec", "replicas"), "three", "is no integer"),
        (("spec", "selector"), None, "selector is missing"),
        (
            ("spec", "template", "spec", "containers", 0, "livenessProbe", "httpGet", "prot"),
            1,
            "prot is not known there",
        ),
        (("spec", "template", "spec", "containers", 0, "name"), None, "name is missing"),
        (("spec", "template", "spec", "securityContext", "runAsNonRoot"), "yes", "is no boolean"),
    ],
)
def test_a_wrong_manifest_is_noticed(path: tuple[str | int, ...], value: Any, said: str) -> None:
    wrong = copy.deepcopy(PODS[0])
    at: Any = wrong
    for step in path[:-1]:
        at = at[step]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    (found,) = problems(wrong, SCHEMAS)
    assert said in found


@pytest.mark.parametrize("file", [file.name for file in MANIFESTS])
def test_the_file_of_the_nodes_is_one_that_primacy_takes(file: str, tmp_path: Path) -> None:
    (tmp_path / "primacy.yaml").write_text(one(file, "ConfigMap")["data"]["primacy.yaml"])
    found = settings.load(str(tmp_path / "primacy.yaml"), "scheduler-0" if file == "statefulset.yaml" else None)
    assert found.control.public.endswith(":7480")


def test_the_nodes_of_the_file_are_the_pods_of_the_set(tmp_path: Path) -> None:
    (tmp_path / "primacy.yaml").write_text(one("statefulset.yaml", "ConfigMap")["data"]["primacy.yaml"])
    found = settings.load(str(tmp_path / "primacy.yaml"), "scheduler-0")
    wanted, service = PODS[0], one("statefulset.yaml", "Service")
    name, count = wanted["metadata"]["name"], wanted["spec"]["replicas"]
    assert wanted["spec"]["serviceName"] == service["metadata"]["name"]
    nodes = found.cluster.manager.nodes
    assert {each: node.addr for each, node in nodes.items()} == {
        f"{name}-{number}": f"{name}-{number}.{wanted['spec']['serviceName']}:7400" for number in range(count)
    }
    assert found.cluster.secret_file == pod_of(wanted)["initContainers"][0]["command"][-1]
    budget = one("statefulset.yaml", "PodDisruptionBudget")["spec"]["maxUnavailable"]
    assert count - budget > count / 2, "a majority is left"
    assert found.election.profile in PROFILES


@pytest.mark.parametrize("manifest", PODS, ids=["statefulset", "wrapper"])
def test_a_pod_ends_in_its_grace_period_and_needs_no_rights(manifest: dict[str, Any]) -> None:
    pod = pod_of(manifest)
    user = re.search(r"^USER (\d+):(\d+)$", CONTAINERFILE, re.MULTILINE)
    assert user is not None
    rights = pod["securityContext"]
    assert (rights["runAsUser"], rights["runAsGroup"], rights["fsGroup"]) == (int(user[1]), int(user[2]), int(user[2]))
    for each in (*pod["initContainers"], *pod["containers"]):
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
        assert "limits" not in each["resources"]
    assert pod["terminationGracePeriodSeconds"] >= 15 + 10


@pytest.mark.parametrize("manifest", PODS, ids=["statefulset", "wrapper"])
def test_probes_ask_the_control_api_and_the_name_comes_from_the_pod(manifest: dict[str, Any]) -> None:
    (box,) = pod_of(manifest)["containers"]
    assert {box[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")} == {"/healthz", "/readyz"}
    ports = {port["name"]: port["containerPort"] for port in box["ports"]}
    assert ports["public"] == 7480
    named = {each["name"]: each for each in box["env"]}
    assert named["PRIMACY_NODE"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    known = re.findall(r"PRIMACY_[A-Z_]+", "".join(path.read_text() for path in (ROOT / "src").rglob("*.py")))
    assert set(named) <= set(known)


@pytest.mark.parametrize("manifest", PODS, ids=["statefulset", "wrapper"])
def test_every_mount_has_its_volume(manifest: dict[str, Any]) -> None:
    pod = pod_of(manifest)
    claimed = [each["metadata"]["name"] for each in manifest["spec"].get("volumeClaimTemplates", ())]
    volumes = {each["name"] for each in pod["volumes"]} | set(claimed)
    mounted = {each["name"] for box in (*pod["initContainers"], *pod["containers"]) for each in box["volumeMounts"]}
    assert mounted == volumes


def test_the_wrapper_calls_primacy_with_options_that_it_has() -> None:
    (box,) = pod_of(PODS[1])["containers"]
    program, command, *options = box["command"]
    (copied,) = pod_of(PODS[1])["initContainers"]
    assert program == f"{copied['command'][-1]}/bin/primacy"
    run = cli.get_command(None, command)  # type: ignore[arg-type]
    assert run is not None
    known = {spelt for each in run.params for spelt in each.opts}
    assert {each for each in options if each.startswith("--") and each != "--"} <= known
    assert f"/opt/primacy/{Path(copied['command'][1]).name}" == copied["command"][1]
    assert Path(copied["command"][1]).name in CONTAINERFILE


def test_the_page_names_every_file() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    assert all(f"contrib/kubernetes/{file.name}" in page for file in MANIFESTS)
