"""The other nodes, as this one finds them now: who is listed, where each is, how the link to it stands.

And what is said to all of them beside the election: that nothing is left of a leadership.
"""

from __future__ import annotations

from primacy.agent.assemble import addresses, own_address
from primacy.agent.chosen import Chosen
from primacy.election.messages import Release
from primacy.election.model import Register
from primacy.settings.schema import Settings
from primacy.slots.where import names_no_host, reached
from primacy.transport import ReadyDatagram, Transport
from primacy.transport.udp import Address, UdpTransport


class Peers:
    """Those of a fixed list, or of one that grows by joining."""

    def __init__(
        self, settings: Settings, chosen: Chosen, transport: Transport | None, udp: UdpTransport | None
    ) -> None:
        """`udp`: the transport again, if it is told who the other nodes are, and where this one is."""
        self.settings = settings
        self.node = chosen.strategy.seat.node
        self.chosen = chosen
        self.transport = transport
        self.manager = chosen.ranked.manager if chosen.ranked is not None else None
        """Of bully and ring: the transport again."""
        self.udp = udp
        self._seen: Register | None = None
        self._addresses: dict[str, str] = {}
        """Of every member that was named in this boot; those that were removed must be told so (R10)."""

    def names(self) -> tuple[str, ...]:
        """The other nodes, as they are listed now."""
        strategy, ranked = self.chosen.strategy, self.chosen.ranked
        register = self.chosen.can.register()
        if register is not None:
            return tuple(name for name in register.everybody if name != self.node)
        listed = ranked.machine.membership if ranked is not None else strategy.seat.membership
        return tuple(name for name in listed.ids if name != self.node)

    def follow(self) -> None:
        """The members may have changed: from now on those are spoken to, and where they are now.

        So are the nodes that the file names: a node that comes back after a long time is found there (R12). A node
        without memory speaks to the members that it was told of: its leader may not be among those of its file.
        """
        register = self.chosen.can.register_known()
        if register is None or register == self._seen or self.udp is None:
            return
        self._seen = register
        for member in (*register.prior, *register.members):
            self._addresses[member.id] = member.address
        file = {name: node.addr for name, node in self.settings.cluster.manager.nodes.items()}
        found = {**file, **{name: addr for name, addr in self._addresses.items() if addr}}
        self.udp.set_peers({name: Address.of(found[name]) for name in sorted(found) if name != self.node})
        self._take_place(self.udp, register)

    def _take_place(self, udp: UdpTransport, register: Register) -> None:
        """A node that its file does not name is where the members have it, and speaks as one of them from then on."""
        own = own_address(self.settings, self.node, register)
        if self.node in self.settings.cluster.manager.nodes or not own:
            return
        if self.settings.bind:
            udp.asks = False
        else:
            udp.listen_at(Address.of(own))

    def listed(self) -> tuple[tuple[str, str, str], ...]:
        """Id, kind and address of each node where they change; of a fixed list the settings know it."""
        ranked, register = self.chosen.ranked, self.chosen.can.register()
        if register is not None:
            return tuple((member.id, str(member.kind), member.address) for member in register.members)
        if ranked is None:
            return ()
        kinds = {member.id: str(member.kind) for member in ranked.machine.membership.members}
        return tuple((e.node, kinds.get(e.node, "voter"), e.addr) for e in ranked.manager.member_list.listed)

    def asking(self) -> tuple[tuple[str, str], ...]:
        """Nodes that do not belong and ask, each with the host that it asks from."""
        register, guests = self.chosen.can.register(), self.udp.guests.present if self.udp is not None else ()
        return tuple(guest for guest in guests if register is not None and not register.named(guest.node))

    def links(self) -> dict[str, str]:
        return {name: self.transport.links.way(name) for name in self.names()} if self.transport is not None else {}

    def cut(self, node: str, way: str) -> None:
        """Lab mode: cuts or mends a link; an empty name mends all."""
        if self.transport is None:
            return
        if node:
            self.transport.links.cut(node, way)
        else:
            self.transport.links.heal()

    def remove(self, node: str) -> None:
        """Off a list that grows by joining."""
        assert self.manager is not None, "a fixed list, and a node removed from it"
        self.manager.remove(node)

    def ready_release(self, release: Release) -> list[ReadyDatagram]:
        """Sealed for each of them, for the guard to send."""
        return self.transport.ready_release(release) if self.transport is not None else []

    def send_release(self, release: Release) -> None:
        """To all others, at once: nothing of this leadership is left."""
        if self.transport is not None:
            for name in self.names():
                self.transport.send(name, release)

    def clients_find(self, node: str) -> str:
        """Where the slots of another node are: as it said itself, or by the file that all have; empty if unknown."""
        if not node:
            return ""
        if self.manager is not None:
            others = self.manager.member_list.others
            return next((reached(each.data, each.addr) for each in others if each.node == node), "")
        listed = self.settings.cluster.manager.nodes.get(node)
        listens = self.settings.slots.addr
        return reached(listens, listed.addr) if listed is not None and names_no_host(listens) else ""

    def where(self) -> str:
        """Where this node listens, and whom it speaks to, as a sentence."""
        if self.manager is not None:
            from primacy.agent.managed import where

            return where(self.settings, self.manager)
        assert self.udp is not None, "alone, and asked where the others are"
        return addresses(self.node, self.udp)
