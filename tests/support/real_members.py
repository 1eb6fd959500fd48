"""Real nodes whose members change while the command runs: nodes that come with files of their own, and what is said.

A change is asked for by the real command, on any node, or by the control API where a test needs the moment. What came
of it is read from the registers of the nodes, who ran from the stamps. With `steps_held` a change stands still at a
step, for as long as a file names that step, so that a test can break something right there.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from primacy.errors import PrimacyError
from tests.support import stamp
from tests.support.real_nodes import FRESH_NS, Crowd, Node
from tests.support.safety_checks import safe

CHANGE_MS = 60_000
"""How long a command waits for its change: only a hang reaches it."""


NOBODY = "knows of nobody who does"
"""On a busy machine an election may be under way: then it is asked again."""


class MembersCrowd(Crowd):
    """A crowd whose members change. The file `primacy.yaml` names the first ones, and is never written again."""

    def come(self, *names: str, first_start: str = "") -> None:
        """New nodes, each started with the file of the others and its own line in it."""
        for name in names:
            self.write_file(name, "".join(sorted({*self.names, name})), first_start)
            self.start(name, file=f"{name}.yaml")

    def write_file(self, owner: str, names: str, first_start: str = "") -> Path:
        """A file of this node's own, which names these; `list` gives the new ones their ports."""
        listed, first = self.names, self.first
        self.first = first_start or first
        kept = (self.folder / "primacy.yaml").read_text()
        try:
            self.list(names)
            return self.file(f"{owner}.yaml")
        finally:
            self.first = first
            self.names = listed
            (self.folder / "primacy.yaml").write_text(kept)

    def addr(self, name: str) -> str:
        return f"127.0.0.1:{self.listed[name]}"

    # --- what is said -------------------------------------------------------------------------------------------------

    def say(self, on: str, *words: str, file: str = "primacy.yaml") -> subprocess.CompletedProcess[str]:
        """`primacy WORDS`, on the machine of this node."""
        verb = [each for each in words if not each.startswith("-")][:2]
        within = ["--within", str(CHANGE_MS)] if verb[0] == "members" and len(verb) > 1 and waits(words) else []
        call = [sys.executable, "-m", "primacy.cli.main", *words, "--config", str(self.folder / file)]
        call += ["--state-dir", str(self.nodes[on].state), *within]

        def answer() -> subprocess.CompletedProcess[str] | None:
            said = subprocess.run(
                call,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                cwd=self.folder,
                check=False,
                timeout=120,
            )
            return None if NOBODY in said.stderr else said

        found: subprocess.CompletedProcess[str] = self.until(answer, f"a leader that is told {words}")
        return found

    def done(self, on: str, *words: str, file: str = "primacy.yaml") -> str:
        """The same, which must succeed: what it printed."""
        said = self.say(on, *words, file=file)
        assert said.returncode == 0, (words, said.returncode, said.stdout, said.stderr)
        return said.stdout

    def refused(self, on: str, *words: str, file: str = "primacy.yaml") -> str:
        """The same, which must be refused: one sentence, and no traceback."""
        said = self.say(on, *words, file=file)
        assert said.returncode in (1, 2), (words, said.returncode, said.stdout, said.stderr)
        assert "Traceback" not in said.stderr
        return said.stderr

    def ask_for(self, verb: str, **body: Any) -> None:
        """By the API of a node that leads, until one takes it: on a busy machine the leader may change meanwhile."""

        def say() -> bool:
            for node in self.up():
                with contextlib.suppress(PrimacyError):
                    if node.ask("/v1/members", {"verb": verb, "by": "test", **body}) is not None:
                        return True
            return False

        self.until(say, f"somebody that takes {verb} {body}")

    # --- what is seen -------------------------------------------------------------------------------------------------

    def up(self) -> list[Node]:
        return [node for _, node in sorted(self.nodes.items()) if node.is_up]

    def members(self, on: str) -> dict[str, Any]:
        found: dict[str, Any] = self.until(lambda: self.nodes[on].ask("/v1/members"), f"the members of {on}")
        return found

    def kinds(self, on: str) -> dict[str, str]:
        return {row["node"]: row["kind"] for row in self.members(on)["members"]}

    def leader(self) -> Node:
        """One that leads, by its own word."""

        def look() -> Node | None:
            return next((node for node in self.up() if (node.ask() or {}).get("role") == "leader"), None)

        found: Node = self.until(look, "a leader")
        return found

    def hand_over(self) -> stamp.Stamp:
        """Whoever leads is told to step down, and another token's command runs: the old one. On a machine that stalls
        the request may come to one that leads no more, which refuses it; then it is said to the next. Never an overlap.
        """
        old: stamp.Stamp = self.until(self._told_to_step_down, "a leader that steps down")
        self.acting(old.token)
        time.sleep(FRESH_NS / 1e9)  # so that an old one that goes on has stamped beside it
        self.one_at_a_time()
        return old

    def agreed(self, names: str, **kinds: str) -> dict[str, Any]:
        """All of these have the same register: these members, voters unless said otherwise, and nothing on its way."""
        wanted = {**dict.fromkeys(names, "voter"), **kinds}

        def look() -> dict[str, Any] | None:
            said = [self.nodes[name].ask("/v1/members") for name in names if self.nodes[name].is_up]
            if not said or not all(each and each["version"] for each in said):
                return None
            ids = {(each["term"], each["version"]) for each in said}
            same = all({row["node"]: row["kind"] for row in each["members"]} == wanted for each in said)
            quiet = all(each["goal"] is None and len(each["needs"]) == 1 for each in said)
            return said[0] if len(ids) == 1 and same and quiet else None

        self.names = names
        found: dict[str, Any] = self.until(look, f"the members {wanted} at all of {names}")
        return found

    def settled(self) -> tuple[set[str], dict[str, Any]]:
        """Nothing is on its way any more, and all voters that are up have one register: its voters, and it."""

        def look() -> dict[str, Any] | None:
            said = [each for node in self.up() if (each := node.ask("/v1/members")) and each["version"]]
            if not said:
                return None
            newest = max(said, key=lambda each: (each["term"], each["version"]))
            here = {row["node"] for row in newest["members"]}
            its = [each for each in said if each["node"] in here]
            same = {(each["term"], each["version"]) for each in its} == {(newest["term"], newest["version"])}
            return newest if same and newest["goal"] is None and len(newest["needs"]) == 1 else None

        found: dict[str, Any] = self.until(look, "one register, and nothing on its way")
        return {row["node"] for row in found["members"] if row["kind"] == "voter"}, found

    def runs_nothing_for(self, out: str, ms: int) -> None:
        """For so long, this node runs nothing."""
        since_ns = stamp.now_ns()
        time.sleep(ms / 1_000)
        ran = [one for one in self.stamped() if one.node == out and one.last_ns > since_ns]
        safe(not ran, f"{out} runs a command: {ran}")

    def starts(self) -> list[stamp.Stamp]:
        """Every start of the command, in order."""
        return stamp.starts(self.stamped())

    def gaps_ms(self) -> list[float]:
        """How long no command lived between one start and the next."""
        found = self.starts()
        return [(new.first_ns - old.last_ns) / 1e6 for old, new in pairwise(found)]


def waits(words: Sequence[str]) -> bool:
    return "--no-wait" not in words and not {"export", "force", "--within"} & set(words)


@contextlib.contextmanager
def members_crowd(folder: Path, names: str = "abc", profile: str = "lab", **more: Any) -> Iterator[MembersCrowd]:
    folder.mkdir(exist_ok=True)
    made = MembersCrowd(folder, names, profile, **more)
    try:
        yield made
    finally:
        made.end()


def side_by_side(stories: Sequence[Callable[[], None]], at_once: int) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(story) for story in stories]:
            done.result()


HELD = "held"
"""The file that names the step at which a change stands still."""


def steps_held(folder: Path) -> str:
    """Words for `plant`: a leader takes no step beyond the one that the file names.

    `asked`: nothing is written yet. `observer`: the new nodes are observers. `joint`: both halves count. `written`: the
    last register is on the leader's disk, and told to nobody; that leader steps down soon, for nobody acks. `told`: it
    is proved, and who was removed is not told.
    """
    return f"""
import pathlib, sys
from primacy.election.raft.change import Changing
from primacy.election.raft.state import RaftState

FILE = pathlib.Path({str(folder / HELD)!r})
approach, ready, finish = Changing._approach, Changing.is_ready, Changing._finish
tell, tell_removed = RaftState.tell_members, Changing._tell_removed

def held(step):
    return FILE.exists() and FILE.read_text() == step

def is_last(register):
    return register is not None and not register.prior and register.goal is None

Changing._approach = lambda self, *given: [] if held("asked") else approach(self, *given)
Changing.is_ready = lambda self, *given: not held("observer") and ready(self, *given)
Changing._finish = lambda self, *given: [] if held("joint") else finish(self, *given)
Changing._tell_removed = lambda self, *given: [] if held("told") else tell_removed(self, *given)
RaftState.tell_members = lambda self, *given: (
    [] if held("written") and is_last(self.register) else tell(self, *given)
)
"""


def hold(crowd: MembersCrowd, step: str) -> None:
    """From now on; an empty step lets all go on."""
    file = crowd.folder / HELD
    file.with_suffix(".new").write_text(step)
    file.with_suffix(".new").rename(file)
