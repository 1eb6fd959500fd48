"""The operator of a simulated cluster: after the calm it reads what each node waits for, and does what stands there.

It knows nothing but the sentences that `primacy status` shows, and which machines are down for good. So a cluster that
does not come back by itself must say what is to be done, or the liveness checks show it:

- "stop one, restart the other": the other machine was stopped at the calm, and this one is restarted.
- "primacy rejoin --without B": B is named if its machine is down for good, or if B says itself that its memory is lost.
  A node that lives and remembers is never named.
- "on B: stop the agent, remove its file ballot, start it again": so it does.
- "primacy init": said on the first voter, if every voter that is up says so; "--without B" as above.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primacy.election.inputs import Init, Rejoin
from primacy.election.raft.strategy import RaftStrategy

if TYPE_CHECKING:
    from primacy.sim.trials.trial import Trial

LOOKS_MAX = 6
"""After so many looks the operator gives up, and the cluster is judged as it is."""
RESTART = "restart the other"
INIT = "primacy init"
REJOIN = "primacy rejoin"
BLANK = ("answers from memory, for its own is lost", "the first start of the cluster")
REMOVE = re.compile(r"on ([\w, -]+): stop the agent, remove its file ballot")
WITHOUT = re.compile(r"--without (\S+?)[\s)]")


class Operator:
    """Of one trial. Looks once per hold; each act begins the time anew in which a leader must come."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.looks = 0
        self.acts = 0

    def begin(self) -> None:
        self.trial.world.after(self.trial.unit_ms, self._look)

    def _look(self) -> None:
        said = self._said()
        acted = self._restart(said) or self._remove(said) or self._init(said) or self._rejoin(said)
        self.looks += 1
        if acted:
            self.acts += 1
            rare = self.trial.outcome.rare
            rare[acted] = rare.get(acted, 0) + 1
            self.trial.liveness.begin(self.trial.world.now, self.trial.liveness.core)
        if self.looks < LOOKS_MAX:
            self.begin()

    def _said(self) -> dict[str, str]:
        """What each node that is up waits for."""
        nodes = [self.trial.world.nodes[name] for name in self.trial.faults.names]
        return {
            node.name: node.machine.view(node.local_ms()).waits_for
            for node in nodes
            if isinstance(node.machine, RaftStrategy)
        }

    def _restart(self, said: dict[str, str]) -> str:
        doubled = [name for name, sentence in said.items() if RESTART in sentence]
        for name in doubled:
            node = self.trial.world.nodes[name]
            self.trial.world.crash(node)
            self.trial.world.start(node)
        return "restarted by an operator" if doubled else ""

    def _remove(self, said: dict[str, str]) -> str:
        """Two first starts are in use: the nodes of one give it up. Done for one sentence, then looked at again."""
        found = next((found for sentence in said.values() if (found := REMOVE.search(sentence))), None)
        for name in found[1].split(", ") if found is not None else ():
            node = self.trial.world.nodes[name]
            self.trial.world.crash(node)
            node.disk.ballot = None
            self.trial.world.start(node)
        return "ballot removed by an operator" if found is not None else ""

    def _named(self, said: dict[str, str], sentence: str) -> tuple[str, ...]:
        """Of those that a sentence names, whom the operator can vouch for."""
        named: list[str] = WITHOUT.findall(sentence + " ")
        return tuple(name for name in named if name not in said or said[name].startswith(BLANK))

    def _init(self, said: dict[str, str]) -> str:
        voters = [name for name in self.trial.voters() if name in said]
        if not voters or not all(INIT in said[name] for name in voters):
            return ""
        node = self.trial.world.nodes[voters[0]]
        without = self._named(said, said[voters[0]])
        self.trial.world.give(node, Init(node.clock.wall_ms(self.trial.world.now), without))
        return "first start said by an operator"

    def _rejoin(self, said: dict[str, str]) -> str:
        acted = ""
        for name, sentence in said.items():
            without = self._named(said, sentence) if REJOIN in sentence else ()
            if without:
                self.trial.world.give(self.trial.world.nodes[name], Rejoin(without))
                acted = "memory not healed"
        return acted
