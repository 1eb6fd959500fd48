"""Which machine a simulated cache peer has, by mode. The real ones; nothing here decides anything."""

from __future__ import annotations

from random import Random

from primacy.cache.document import DocumentMachine
from primacy.cache.machine import Machine
from primacy.cache.model import CacheSettings, Mode, PeerAddress
from primacy.cache.own import OwnMachine
from primacy.sim.cache.peer import SimPeer
from primacy.sim.cache.world import Build


def builder(settings: CacheSettings) -> Build:
    """Builds machines with these settings; each peer's storage says whether it is durable."""

    def build(peer: SimPeer, peers: tuple[PeerAddress, ...], chance: Random) -> Machine:
        mine = settings._replace(durable=peer.storage.durable)
        if mine.mode is Mode.OWN:
            return OwnMachine(peer.url, peers, mine, chance)
        return DocumentMachine(peer.url, peers, mine, chance)

    return build
