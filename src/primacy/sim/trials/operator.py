"""The operator of a simulated cluster: after the calm it reads what each node waits for, and does what stands there.

It knows nothing but the sentences that `primacy status` shows, and which machines are down for good. So a cluster that
does not come back by itself must say what is to be done, or the liveness checks show it:

- "stop one, restart the other": the other machine was stopped at the calm, and this one is restarted.
- "primacy members remove B", "members renew B", "members add B": the leader is asked for that, one node at a time. B is
  removed if its machine is down for good, or if B says itself that its memory is lost, and is then added again. A node
  that lives and remembers is never named.
- "on A: primacy members force --without B": said on A, if all that are named say that their memory is lost; they are
  added again one by one.
- "primacy rejoin --without B": as above; it does not report the new times.
- "on B: stop the agent, remove its file ballot, start it again": so it does.
- "primacy init": said on the first voter that asks for it, if every voter that is up waits for something; "--without B"
  as above.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from primacy.election.inputs import Init, Rejoin
from primacy.election.model import Member, Register
from primacy.election.raft.strategy import RaftStrategy
from primacy.sim.faults import members as fault_members

if TYPE_CHECKING:
    from primacy.sim.trials.trial import Trial

LOOKS_MAX = 12
"""After so many looks the operator gives up, and the cluster is judged as it is."""
RESTART = "restart the other"
INIT = "primacy init"
REJOIN = "primacy rejoin"
TOO_FEW = "an operator: too few remember"
BLANK = ("answers from memory, for its own is lost", "the first start of the cluster", TOO_FEW)
REMOVE = re.compile(r"on ([\w, -]+): stop the agent, remove its file ballot")
WITHOUT = re.compile(r"--without (\S+?)[\s)]")
GONE = re.compile(r"primacy members remove (\S+?)\)")
FORCE = re.compile(r"on (\S+): primacy members force((?: --without [^\s,]+)+)")
RENEW = re.compile(r"primacy members renew (\S+?),")
ADD = re.compile(r"primacy members add (\S+) ")


class Operator:
    """Of one trial. Looks once per hold; each act begins the time anew in which a leader must come."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.looks = 0
        self.acts = 0
        self.renewed: dict[str, Member] = {}
        """Whom it took out of the members, to add them again."""

    def begin(self) -> None:
        self.trial.world.after(self.trial.unit_ms, self._look)

    def _look(self) -> None:
        said = self._said()
        acted = self._restart(said) or self._remove(said) or self._init(said)
        acted = acted or self._rejoin(said) or self._force(said) or self._members(said)
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
        asking = [name for name in voters if INIT in said[name]]
        if not asking or any(not said[name] for name in voters):
            return ""
        node = self.trial.world.nodes[asking[0]]
        without = self._named(said, said[asking[0]])
        self.trial.world.give(node, Init(node.clock.wall_ms(self.trial.world.now), without))
        return "first start said by an operator"

    def _force(self, said: dict[str, str]) -> str:
        """Too few remember: one that does goes on without those that do not (R14)."""
        found = next((found for sentence in said.values() if (found := FORCE.search(sentence))), None)
        if found is None:
            return ""
        without: list[str] = found[2].split()[1::2]
        register = fault_members.register_of(self.trial.faults)
        if register is None or not all(said.get(name, TOO_FEW).startswith(BLANK) for name in without):
            return ""
        self.renewed |= {member.id: member for member in register.members if member.id in without}
        self.trial.faults.acts.force_members(found[1], without)
        return "members forced by an operator"

    def _members(self, said: dict[str, str]) -> str:
        """One node is taken out of the members, or added again."""
        trial = self.trial
        leading = fault_members.leaders(trial.faults)
        register = fault_members.register_of(trial.faults)
        if not leading or register is None or register.goal is not None:
            return ""
        asked = next((asked for name in said if (asked := self._asked(said, said[name], register))), None)
        if asked is None:
            return ""
        rows = [(m.id, str(m.kind), m.priority, m.address) for m in asked]
        for name in leading:
            trial.faults.acts.change_members(name, rows, "first")
        return "members renewed by an operator"

    def _asked(self, said: dict[str, str], sentence: str, register: Register) -> list[Member] | None:
        """The members that a sentence leads to, if the operator can vouch for it."""
        found = GONE.search(sentence) or RENEW.search(sentence)
        if found is not None and (member := register.get(found[1])) is not None:
            if found[1] in said and not said[found[1]].startswith(BLANK):
                return None
            self.renewed[member.id] = member
            return [other for other in register.members if other is not member]
        found = ADD.search(sentence)
        if found is not None and found[1] in self.renewed and register.get(found[1]) is None:
            return [*register.members, self.renewed[found[1]]]
        return None

    def _rejoin(self, said: dict[str, str]) -> str:
        acted = ""
        for name, sentence in said.items():
            without = self._named(said, sentence) if REJOIN in sentence else ()
            if without:
                self.trial.world.give(self.trial.world.nodes[name], Rejoin(without))
                acted = "memory not healed"
        return acted
