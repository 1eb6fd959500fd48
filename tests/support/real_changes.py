"""Real nodes that get another file, one after the other: another strategy, another store, other times (M1)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from primacy.errors import NotReached
from tests.support import real_nodes as crowds
from tests.support.real_nodes import CLUSTER, Crowd, Node
from tests.support.store_harness import made_new


class ChangingCrowd(Crowd):
    """Files lie beside each other; each start of a node is given one of them."""

    def write(self, name: str, election: str, *, listed: bool = True) -> str:
        """A file of this name, with this election; `listed`: with the nodes and the secret."""
        nodes = "".join(f'      {one}: {{addr: "127.0.0.1:{self.ports[one]}"}}\n' for one in self.names)
        more = f"  secret_file: secret\n  manager:\n    type: static\n    nodes:\n{nodes}" if listed else ""
        text = f"cluster:\n  name: {CLUSTER}\n  first_start: auto\n{more}election: {{{election}}}\n"
        (self.folder / f"{name}.yaml").write_text(text)
        return name

    def raft(self, name: str = "raft", profile: str = "") -> str:
        return self.write(name, f"profile: {profile or self.profile}")

    def lease(self, name: str, url: str = "", *, listed: bool = True, table: str = "primacy_leases") -> str:
        """On an empty store; SQLite without an address."""
        url = url or f"sqlite:///{self.folder}/{name}.db"
        made_new(url)
        store = f'store: {{url: "{url}", table: {table}}}'
        return self.write(name, f"strategy: lease, profile: {self.profile}, {store}", listed=listed)

    # --- one node -----------------------------------------------------------------------------------------------------

    def begin(self, file: str) -> Node:
        """All nodes with this file, for the first time; the one whose command runs.

        All have answered, so that each remembers it: of a node that was ended before, nobody would know that it ran.
        """
        for name in self.names:
            self.start(name, file=f"{file}.yaml")
        for name in self.names:
            self.document(name)
        return self.nodes[self.acting().node]

    def change(self, name: str, file: str, end: Callable[[Node], object] | None = None) -> Node:
        """This node, and no other, is ended and started with another file."""
        node = self.nodes.get(name)
        if node is not None and node.is_up:
            (end or terminate)(node)
            node.wait()
        self.start(name, file=f"{file}.yaml")
        self.document(name)
        return self.nodes[name]

    def document(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.until(self.nodes[name].ask, f"an answer of {name}")
        return found

    def recovers(self, name: str, *others: str) -> None:
        """It takes no part, and names those that it waits for."""

        def look() -> bool:
            said = self.nodes[name].ask()
            waits = str((said or {}).get("waits_for"))
            named = waits.partition(" reported by ")[2].partition(" (")[0]
            return bool(said) and said["role"] == "recovering" and named == ", ".join(sorted(others))

        self.until(look, f"{name} to wait for {others}")

    def walk(self, order: str, file: str) -> None:
        """Each in this order gets the file; who has it waits for all others, until the last one has it."""
        left = list(order)
        for name in order:
            self.change(name, file)
            left.remove(name)
            if left:
                self.recovers(name, *left)
            self.one_at_a_time()

    def leader_last(self) -> str:
        acts = self.acting().node
        return "".join(name for name in self.names if name != acts) + acts

    def say(self, on: str, *words: str, file: str) -> str:
        """`primacy WORDS` on the machine of this node, which must succeed: what it printed."""
        where = ("--config", str(self.folder / f"{file}.yaml"), "--state-dir", str(self.nodes[on].state))
        return self.call(*words, *where)

    def call(self, *words: str) -> str:
        """`primacy WORDS` beside the files, which must succeed: what it printed."""

        def answered() -> subprocess.CompletedProcess[str] | None:
            """A node that stands still for seconds is not reached meanwhile: it is looked at again."""
            said = subprocess.run(
                [sys.executable, "-m", "primacy.cli.main", *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                cwd=self.folder,
                check=False,
                timeout=120,
            )
            return None if words[0] == "status" and said.returncode == NotReached.exit_code else said

        said: subprocess.CompletedProcess[str] = self.until(answered, f"an answer to {words}")
        nobody = words[0] == "status" and said.returncode == 1  # as far as a node knows that has not recovered yet
        assert said.returncode == 0 or nobody, (words, said.returncode, said.stdout, said.stderr)
        return said.stdout


def terminate(node: Node) -> None:
    node.process.terminate()


def kill_agent(node: Node) -> None:
    crowds.kill_agent(node)


@contextlib.contextmanager
def changing_crowd(folder: Path, names: str = "abc", profile: str = "lan") -> Iterator[ChangingCrowd]:
    folder.mkdir(exist_ok=True)
    made = ChangingCrowd(folder, names, profile)
    try:
        yield made
    finally:
        made.end()
