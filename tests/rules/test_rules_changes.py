"""M1 over strategies and stores: what a node remembers of both, and what it waits for on a lease and in raft."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from primacy.election.effects import Effect, Persist, Send
from primacy.election.events import Code
from primacy.election.inputs import DeadlinePassed, Init, PersistFailed, Received, Rejoin, Started
from primacy.election.lease.changed import Changed
from primacy.election.lease.strategy import LeaseOptions, LeaseStrategy
from primacy.election.messages import FailsafeAck, FailsafeHeartbeat, Origin, Query, Report
from primacy.election.model import CLOSED, Ballot, ListRecord, Membership, Role, Seat
from primacy.election.raft.register import first_register
from primacy.election.raft.strategy import RaftOptions, RaftStrategy
from primacy.election.remembered import LEFT_MAX, LOST, UNREADABLE, Kept, for_lease, for_raft, with_left
from primacy.election.store import Take, list_hash
from primacy.settings.timing import stretched
from primacy.sim.world.store import SimStore
from tests.support.lease_harness import LAN, TRIO, WALL, Harness
from tests.support.members_harness import TIMES, Cluster, members
from tests.support.mutants_changes import AnyEcho, NotToldReplaced, RaftNotToldReplaced, on_lease
from tests.support.raft_harness import BASE, Bench, H, P

pytestmark = pytest.mark.coverage

RAFT = ListRecord("raft", TRIO, confirmed=True)
ONE = ListRecord("one", TRIO, confirmed=True, elsewhere=True)
TWO = ListRecord("two", TRIO, confirmed=False, elsewhere=True)
NOBODY = ListRecord("one", (), confirmed=True, elsewhere=True)
VOTED = Ballot(BASE, 5, "a", 3_000, BASE + 5, 3, (RAFT,), register=first_register(members("a b c")))
D = stretched(LAN.hold_ms, LAN.drift_ppm) + 1


# --- what is on the disk ----------------------------------------------------------------------------------------------


def test_M1_what_a_node_ran_under_is_taken_over_by_the_other_strategy_and_struck_there() -> None:
    on_lease = for_lease(Kept(VOTED, None), ONE._replace(confirmed=False), speaks=True)
    assert on_lease.tokens is not None
    assert on_lease.tokens.lists == (RAFT, ONE._replace(confirmed=False))
    assert (on_lease.tokens.token_max, on_lease.tokens.hold_max_ms) == (BASE + 5, 3_000)
    assert on_lease.ballot == VOTED._replace(lists=())
    back = for_raft(on_lease)
    assert back.ballot == VOTED._replace(lists=(RAFT, ONE._replace(confirmed=False)))
    assert back.tokens == on_lease.tokens._replace(lists=())


def test_M1_a_crash_between_the_two_saves_changes_nothing() -> None:
    """The file of the strategy that starts is saved first: whatever the other one still has is found again there."""
    own = ONE._replace(confirmed=False)
    done = for_lease(Kept(VOTED, None), own, speaks=True)
    assert for_lease(Kept(VOTED, done.tokens), own, speaks=True) == done
    assert for_lease(done, own, speaks=True) == done
    back = for_raft(done)
    assert for_raft(Kept(back.ballot, done.tokens)) == back
    assert for_raft(back) == back


def test_M1_the_voters_of_the_register_are_asked_of_both_halves_and_not_those_of_the_file() -> None:
    register = first_register(members("a b d"))._replace(prior=members("a b c"))
    kept = for_lease(Kept(VOTED._replace(register=register), None), ONE, speaks=True)
    assert kept.tokens is not None
    assert kept.tokens.lists[0].voters == ("a", "b", "c", "d")


def test_M1_a_ballot_from_before_there_were_registers_keeps_its_voters() -> None:
    kept = for_lease(Kept(VOTED._replace(register=None), None), ONE, speaks=True)
    assert kept.ballot is not None
    assert kept.ballot.register == first_register(members("a b c"))


@pytest.mark.parametrize("speaks", [True, False])
def test_M1_a_node_without_any_memory_confirms_its_lease_at_once_only_if_it_speaks_to_nobody(speaks: bool) -> None:
    kept = for_lease(Kept(None, None), TWO, speaks=speaks)
    assert kept.tokens is not None
    assert kept.tokens.lists == (TWO._replace(confirmed=not speaks),)
    tokens = Ballot(0, 7, "", 3_000, 7, 0, ())  # of the version before
    upgraded = for_lease(Kept(None, tokens), TWO, speaks=speaks)
    assert upgraded.tokens is not None
    assert upgraded.tokens.lists == (TWO._replace(confirmed=True),)


def test_M1_a_ballot_that_cannot_be_read_leaves_it_to_an_operator_once() -> None:
    kept = for_lease(Kept(None, None), TWO, speaks=True, lost=True)
    assert kept.ballot == UNREADABLE
    assert kept.tokens is not None
    assert kept.tokens.lists == (LOST, TWO)
    struck = kept.tokens._replace(lists=(TWO._replace(confirmed=True),))
    again = for_lease(Kept(UNREADABLE, struck), TWO, speaks=True)
    assert again.tokens is not None
    assert again.tokens.lists == struck.lists


# --- on a lease -------------------------------------------------------------------------------------------------------


class OnLease(Harness):
    """A node on the lease `two` that ran under `lists` before; what it sends and saves is kept."""

    def __init__(self, *lists: ListRecord, machine: type[LeaseStrategy] = LeaseStrategy, **more: Any) -> None:
        super().__init__(store=more.pop("store", None))
        options = LeaseOptions("job", config="two", lists=(*lists, more.pop("own", TWO)), **more)
        self.machine = machine(Seat("a", 7, Membership.of(TRIO), Random(1)), LAN, options)
        self.tell(Started(WALL))

    def report(self, node: str, config: str = "two", echo: int = 7, **more: Any) -> list[Effect]:
        fields: dict[str, Any] = {"term": 0, "hold_max_ms": LAN.hold_ms, "token_max": 0, **more}
        return self.tell(Received(Report(Origin(node, boot=9, config=config), echo, True, True, **fields)))

    def wait(self, ms: int) -> None:
        """Everything that is asked of the store is answered at once."""
        end = self.now + ms
        while True:
            if self.asked:
                self.answer()
            elif self.machine.deadline_ms is not None and self.machine.deadline_ms <= end:
                self.wake()
            else:
                break
        self.now = end

    @property
    def takes(self) -> bool:
        return any(isinstance(e.request, Take) for e in self.asked) or self.machine.role is Role.LEADER

    @property
    def saved(self) -> tuple[ListRecord, ...]:
        return next(e.ballot.lists for e in reversed(self.log) if isinstance(e, Persist))

    def asks(self) -> set[str]:
        return {e.to for e in self.log if isinstance(e, Send) and isinstance(e.message, Query)}


@pytest.mark.parametrize("before", [RAFT, ONE])
def test_M1_nothing_is_taken_before_all_have_reported_and_the_longest_hold_is_over(before: ListRecord) -> None:
    node = OnLease(before, token_max=WALL)  # above all that the new store knows: its row is watched meanwhile
    node.wait(20_000)
    assert node.asks() == {"b", "c"}
    assert (node.machine.role, node.takes) == (Role.RECOVERING, False)
    assert "to be reported by b, c (gone for good: primacy rejoin --without b --without c)" in node.waits()
    node.report("b")
    node.wait(20_000)
    assert not node.takes, "c may still hold"
    node.report("c", token_max=WALL + 10**9)
    reported = node.now
    assert "until any earlier holder's work is surely over" in node.waits()
    node.wait(D - 1)
    assert (node.machine.role, node.takes) == (Role.RECOVERING, False)
    take = node.until(Take)
    assert take.row.token > WALL + 10**9, "above every token that anybody knows (T2)"
    assert node.saved == (TWO._replace(confirmed=True),)
    assert node.now - reported < D + 100
    assert Code.RECOVERED in node.codes()


def test_M1_the_longest_hold_of_before_is_waited_out() -> None:
    node = OnLease(RAFT, hold_max_ms=9_000)
    node.report("b", hold_max_ms=10_000)
    node.report("c")
    node.wait(stretched(10_000, LAN.drift_ppm))
    assert not node.takes
    node.wait(60)
    assert node.takes


@pytest.mark.parametrize(("config", "echo"), [("raft", 7), ("one", 7), ("two", 6)])
def test_M1_only_the_new_configuration_counts_and_only_for_this_boot(config: str, echo: int) -> None:
    node = OnLease(RAFT)
    for name in "bc":
        node.report(name, config, echo)
    node.wait(20_000)
    assert not node.takes
    assert node.machine.role is Role.RECOVERING


def test_M1_what_it_runs_under_is_told_to_anybody_once_it_is_on_the_disk() -> None:
    node = OnLease(RAFT, hold_max_ms=9_000)
    asked = Received(Query(Origin("b", boot=5, config="raft", base=BASE), True))
    (said,) = [e.message for e in node.tell(asked) if isinstance(e, Send) and isinstance(e.message, Report)]
    assert (said.origin.config, said.echo, said.hold_max_ms) == ("two", 5, 9_000)
    node.tell(PersistFailed("full"))
    assert not any(isinstance(e, Send) and isinstance(e.message, Report) for e in node.tell(asked))


def test_M1_a_crash_before_the_end_begins_the_questions_anew() -> None:
    """Until the hold of before is over, the disk has both configurations."""
    node = OnLease(RAFT)
    node.report("b")
    node.report("c")
    node.wait(D - 10)
    assert not any(isinstance(e, Persist) and RAFT not in e.ballot.lists for e in node.log)


def test_M1_a_disk_that_does_not_take_the_end_keeps_the_node_from_the_lease() -> None:
    node = OnLease(RAFT)
    node.report("b")
    node.report("c")
    node.now += D
    effects = node.tell(DeadlinePassed())
    assert any(isinstance(e, Persist) for e in effects)
    node.tell(PersistFailed("full"))
    assert not node.takes
    assert "its disk" in node.waits()


def test_M1_an_operator_names_who_is_gone_and_vouches_for_whom_nobody_lists() -> None:
    node = OnLease(NOBODY, own=TWO._replace(voters=()))
    node.wait(20_000)
    assert not node.takes
    assert "primacy rejoin --others-stopped" in node.waits()
    node.tell(Rejoin((), others_stopped=True))
    node.wait(D + 60)
    assert node.takes
    named = OnLease(RAFT)
    named.report("b")
    named.tell(Rejoin(("c",)))
    named.wait(D - 60)
    assert not named.takes, "its work may live as long as any"
    named.wait(120)
    assert named.takes


def test_M1_no_failsafe_heartbeat_is_acked_meanwhile() -> None:
    for lists in ((RAFT,), ()):
        node = OnLease(*lists, own=TWO._replace(confirmed=not lists), failsafe=TRIO)
        heartbeat = FailsafeHeartbeat(Origin("b", boot=9, config=list_hash(TRIO)), WALL, 1)
        acks = [e for e in node.tell(Received(heartbeat)) if isinstance(e, Send) and isinstance(e.message, FailsafeAck)]
        assert bool(acks) == (not lists)


def test_M1_without_memory_it_listens_for_one_promise_and_waits_with_who_tells_of_another_one() -> None:
    silent = OnLease(store=SimStore(settled=True))
    silent.wait(LAN.promise_ms - 1)
    assert not silent.takes
    silent.wait(60)
    assert silent.takes
    assert silent.saved == (TWO._replace(confirmed=True),)
    together = OnLease(store=SimStore(settled=True))
    together.report("b")
    together.report("c")
    together.wait(60)
    assert together.takes, "all have the same file"
    warned = OnLease(store=SimStore(settled=True))
    warned.report("b", "raft")
    assert warned.saved == (ListRecord("raft", TRIO, confirmed=False, elsewhere=True), TWO)
    warned.wait(20_000)
    assert (warned.machine.role, warned.takes) == (Role.RECOVERING, False)


def returns(machine: type[LeaseStrategy] = LeaseStrategy, **more: Any) -> OnLease:
    """It ran on the lease `two` before, was away, and is started with the same file again."""
    return OnLease(own=TWO._replace(confirmed=True), store=SimStore(settled=True), machine=machine, **more)


LEFT = (("one", ()), ("two", ()))


@pytest.mark.parametrize("machine", [LeaseStrategy, on_lease(NotToldReplaced)])
def test_M1_who_returns_with_a_file_that_was_replaced_meanwhile_is_told_and_takes_no_part(
    machine: type[LeaseStrategy],
) -> None:
    node = returns(machine)
    assert node.asks() == {"b", "c"}
    node.report("b", "three", confirmed=LEFT)
    node.wait(20_000)
    if machine is not LeaseStrategy:
        assert node.takes, "taken out"
        return
    assert (node.machine.role, node.takes) == (Role.RECOVERING, False)
    assert node.waits() == "an operator: its file was replaced, as b said; start it with the file that they have"
    told = ListRecord("three", TRIO, confirmed=False, elsewhere=True)
    assert node.saved == (told, TWO._replace(confirmed=True)), "a restart with the old file changes nothing"
    again = OnLease(*node.saved[:1], own=node.saved[1])
    again.wait(20_000)
    assert (again.machine.role, again.takes) == (Role.RECOVERING, False)
    disk = Kept(None, Ballot(0, 7, "", 3_000, 7, 0, node.saved))
    mended = for_lease(disk, told._replace(confirmed=False), speaks=True)
    assert mended.tokens is not None
    assert mended.tokens.lists == (TWO._replace(confirmed=True), told), "with the new one it waits as anybody does"
    for name in "bc":
        node.report(name)
    node.wait(D + 60)
    assert node.takes, "or all others were given the old one again"


def test_M1_who_returns_waits_two_heartbeats_for_the_silent_and_for_nobody_else() -> None:
    silent = returns()
    silent.wait(2 * LAN.heartbeat_ms - 1)
    assert not silent.takes
    silent.wait(60)
    assert silent.takes
    together = returns()
    for name in "bc":
        together.report(name)
    together.wait(30)
    assert together.takes
    assert Code.RECOVERED not in together.codes()
    alone = returns(speaks=False)
    alone.wait(30)
    assert alone.takes, "it can ask nobody"


@pytest.mark.parametrize(("config", "echo", "left"), [("three", 7, ()), ("three", 6, LEFT), ("three", 7, LEFT[:1])])
def test_M1_another_file_that_has_not_replaced_its_own_keeps_nobody_who_returns(
    config: str, echo: int, left: tuple[Any, ...]
) -> None:
    """Others may be about to change theirs: they wait for this node, and it goes on."""
    node = returns()
    for name in "bc":
        node.report(name, config, echo, confirmed=left)
    node.wait(2 * LAN.heartbeat_ms + 60)
    assert node.takes


def test_M1_what_a_node_has_left_is_remembered_told_and_forgotten_when_it_returns_to_it() -> None:
    node = OnLease(RAFT, ONE, left=("two", "zero"))
    for name in "bc":
        node.report(name)
    node.wait(D + 60)
    left = ("zero", "raft", "one")
    assert next(e.ballot.left for e in reversed(node.log) if isinstance(e, Persist)) == left
    said = node.tell(Received(Query(Origin("b", boot=5, config="raft"), True)))
    (report,) = [e.message for e in said if isinstance(e, Send) and isinstance(e.message, Report)]
    assert [config for config in ("zero", "raft", "one", "two", "") if report.has_left(config)] == list(left)
    tokens = Ballot(0, 7, "", 3_000, 7, 0, (TWO._replace(confirmed=True),), left=left)
    back = for_raft(Kept(VOTED._replace(lists=()), tokens))
    assert back.ballot is not None
    assert back.ballot.left == left
    lease = for_lease(back, ONE, speaks=True)
    assert lease.tokens is not None
    assert lease.tokens.left == left
    assert len(with_left(tuple("abcdefgh"), ("i", "a"))) == LEFT_MAX


@pytest.mark.parametrize("changed", [Changed, AnyEcho])
def test_M1_an_answer_to_an_earlier_start_ends_nothing(changed: type[Changed]) -> None:
    node = OnLease(RAFT, machine=on_lease(changed))
    for name in "bc":
        node.report(name, echo=6)
    node.wait(20_000)
    assert node.takes == (changed is AnyEcho)


# --- in raft ----------------------------------------------------------------------------------------------------------


def test_M1_raft_waits_for_the_nodes_of_the_lease_as_well_as_for_its_voters() -> None:
    cluster = Cluster("a b c")
    a = cluster["a"]
    assert a.disk is not None
    lease = ListRecord("lease", ("a", "b", "c", "d"), confirmed=True, elsewhere=True)
    a.disk = a.disk._replace(lists=(*a.disk.lists, lease), hold_max_ms=10 * H)
    a.start()
    assert a.m.muted == "other-list"
    assert "its new strategy to be reported by b, c, d" in a.m.view(a.now).waits_for

    def say(name: str, **more: Any) -> None:
        fields = {"memory": True, "used": True, "term": 4, "hold_max_ms": H, "token_max": BASE + 4, **more}
        base = BASE if fields["memory"] else 0
        a.give(Received(Report(Origin(name, 1, 7, more.pop("config", TIMES), base), a.m.seat.boot, **fields)))

    say("b", token_max=BASE + 5_000_000)
    say("c")
    assert a.m.muted, "d may hold the lease"
    say("d", memory=False, term=0)
    assert not a.m.muted
    assert (a.disk.term, a.disk.voted_for, a.disk.token_max) == (4, CLOSED, BASE + 5_000_000)
    assert a.disk.hold_max_ms == 10 * H


def test_M1_a_report_of_a_lease_is_none_of_raft() -> None:
    cluster = Cluster("a b c")
    a = cluster["a"]
    assert a.disk is not None
    a.disk = a.disk._replace(lists=(*a.disk.lists, ONE))
    a.start()
    for name in "bc":
        a.give(Received(Report(Origin(name, 0, 7, "one", 0), a.m.seat.boot, True, True, 0, H, BASE)))
    assert a.m.muted


def replaced(a: Any, name: str = "b", **more: Any) -> None:
    """This node runs on a lease now, and has left raft."""
    fields = {"memory": True, "used": True, "term": 0, "hold_max_ms": H, "token_max": BASE + 9, **more}
    a.give(Received(Report(Origin(name, 0, 7, "lease", 0), a.m.seat.boot, confirmed=((TIMES, ()),), **fields)))


@pytest.mark.parametrize("machine", [RaftStrategy, RaftNotToldReplaced])
def test_M1_a_voter_that_returns_after_its_strategy_was_replaced_neither_votes_nor_campaigns(
    machine: type[RaftStrategy],
) -> None:
    cluster = Cluster("a b c", machines={"a": machine})
    a = cluster["a"]
    a.start()
    replaced(a)
    if machine is not RaftStrategy:
        assert not a.m.muted, "taken out"
        return
    assert a.m.muted == "other-list"
    assert a.m.view(a.now).waits_for.startswith("an operator: its file was replaced, as b said;")
    assert a.disk is not None
    assert [record.hash for record in a.disk.lists] == [TIMES, "lease"]
    a.start()
    assert a.m.muted == "other-list", "a restart with the old file changes nothing"


def test_M1_who_has_begun_to_promise_is_not_told_any_more() -> None:
    """It may have voted and acked since: nothing of that can be taken back by an answer that comes late."""
    cluster = Cluster("a b c")
    a = cluster["a"]
    a.start()
    a.now += P
    replaced(a)
    assert not a.m.muted


def test_M1_raft_remembers_and_tells_what_it_has_left() -> None:
    cluster = Cluster("a b c")
    a = cluster["a"]
    assert a.disk is not None
    a.disk = a.disk._replace(lists=(*a.disk.lists, ONE), left=("zero", TIMES))
    a.start()
    for name in "bc":
        report = Report(Origin(name, 1, 7, TIMES, BASE), a.m.seat.boot, True, True, 4, H, BASE + 4)
        a.give(Received(report))
    assert not a.m.muted
    assert a.disk.left == ("zero", "one")
    a.give(Received(Query(Origin("b", 1, 7, "one", BASE), True)))
    (said,) = [e.message for e in a.last if isinstance(e, Send) and isinstance(e.message, Report)]
    assert [said.has_left(config) for config in ("zero", "one", TIMES)] == [True, True, False]


def on_first_start(*leases: ListRecord, hold_ms: int = H) -> Bench:
    mark = Ballot(0, 0, "", hold_ms, 0, 0, leases, void=True)
    return Bench("a b c", mark, options=RaftOptions(auto=True, token_max=BASE + 77))


def test_M1_a_first_start_after_a_lease_needs_all_of_its_nodes() -> None:
    bench = on_first_start(ListRecord("lease", ("a", "b", "c", "d"), confirmed=True, elsewhere=True))
    for name in "bc":
        bench.report(name, memory=False)
    bench.wait(3 * P)
    assert bench.m.ballot is None
    assert "not heard yet: d" in bench.m.view(bench.now).waits_for
    bench.report("d", memory=False)
    bench.wait(2 * bench.m.state.timing.heartbeat_ms)
    assert bench.m.ballot is not None
    assert bench.m.ballot.base > BASE + 77


@pytest.mark.parametrize(("hold_ms", "told_ms"), list(product((H, 8 * H), (H, 8 * H))))
def test_M1_a_first_start_waits_out_a_longer_hold_of_the_lease(hold_ms: int, told_ms: int) -> None:
    bench = on_first_start(ONE, hold_ms=hold_ms)
    bench.wait(2 * P)
    for name in "bc":
        bench.report(name, memory=False, hold_max_ms=told_ms)
    longest = max(hold_ms, told_ms)
    bench.wait(longest // 2)
    assert (bench.m.ballot is not None) == (longest == H)
    bench.wait(longest)
    assert bench.m.ballot is not None


def test_M1_after_a_lease_without_a_list_only_an_operator_begins_a_cluster() -> None:
    bench = on_first_start(NOBODY)
    for name in "bc":
        bench.report(name, memory=False)
    bench.wait(10 * P)
    assert bench.m.ballot is None
    assert (
        "primacy init, once, on one node, when all that used its lease of before" in bench.m.view(bench.now).waits_for
    )
    bench.hear(Query(Origin("b", 0, 7, "list-1", 0), False))
    assert bench.sent(Report)[0].used, "nobody else begins by itself either"
    bench.give(Init(1_500_000))
    for name in "bc":
        bench.report(name, memory=False)
    assert bench.m.ballot is not None


@pytest.mark.parametrize("nodes", [("a", "d"), TRIO])
def test_M1_what_is_marked_of_a_lease_outlives_the_next_mark(nodes: tuple[str, ...]) -> None:
    """Before it says that it has no memory, a node writes down under which list; the lease stays in it.

    Should it return to the lease, it knows that a cluster may have begun on what it said. Found by trial 2592.
    """
    bench = on_first_start(ListRecord("lease", nodes, confirmed=True, elsewhere=True))
    bench.hear(Query(Origin("b", 0, 7, "list-1", 0), False))
    assert bench.disk is not None
    assert bench.disk.is_mark
    assert [record.hash for record in bench.disk.lists] == ["list-1", "lease"]
    assert bench.disk.lists[0].voters == tuple(sorted({*TRIO, *nodes}))
