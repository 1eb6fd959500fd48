"""Nodes in containers, one each, as a user would run them: no capability, no root, nothing writable but their state.

Their command stamps when it lived (`stamp.py`) into a file that all of them share, by the one clock of the kernel. Who
runs, and whether two did, is read from there alone. Whatever happened, it is judged once more at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from primacy.cli.new import write_secret
from tests.support import stamp
from tests.support.containers import IMAGE, USER, Docker
from tests.support.ports import free_ports
from tests.support.safety_checks import one_at_a_time
from tests.support.servers import children_of
from tests.support.waiting import wait_until

WITHIN_S = 60.0
LOOK_S = 0.01
FRESH_NS = 200_000_000
"""Who stamped so lately is alive; a machine that is slow may let it wait so long."""
LASTS_S = 600
STRICT = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host")


class ContainerNodes:
    """Containers by the name of their node. `store`: on a lease there; else raft among them."""

    def __init__(self, docker: Docker, folder: Path, names: str, profile: str, store: str = "") -> None:
        self.docker, self.names, self.folder = docker, names, folder
        self.etc, self.shared = folder / "etc", folder / "shared"
        for each in (self.etc, self.shared, *(folder / f"state-{name}" for name in names)):
            each.mkdir(parents=True, mode=0o700)
            os.chown(each, USER, USER)
        self.stamps = self.shared / "stamps"
        stamp.make_file(str(self.stamps))
        shutil.copy(stamp.__file__, self.shared / "stamp.py")
        (self.shared / "stamp.py").chmod(0o644)
        self.ways()
        write_secret(self.etc / "secret")
        os.chown(self.etc / "secret", USER, USER)
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        nodes = "".join(f'      {name}: {{addr: "127.0.0.1:{port}"}}\n' for name, port in ports.items())
        election = f'  store: {{url: "{store}"}}\n' if store else ""
        listed = "" if store else f"  secret_file: secret\n  first_start: auto\n  manager:\n    nodes:\n{nodes}"
        (self.etc / "primacy.yaml").write_text(
            f"cluster:\n  name: boxes\n{listed}election:\n  strategy: {'lease' if store else 'raft'}\n"
            f"  profile: {profile}\n{election}"
        )

    def ways(self, *ways: str) -> None:
        """What the commands that start from now on are like."""
        (self.shared / "ways").write_text(" ".join((f"for={LASTS_S}", *ways)))
        (self.shared / "ways").chmod(0o644)

    def start(self, *names: str) -> None:
        """A container that was there before is made anew, with the state that it had."""
        for name in names or self.names:
            self.docker.run("rm", "--force", self.box(name), check=False)
            mounts = {f"state-{name}": "/var/lib/primacy", "etc": "/etc/primacy:ro", "shared": "/shared"}
            volumes = [word for here, there in mounts.items() for word in ("--volume", f"{self.folder / here}:{there}")]
            self.docker(
                *("run", "--detach", "--name", self.box(name), *STRICT, *volumes, IMAGE, "--node", name, "run"),
                *("--stop-ms", "300", "--", "python3", "-I", "-S", "/shared/stamp.py"),
                *("/shared/stamps", "@/shared/ways"),
            )

    def box(self, name: str) -> str:
        """The container's name."""
        return f"{self.folder.name}-{name}"

    def state(self, name: str) -> dict[str, Any]:
        found = self.docker.inspect(self.box(name))["State"]
        assert isinstance(found, dict)
        return found

    def log(self, name: str) -> str:
        done = self.docker.run("logs", self.box(name), check=False)
        return str(done.stdout + done.stderr)

    def first_process(self, name: str) -> int:
        """As the host numbers it."""
        return int(self.state(name)["Pid"])

    def processes(self, name: str) -> list[int]:
        first = self.first_process(name)
        return [first, *children_of(first)]

    # --- what is seen -------------------------------------------------------------------------------------------------

    def stamped(self) -> list[stamp.Stamp]:
        return stamp.read(str(self.stamps))

    def acting(self, above: int = 0, but: str = "") -> stamp.Stamp:
        """The command that runs under a token above this one, not on that node, once there is one."""

        def look() -> stamp.Stamp | None:
            now = stamp.now_ns()
            found = [one for one in self.stamped() if one.kind == stamp.COMMAND and now - one.last_ns < FRESH_NS]
            return next((one for one in reversed(found) if one.token > above and one.node != but), None)

        return self.until(look, f"a command under a token above {above}")

    def until(self, check: Any, what: str) -> Any:
        def told() -> str:
            logs = "\n".join(f"--- {name}\n{self.log(name)[-2_000:]}" for name in self.names)
            return f"{self.stamped()[-6:]}\n{logs}"

        return wait_until(check, what, WITHIN_S, LOOK_S, told=told)

    def one_at_a_time(self) -> None:
        """I1 and I4, by what was stamped."""
        one_at_a_time(self.stamped())


@contextlib.contextmanager
def container_nodes(
    docker: Docker, folder: Path, names: str = "abc", profile: str = "fast", store: str = ""
) -> Iterator[ContainerNodes]:
    """Nothing is started yet. All of it is ended, and judged, whatever happens."""
    made = ContainerNodes(docker, folder, names, profile, store)
    try:
        yield made
    finally:
        docker.run("rm", "--force", *map(made.box, names), check=False)
        made.one_at_a_time()
