"""A real Docker for the tests: a daemon of its own, on a socket and in folders of its own, ended by its number.

Nothing is downloaded. The base of the image is made of the files of Debian's packages that this machine has; the image
is built from the repository's Containerfile, with the wheel of this tree and the wheels that `make image-wheels`
fetched. The daemon has a mount namespace of its own, with control groups of version 2, in which a frozen process can be
killed; what it mounts is gone with it. Containers have the host's network, or none.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.servers import find
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
WHEELS = ROOT / "build" / "wheels"
BASE, IMAGE = "local/base", "local/primacy"
USER = 65532
WITHIN_S = 120.0
BUILD_S = 600.0
"""It takes 15 s on a busy machine, and two minutes on one that has far too much to do."""
PACKAGES = (
    "python3",
    "python3-venv",
    "python3-pip-whl",
    "python3-setuptools-whl",
    "dash",
    "coreutils",
    "findutils",
    "base-files",
)
LEFT_OUT = frozenset({"debconf", "dpkg", "install-info", "perl-base", "tar"})
"""What packages need to be installed, and nothing that runs afterwards."""
SOURCES = ("Containerfile", ".dockerignore", "requirements-product.txt", "contrib/kubernetes/copy_primacy.py")
"""What the build is given of the repository, beside the wheels."""
UNREAD = re.compile(r"/usr/share/(doc|man|info|locale|lintian|bug|zoneinfo)/")
MOUNTS = """
[ -e /sys/fs/cgroup/cgroup.controllers ] || { umount -R -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; }
mount -t tmpfs none "$1" && shift && exec "$@"
"""
"""Images are kept in memory: thousands of files that are made and removed again cost a disk half a minute."""


def missing() -> str:
    """Why no container can run here; empty if one can."""
    if os.geteuid() != 0:
        return "a Docker of one's own needs root"
    for name in ("dockerd", "docker", "unshare", "dpkg-query"):
        if find(name, "/usr/sbin", "/sbin") is None:
            return f"{name} is not here (make packages)"
    wanted = subprocess.run(["dpkg-query", "-W", *PACKAGES], capture_output=True, text=True, check=False)
    if wanted.returncode:
        return f"the base of an image lacks packages (make packages): {wanted.stderr.strip()[:200]}"
    return "" if (WHEELS / ".ready").exists() else "the wheels for an image are not here (make image-wheels)"


class Docker:
    """A daemon, and the client that speaks to it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="primacy-docker-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.log, self.data = self.folder / "log", self.folder / "data"
        self.data.mkdir()

    def start(self) -> None:
        daemon = find("dockerd", "/usr/sbin", "/sbin")
        assert daemon is not None
        call = [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNTS, "sh", str(self.data)),
            *(daemon, "--host", self.host, "--data-root", str(self.data), "--pidfile", f"{self.folder}/pid"),
            *("--exec-root", str(self.folder / "exec"), "--bridge=none", "--iptables=false", "--ip6tables=false"),
            *("--exec-opt", "native.cgroupdriver=cgroupfs"),
        ]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(call, stdout=log, stderr=log, start_new_session=True)
        wait_until(self._answers, "an answer of dockerd", WITHIN_S, 0.05, told=self._said)

    @property
    def host(self) -> str:
        return f"unix://{self.folder}/socket"

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"dockerd ended: {self._said()}"
        return self.run("info", check=False).returncode == 0

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:]

    def run(self, *words: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        """`docker WORDS`. The way to build is the one that every version of the daemon has."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "DOCKER_BUILDKIT": "0"}
        done = subprocess.run(
            [find("docker") or "docker", "--host", self.host, *words],
            **{"capture_output": True, "text": True, "timeout": WITHIN_S, **more},
            env=environment,
            check=False,
        )
        assert not check or done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
        return done

    def __call__(self, *words: str) -> str:
        """What it printed; it must succeed."""
        return str(self.run(*words).stdout).strip()

    def inspect(self, what: str) -> dict[str, Any]:
        (found,) = json.loads(self("inspect", what))
        assert isinstance(found, dict)
        return found

    def remove(self) -> None:
        """All containers, the daemon, and its folder."""
        if self.process is not None and self.process.poll() is None:
            if left := self.run("ps", "--all", "--quiet", check=False).stdout.split():
                self.run("rm", "--force", "--volumes", *left, check=False)
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(WITHIN_S)
        wait_until(lambda: not list(self._processes()), "the end of all that dockerd started", WITHIN_S, 0.05)
        shutil.rmtree(self.folder)

    def _processes(self) -> Iterator[int]:
        """Daemons and shims, which name the folder in their arguments."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if str(self.folder).encode() in (entry / "cmdline").read_bytes():
                        yield int(entry.name)
                except (FileNotFoundError, ProcessLookupError):
                    continue

    # --- images -------------------------------------------------------------------------------------------------------

    def make_base(self, name: str = BASE, *packages: str) -> None:
        made = base_archive(packages or PACKAGES)
        self.run("import", "-", name, input=made, text=False)

    def build(self, context: Path) -> None:
        """The image, from what the repository has, without a network."""
        (context / "contrib" / "kubernetes").mkdir(parents=True)
        for name in SOURCES:
            shutil.copy(ROOT / name, context / name)
        shutil.copytree(WHEELS, context / "wheels", ignore=shutil.ignore_patterns(".ready"))
        wheel = [sys.executable, "-m", "hatchling", "build", "-d", str(context / "dist"), "-t", "wheel"]
        subprocess.run(wheel, cwd=ROOT, check=True, capture_output=True)
        given = ("--build-arg", f"BASE={BASE}", "--build-arg", "PIP_NO_INDEX=1")
        words = (*given, "--file", str(context / "Containerfile"), "--tag", IMAGE, str(context))
        self.run("build", "--network=none", *words, timeout=BUILD_S)


def installed() -> dict[str, list[list[str]]]:
    """By package of this machine, or what it provides: what it needs, each as names of which one suffices."""
    form = "${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    said = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in said.splitlines():
        package, needs, provides = line.split("\t")
        choices = [[re.split(r"[ :(]", one.strip())[0] for one in need.split("|")] for need in needs.split(",")]
        for name in (package, *(one.split("(")[0].strip() for one in provides.split(",") if one.strip())):
            found.setdefault(name, [[package]] if name != package else choices)
    return found


def with_needs(packages: tuple[str, ...]) -> list[str]:
    known, found = installed(), list(packages)
    for package in found:  # it grows meanwhile
        for choice in known[package]:
            one = next((name for name in choice if name in known), None)
            if one is not None and one not in found and one not in LEFT_OUT:
                found.append(one)
    return found


def base_archive(packages: tuple[str, ...]) -> bytes:
    """The files of these packages and of all that they need, as the root of an image."""
    real = [name for name in with_needs(packages) if Path(f"/var/lib/dpkg/info/{name}.list").exists() or _many(name)]
    said = subprocess.run(["dpkg-query", "-L", *real], capture_output=True, text=True, check=True).stdout
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("bin", "sbin", "lib", "lib64"):
            _add(archive, name, tarfile.SYMTYPE, linkname=f"usr/{name}")
        for name in ("tmp", "proc", "sys", "dev", "run", "var/lib", "root", "usr/local/bin"):
            _add(archive, name, tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755)
        _add(archive, "etc/passwd", text="root:x:0:0::/root:/bin/sh\n")
        _add(archive, "usr/bin/sh", tarfile.SYMTYPE, linkname="dash")
        made_here = set(archive.getnames())
        for path in sorted({file for line in said.splitlines() for file in _with_compiled(line)}):
            if path.lstrip("/") not in made_here:
                archive.add(path, path.lstrip("/"), recursive=False)
    return made.getvalue()


def _many(package: str) -> bool:
    """It is there for several kinds of machine at once, each with its name behind it."""
    return any(Path("/var/lib/dpkg/info").glob(f"{package}:*.list"))


def _with_compiled(line: str) -> Iterator[str]:
    """A file of a package where it really is, and what Python compiled of it."""
    path = os.path.join(os.path.realpath(os.path.dirname(line)), os.path.basename(line))
    is_file = os.path.islink(path) or os.path.isfile(path)
    if line.startswith("/") and is_file and not UNREAD.search(path):
        yield path
        if path.endswith(".py"):
            where = Path(path)
            yield from map(str, (where.parent / "__pycache__").glob(f"{where.stem}.cpython-*.pyc"))


def _add(archive: tarfile.TarFile, name: str, kind: bytes = tarfile.REGTYPE, text: str = "", **more: Any) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, len(text)
    for key, value in more.items():
        setattr(entry, key, value)
    archive.addfile(entry, io.BytesIO(text.encode()))
