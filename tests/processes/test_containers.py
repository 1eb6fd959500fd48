"""The image, and `primacy run` as process 1 of real containers: by Docker, with its own seccomp profile, no capability.

What `docker kill`, `stop` and `pause` do to the promise is judged by what the commands stamped, whoever took over.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from primacy.cli.new import write_secret
from primacy.election.store import Look
from primacy.settings.timing import PROFILES
from primacy.store import open_store, perform
from tests.support import containers, stamp
from tests.support.container_nodes import STRICT, ContainerNodes, container_nodes
from tests.support.containers import BASE, IMAGE, USER, Docker
from tests.support.kubernetes_schema import ROOT, manifests
from tests.support.ports import free_port
from tests.support.real_nodes import children, tree
from tests.support.safety_checks import safe
from tests.support.servers import is_alive
from tests.support.store_harness import LIMIT_MS, made_new
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside(order=6)

STATEFULSET = ROOT / "contrib" / "kubernetes" / "statefulset.yaml"
GRACE_S = 10
"""What `docker stop` waits for before it kills."""
ALL = f"FROM {BASE}\nCOPY . /all\n"
IMAGE_BYTES_MAX = 60 * 2**20
"""What the image adds to its base."""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image is built from."""
    return tmp_path_factory.mktemp("context")


@pytest.fixture(scope="module")
def docker(context: Path) -> Iterator[Docker]:
    if why := containers.missing():
        pytest.skip(why)
    made = Docker()
    try:
        made.start()
        made.make_base()
        made.build(context)
        yield made
    finally:
        made.remove()


@pytest.fixture
def copied() -> Iterator[str]:
    """Where primacy is copied to: in memory, as in a pod."""
    with tempfile.TemporaryDirectory(prefix="primacy-copied-", dir="/dev/shm") as folder:
        yield folder


@pytest.fixture(scope="module")
def raft(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerNodes]:
    with container_nodes(docker, tmp_path_factory.mktemp("raft")) as made:
        made.ways("escape")
        made.start()
        yield made


def settled(nodes: ContainerNodes) -> stamp.Stamp:
    """All containers run, and a command with a process that escaped."""
    for name in nodes.names:
        if not nodes.state(name)["Running"]:
            nodes.start(name)
    return with_escaped(nodes)


def with_escaped(nodes: ContainerNodes) -> stamp.Stamp:
    acting = nodes.acting()
    nodes.until(
        lambda: [one for one in nodes.stamped() if one.instance == acting.instance and one.kind == stamp.ESCAPED],
        "a process that left the command",
    )
    return acting


def zombies(nodes: ContainerNodes, name: str) -> list[int]:
    """Ended, and not reaped by anybody."""
    found = []
    for pid in nodes.processes(name):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def agent_of(nodes: ContainerNodes, name: str) -> int:
    """The one child of process 1 that is not an orphan."""
    (found,) = (pid for pid in children(nodes.first_process(name)) if b"--node" in arguments(pid))
    return found


def guard_of(nodes: ContainerNodes, name: str) -> int:
    """The one that holds the command; the other is a spare one."""
    guards = children(agent_of(nodes, name))
    (found,) = (pid for pid in guards if any(b"/shared/stamp.py" in arguments(each) for each in tree(pid)))
    return found


def arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def last_of(nodes: ContainerNodes, old: stamp.Stamp) -> int:
    """When something of this start of the command was last alive."""
    return max(one.last_ns for one in nodes.stamped() if one.instance == old.instance)


def test_the_image_is_small_and_runs_as_nobody_in_particular(docker: Docker) -> None:
    image, base = docker.inspect(IMAGE), docker.inspect(BASE)
    assert image["Config"]["User"] == f"{USER}:{USER}"
    assert image["Config"]["Entrypoint"] == ["primacy"]
    assert "primacy status" in image["Config"]["Healthcheck"]["Test"][-1]
    assert image["Size"] - base["Size"] < IMAGE_BYTES_MAX
    said = docker("run", "--rm", *STRICT, "--entrypoint", "ls", IMAGE, "-A", "/", "/etc/primacy", "/opt/primacy/bin")
    assert not {"src", "pip", "secret"} & set(said.split()), "the first stage stays behind"


def test_the_build_is_given_what_it_needs_and_nothing_else(docker: Docker, context: Path) -> None:
    (context / ".venv").mkdir()
    for name in ("secret", ".venv/secret", "dist/secret"):
        (context / name).write_text("not for an image")
    docker.run("build", "--network=none", "--tag", "local/all", "--file", "-", str(context), input=ALL)
    found = docker("run", "--rm", *STRICT, "local/all", "find", "/all", "-type", "f").split()
    wheels = {path for path in found if path.endswith(".whl")}
    assert len(wheels) > 10
    assert set(found) - wheels == {"/all/requirements-product.txt", "/all/contrib/kubernetes/copy_primacy.py"}


def test_a_command_runs_under_strong_containment_without_root_and_without_a_capability(docker: Docker) -> None:
    shown = "id -u; cat $PRIMACY_LEASE_FILE /proc/self/status; exit 7"
    with_state = ("--tmpfs", f"/var/lib/primacy:uid={USER},mode=0700")
    run = ("run", "--restart", "never", "--require-containment", "strong", "--", "sh", "-c", shown)
    done = docker.run("run", "--rm", *STRICT, *with_state, IMAGE, *run, check=False)
    assert done.returncode == 7, done.stderr
    uid, lease, *status = done.stdout.splitlines()
    assert uid == str(USER)
    assert '"token"' in lease
    sets = [line.split() for line in status if line.startswith("Cap")]
    assert {name: int(bits, 16) for name, bits in sets} == dict.fromkeys((name for name, _ in sets), 0)
    assert len(sets) == 5
    assert "containment is strong (ptrace)" in done.stderr


def test_a_forgotten_volume_is_said(docker: Docker) -> None:
    done = docker.run("run", "--rm", *STRICT, IMAGE, "run", "--", "true", check=False)
    assert done.returncode == 4
    assert "/var/lib/primacy" in done.stderr


def test_a_killed_guard_takes_the_escaped_tree_along_and_its_orphans_are_reaped(raft: ContainerNodes) -> None:
    acting = settled(raft)
    first, guard = raft.first_process(acting.node), guard_of(raft, acting.node)
    held = tree(guard)[1:]
    assert len(held) >= 3, "the holder of the run lock, the command, and what escaped"
    os.kill(guard, signal.SIGKILL)
    after = raft.acting(above=acting.token)
    safe(last_of(raft, acting) < after.first_ns, "what the killed guard held runs on beside the next")
    raft.one_at_a_time()
    assert raft.first_process(acting.node) == first, "the container goes on"
    raft.until(lambda: not any(map(is_alive, held)), "the end of the tree")
    raft.until(lambda: not zombies(raft, acting.node), "orphans that process 1 reaps")


def test_a_killed_agent_leaves_a_guard_that_releases_before_the_container_ends(raft: ContainerNodes) -> None:
    acting = settled(raft)
    processes = raft.processes(acting.node)
    os.kill(agent_of(raft, acting.node), signal.SIGKILL)
    after = raft.acting(above=acting.token, but=acting.node)
    safe(last_of(raft, acting) < after.first_ns, "the tree of the killed agent runs on beside the next")
    raft.until(lambda: not raft.state(acting.node)["Running"], "the end of the container")
    assert raft.state(acting.node)["ExitCode"] == 128 + signal.SIGKILL
    safe(not any(map(is_alive, processes)), "something of the container outlives it")


def test_docker_kill_leaves_nothing_and_another_node_takes_over(raft: ContainerNodes) -> None:
    acting = settled(raft)
    processes = raft.processes(acting.node)
    raft.docker("kill", raft.box(acting.node))
    killed_ns = stamp.now_ns()
    safe(not any(map(is_alive, processes)), "something of the container outlives it")
    after = raft.acting(above=acting.token, but=acting.node)
    safe(last_of(raft, acting) < killed_ns, "something of it acts after docker kill")
    assert after.first_ns - last_of(raft, acting) > PROFILES["fast"].hold_ms * 10**6 // 2, "nobody released"
    raft.one_at_a_time()


def test_docker_pause_for_longer_than_the_hold_ends_the_command_where_it_stands(raft: ContainerNodes) -> None:
    """A pause freezes guard, command and agent, and no clock: the kernel kills the guard in its sleep (F29)."""
    acting = settled(raft)
    raft.docker("pause", raft.box(acting.node))
    paused_ns = stamp.now_ns()
    after = raft.acting(above=acting.token, but=acting.node)
    safe(last_of(raft, acting) <= paused_ns, "a paused command acts")
    time.sleep(PROFILES["fast"].hold_ms / 1000)
    raft.docker("unpause", raft.box(acting.node))
    back_ns = stamp.now_ns()
    raft.until(
        lambda: (
            next((one for one in raft.stamped() if one.instance == after.instance), after).last_ns > back_ns + 10**9
        ),
        "the next holder to go on for a second beside the node that came back",
    )
    safe(last_of(raft, acting) <= paused_ns, "the command of the paused node acted once more after the pause")
    raft.one_at_a_time()
    assert raft.state(acting.node)["Running"]
    raft.until(lambda: not zombies(raft, acting.node), "orphans that process 1 reaps")


def test_the_healthcheck_asks_the_node(raft: ContainerNodes) -> None:
    acting = settled(raft)
    test = raft.docker.inspect(IMAGE)["Config"]["Healthcheck"]["Test"][-1]
    for name in raft.names:
        raft.until(
            lambda name=name: raft.docker.run("exec", raft.box(name), "sh", "-c", test, check=False).returncode == 0,
            "a node that answers",
        )
    os.kill(agent := agent_of(raft, acting.node), signal.SIGSTOP)
    try:
        done = raft.docker.run("exec", raft.box(acting.node), "sh", "-c", test, check=False)
        assert done.returncode == 1, "a node that hangs"
    finally:
        os.kill(agent, signal.SIGCONT)


def test_docker_stop_ends_in_the_grace_period_and_the_lease_is_released(
    docker: Docker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lease")
    with container_nodes(docker, folder, "ab", "fast", store="sqlite:////shared/leases") as nodes:
        url = f"sqlite:///{nodes.shared}/leases"
        made_new(url)
        for file in nodes.shared.glob("leases*"):
            os.chown(file, USER, USER)
        nodes.ways("escape")
        nodes.start("a")
        acting = with_escaped(nodes)
        docker("stop", "--time", str(GRACE_S), nodes.box("a"))
        state = nodes.state("a")  # who does not end in the grace period is killed: 137
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False), nodes.log("a")
        store = open_store(url, create=False, limit_ms=LIMIT_MS)
        try:
            (answer,) = perform(store, [Look("main")])
        finally:
            store.close()
        assert answer.row is not None
        assert answer.row.released, answer.row
        nodes.start("b")
        after = nodes.acting(above=acting.token)
        safe(last_of(nodes, acting) < after.first_ns, "two at once")


def test_an_unmodified_image_without_python_is_started_by_a_copy_of_primacy(docker: Docker, copied: str) -> None:
    docker.make_base("local/app", "dash", "coreutils", "base-files")
    os.chown(copied, USER, USER)
    script = ("--entrypoint", "/opt/primacy/bin/python3", IMAGE, "/opt/primacy/copy_primacy.py", "/primacy")
    docker("run", "--rm", *STRICT, "--volume", f"{copied}:/primacy", *script)
    given = ("--volume", f"{copied}:/primacy:ro", "--tmpfs", f"/state:uid={USER},mode=0700", "--user", str(USER))
    run = ("/primacy/bin/primacy", "run", "--state-dir", "/state", "--restart", "never")
    command = ("--require-containment", "strong", "--", "sh", "-c", "env; command -v python3; exit 5")
    done = docker.run("run", "--rm", *STRICT, *given, "local/app", *run, *command, check=False)
    assert done.returncode == 5, done.stderr
    assert "containment is strong (ptrace)" in done.stderr
    assert "PRIMACY_TOKEN=" in done.stdout
    assert "python" not in done.stdout.lower()
    assert "LD_LIBRARY_PATH" not in done.stdout


def test_a_pod_of_the_statefulset_starts_with_the_rights_that_a_kubelet_gives(docker: Docker, tmp_path: Path) -> None:
    """Its volumes are root's and open to the group, its secret can be read by the group; words and variables are those
    of the manifest. It is alone, so that its file lists no other."""
    wanted = {each["kind"]: each for each in manifests(STATEFULSET)}
    pod = wanted["StatefulSet"]["spec"]["template"]["spec"]
    (first,), (box,) = pod["initContainers"], pod["containers"]
    file = yaml.safe_load(wanted["ConfigMap"]["data"]["primacy.yaml"])
    node, public = next(iter(file["cluster"]["manager"]["nodes"])), free_port()
    file["cluster"]["manager"]["nodes"] = {node: {"addr": f"127.0.0.1:{free_port()}"}}
    file["control"]["public"], file["run"]["command"] = f"127.0.0.1:{public}", ["sleep", "600"]
    mounted = {each["name"]: tmp_path / each["name"] for each in (*first["volumeMounts"], *box["volumeMounts"])}
    for name, folder in mounted.items():
        folder.mkdir()
        os.chown(folder, 0, pod["securityContext"]["fsGroup"])
        folder.chmod(0o2775 if name == "state" else 0o2777)
    (mounted["file"] / "primacy.yaml").write_text(yaml.safe_dump(file))
    write_secret(mounted["secret"] / "secret")
    os.chown(mounted["secret"] / "secret", 0, pod["securityContext"]["fsGroup"])
    (mounted["secret"] / "secret").chmod(0o440)

    def given(one: dict[str, Any]) -> list[str]:
        found = [f"--env={each['name']}={each.get('value', node)}" for each in one.get("env", ())]
        for each in one["volumeMounts"]:
            kept = ":ro" if each.get("readOnly") else ""
            found.append(f"--volume={mounted[each['name']]}:{each['mountPath']}{kept}")
        return found

    program, *words = first["command"]
    docker("run", "--rm", *STRICT, *given(first), "--entrypoint", program, IMAGE, *words)
    docker("run", "--detach", "--name", "pod-0", *STRICT, *given(box), IMAGE, *box["args"])
    for probe in ("livenessProbe", "readinessProbe"):
        path = box[probe]["httpGet"]["path"]
        wait_until(lambda path=path: answers(public, path), f"200 at {path}", told=lambda: docker.run("logs", "pod-0"))
    docker("restart", "--time", str(pod["terminationGracePeriodSeconds"]), "pod-0")
    wait_until(lambda: answers(public, "/readyz"), "the same after a restart, with its memory")
    docker("stop", "--time", str(pod["terminationGracePeriodSeconds"]), "pod-0")
    assert docker.inspect("pod-0")["State"]["ExitCode"] == 0


def answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
