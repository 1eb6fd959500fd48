"""A strategy of one's own: of the nodes that are up, the one with the highest number leads, and every election deals
out other numbers. So many elections on few nodes spread over all of them, where `bully` would give all to one node.

    primacy simulate --strategy examples.rendezvous:Rendezvous --nodes 5
    primacy node start --port 5001 --nodes localhost:5001,localhost:5002 --algorithm examples.rendezvous:Rendezvous
"""

from hashlib import blake2b

from primacy.election.effects import Effect
from primacy.election.guarantees import Guarantees
from primacy.election.own import OwnStrategy


class Rendezvous(OwnStrategy):
    """Each node tells the others at every heartbeat whether it could lead; nobody votes, nothing is remembered."""

    guarantees = Guarantees(
        at_most_one=False,
        one_per_island=True,
        fencing_token=False,
        whole_network="exactly one, soon",
        partition="one per island, healed when the network heals",
        token="none",
        relies_on="timely failure detection",
    )

    def woke(self, now_ms: int) -> list[Effect]:
        self.deadline_ms = now_ms + self.timing.heartbeat_ms
        here = self.tell_all("here", int(self.may_lead(now_ms)))
        if now_ms - self.started_ms < 2 * self.timing.heartbeat_ms:
            return here  # whoever has just come listens first
        able = [name for name in self.alive(now_ms) if self.could_lead(now_ms, name)]
        best = max(able, key=self.number, default="")
        return here + (self.lead(now_ms) if best == self.node else self.follow(best))

    def could_lead(self, now_ms: int, node: str) -> bool:
        if node == self.node:
            return self.may_lead(now_ms)
        return node in self.told and self.told[node].numbers[:1] == (1,)

    def number(self, node: str) -> bytes:
        """The same everywhere: the list's hash has cluster, election and nodes in it."""
        return blake2b(f"{self.seat.membership.hash} {node}".encode()).digest()
