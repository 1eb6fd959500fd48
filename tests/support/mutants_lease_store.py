"""Planted defects of the store: each takes one rule of section L out of the simulated one (`mutants_lease.py`)."""

from __future__ import annotations

from primacy.election.store import Genesis
from primacy.sim.world.store import SimStore


class NothingCompared(SimStore):
    """L1: a take compares nothing of the row."""

    compared = ()


class TokenAlone(SimStore):
    """L1: a take compares the token alone."""

    compared = ("token",)


class RevivedByHand(SimStore):
    """L2: a renewal matches a row that does not vouch."""

    def _vouched(self, row):
        return True


class ReleasedRenewed(SimStore):
    """L2: a renewal matches a row that was released."""

    def _may_renew(self, row, renew):
        return super()._may_renew(row._replace(released=False), renew)


class WithoutIdentity(SimStore):
    """L3: the take does not compare the identity."""

    def _take_same_server(self, server):
        return True


class WithoutMark(SimStore):
    """L5: the store has no mark, though dumps are read into it."""

    def _mark(self, name, at):
        return ""

    def _vouches(self, stored, name, at, version):
        return True


class ReleasedUncompared(SimStore):
    """L3: the take does not compare whether the row is released."""

    compared = tuple(name for name in SimStore.compared if name != "released")


class AnyInsert(SimStore):
    """L9: an insert does not compare the genesis row."""

    def _is_fresh(self, take):
        return True


class TakeOverAnyLink(SimStore):
    """L5: a take is done over any connection."""

    def _same_link(self, request, link):
        return True


class ReleaseAnywhere(SimStore):
    """L4: a release is written under another identity than the row."""

    def _written_here(self, row):
        return True


def nameless(*reasons: str) -> type[SimStore]:
    """L5: an identity that does not change at these."""

    class Nameless(SimStore):
        def _renames(self, why):
            return why not in reasons

    return Nameless


class AnyIndex(SimStore):
    """L5: etcd: rows vouch whatever raft index their writer saw."""

    def _vouches(self, stored, name, at, version):
        return True

    def _is_young(self, entry):
        return False


class NamesUncounted(SimStore):
    """L9: an insert does not compare the count of rows with the names."""

    def _is_settled(self):
        genesis = self.genesis
        return genesis.vouches and genesis.settled == self.server


class BornSettled(SimStore):
    """L9: a table that is made anew is settled."""

    def make_anew(self):
        super().make_anew()
        self._write_genesis(Genesis(settled=self.server, wait_max_ms=self.table.genesis.wait_max_ms))


class FirstVersionKnown(SimStore):
    """L9: a genesis row that is made always has the same version."""

    def _first_version(self):
        return 0


class PruneAnything(SimStore):
    """L10: the removal of a row compares nothing."""

    def _may_prune(self, row, prune):
        return True


class NoFloor(SimStore):
    """L10: the floor is not raised."""

    def _raised(self, floor, token):
        return floor

    def _above_floor(self, token):
        return True


# --- Redis ------------------------------------------------------------------------------------------------------------


def redis_named_by(*parts: str) -> type[SimStore]:
    """L5: an identity that is made of these alone."""

    class Named(SimStore):
        named_by = parts

    return Named


class FlushedSettled(SimStore):
    """L9: the genesis row that is made after FLUSHALL is settled."""

    def lose_genesis(self):
        super().lose_genesis()
        self._write_genesis(self.table.genesis._replace(settled=self.server, names=len(self.table.entries)))


# --- Kubernetes -------------------------------------------------------------------------------------------------------


class TakeWithoutUid(SimStore):
    """L5: a take names no uid: a PUT of an object that is gone makes it anew."""

    def _take(self, row, take):
        if row is None and take.seen is not None and self._take_same_server(take.server):
            return self._write(take.name, take.row._replace(released=False, successor=""))
        return super()._take(row, take)


class TakeWithoutVersion(SimStore):
    """L5: a take names the uid alone: whatever stands in that object is written over."""

    def _same_row(self, row, seen):
        return row.mark.partition(".")[0] == seen.mark.partition(".")[0]


class BelievedAtOnce(SimStore):
    """L4: it does not say that it has to be watched."""

    def perform(self, request, link=0):
        return super().perform(request, link)._replace(watched=False)
