"""The membership machine by its inputs and effects alone: no socket, no waiting."""

from __future__ import annotations

from typing import Any

from primacy.election.inputs import DeadlinePassed, MembersChanged
from primacy.membership.http_wire import (
    Answer,
    Asked,
    Credentials,
    Said,
    encoded,
    id_body,
    join_answer,
    join_body,
    pairs,
)
from primacy.membership.machine import MembershipMachine
from primacy.membership.members import Entry
from primacy.membership.procedures import Gate, Procedures, Signal
from primacy.membership.state import Identity, JoinPlan
from primacy.membership.vocabulary import (
    Abandoned,
    Begin,
    Call,
    CallEnded,
    Close,
    Done,
    Effect,
    Fail,
    Input,
    JoinAt,
    Keep,
    Requested,
    Respond,
    Tell,
    Told,
)
from primacy.settings.timing import RANK_PROFILES
from primacy.transport.link_cuts import LinkCuts

WALL_MS = 1_700_000_000_000
CREDENTIALS = (Credentials("user", "pass"),)


class Given:
    """A machine, and what it was asked for so far."""

    def __init__(self, *remembered: Entry, join: tuple[str, ...] = ()) -> None:
        identity = Identity("b", 7, "10.0.0.2:80", "c", "e", "bully", "id", started_ms=5)
        plan = JoinPlan(join, entries=remembered)
        self.machine = MembershipMachine(identity, RANK_PROFILES["lan"], plan, CREDENTIALS, WALL_MS, LinkCuts())
        self.now_ms = 1_000
        self.asked = 0

    def step(self, given: Input, after_ms: int = 0) -> list[Effect]:
        """What the election is told is answered at once."""
        self.now_ms += after_ms
        effects = self.machine.step(self.now_ms, given)
        for each in tuple(effects):
            assert not isinstance(each, Fail), each
            if isinstance(each, Tell) and each.number:
                effects += self.step(Told(each.number, None))
        return effects

    def request(self, path: str, body: bytes, said: str | None, wall_ms: int = WALL_MS) -> list[Effect]:
        self.asked += 1
        asked = Asked("POST", path, CREDENTIALS[0].header, said, body, False, "10.0.0.9")
        return self.step(Requested(self.asked, wall_ms, asked))


def header(node: str, **more: Any) -> str:
    return pairs({"node": node, "boot": 9, "addr": f"{node}:80", "kin": "c/e/bully/id", **more})


def status(effects: list[Effect]) -> int:
    (reply,) = [each.reply for each in effects if isinstance(each, Respond)]
    assert reply is not None
    return reply.status


def of(effects: list[Effect], kind: type[Effect]) -> list[Any]:
    return [each for each in effects if isinstance(each, kind)]


def test_a_join_is_answered_told_on_and_kept() -> None:
    given = Given(Entry("a", "10.0.0.1:80", 3))
    effects = given.request("/join", join_body("c", "10.0.0.3:80"), header("c", rank="0.4"))
    assert status(effects) == 200
    (told,) = of(effects, Call)
    assert (told.addr, told.path, told.body) == ("10.0.0.1:80", "/join", join_body("c", "10.0.0.3:80"))
    (changed,) = [each.given for each in of(effects, Tell)]
    assert isinstance(changed, MembersChanged)
    assert [member[0] for member in changed.members] == ["a", "b", "c"]
    assert given.machine.deadline_ms == given.now_ms + 200
    (kept,) = of(given.step(DeadlinePassed(), 200), Keep)
    assert [row[0] for row in kept.kept["nodes"]] == ["a", "b", "c"]


def test_one_that_was_removed_is_refused_until_it_is_started_again_also_where_the_removal_was_only_told() -> None:
    given = Given(Entry("a", "10.0.0.1:80", 3), Entry("c", "10.0.0.3:80", 3, started_ms=4))
    removal = header("a", stamp=WALL_MS, of_addr="10.0.0.3:80", of_rank="0.4")
    assert status(given.request("/remove", id_body("c"), removal)) == 200
    assert "c" not in given.machine.state.member_list
    join = join_body("c", "10.0.0.3:80")
    assert status(given.request("/join", join, header("c", rank="0.4"), WALL_MS + 1)) == 409
    assert "c" not in given.machine.state.member_list
    assert status(given.request("/join", join, header("c", rank="0.5"), WALL_MS + 2)) == 200
    assert "c" in given.machine.state.member_list


def joined(given: Given, said: str | None) -> None:
    (call,) = of(given.step(JoinAt(1, "10.0.0.1:80")), Call)
    peers = {"a": "10.0.0.1:80", "b": "10.0.0.2:80", "c": "10.0.0.3:80"}
    given.step(CallEnded(call.number, Answer(200, Said(said), join_answer("a", peers))))


def test_a_node_of_ours_that_has_not_heard_of_a_removal_does_not_undo_it_in_who_joins_it() -> None:
    given = Given(Entry("c", "10.0.0.3:80", WALL_MS, gone=True))
    joined(given, header("a"))
    assert given.machine.state.member_list.peers.keys() == {"a", "b"}


def test_a_real_node_cannot_be_told_of_a_removal_and_is_believed() -> None:
    given = Given(Entry("c", "10.0.0.3:80", WALL_MS, gone=True))
    joined(given, None)
    assert given.machine.state.member_list.peers.keys() == {"a", "b", "c"}


def test_the_list_that_is_fetched_says_who_is_right_about_a_removal() -> None:
    given = Given(Entry("c", "10.0.0.3:80", WALL_MS, gone=True))
    (call,) = of(given.step(JoinAt(1, "10.0.0.1:80")), Call)
    answer = Answer(200, Said(header("a")), join_answer("a", {"a": "10.0.0.1:80", "c": "10.0.0.3:80"}))
    (fetch,) = of(given.step(CallEnded(call.number, answer)), Call)
    rows = [Entry("a", "10.0.0.1:80", 3).row, Entry("c", "10.0.0.3:80", WALL_MS + 5, started_ms=9).row]
    effects = given.step(CallEnded(fetch.number, Answer(200, Said(header("a")), encoded({"members": rows}))))
    assert given.machine.state.member_list.peers.keys() == {"a", "b", "c"}
    (told,) = of(effects, Call)
    assert (told.addr, told.path, told.body) == ("10.0.0.1:80", "/join", join_body("b", "10.0.0.2:80"))


def test_one_that_begins_a_cluster_waits_for_those_that_it_remembers_for_two_seconds_at_most() -> None:
    given = Given(Entry("a", "10.0.0.1:80", 3))
    effects = given.step(Begin(1))
    assert [call.path for call in of(effects, Call)] == ["/heartbeat"]
    assert given.machine.deadline_ms == given.now_ms + 2_000
    assert of(given.step(DeadlinePassed(), 2_000), Done) == [Done(1)]


def test_a_request_whose_sender_has_gone_is_not_answered_and_nothing_is_left_of_it() -> None:
    given = Given()
    effects = given.machine.step(
        1_000, Requested(1, WALL_MS, Asked("GET", "/heartbeat", CREDENTIALS[0].header, None, b"", False, ""))
    )
    (told,) = of(effects, Tell)
    assert given.step(Abandoned(1)) == []
    assert given.step(Told(told.number, None)) == []
    assert not given.machine.state.procedures.under_way


def test_after_the_end_nothing_is_begun_and_the_list_is_kept_at_once() -> None:
    given = Given(join=("10.0.0.1:80",))
    given.step(Begin(1))
    given.machine.state.is_outside = False
    given.request("/join", join_body("c", "10.0.0.3:80"), header("c", rank="0.4"))
    effects = given.step(Close())
    assert len(of(effects, Keep)) == 1
    assert not given.machine.state.procedures.under_way


# --- procedures -------------------------------------------------------------------------------------------------------


def test_procedures_wait_for_signals_and_moments_and_gates() -> None:
    seen: list[str] = []
    procedures = Procedures(lambda error: seen.append(repr(error)))
    gate, signal = Gate(procedures, 1), Signal[str]()

    async def holds() -> str:
        async with gate:
            seen.append(str(await procedures.wait(signal, 1.0)))
        return "held"

    async def follows() -> str:
        async with gate:
            await procedures.pause(0.5)
        return "followed"

    async def both() -> None:
        seen.extend(await procedures.every(holds(), follows()))

    procedures.spawn(both())
    procedures.run()
    assert procedures.deadline_ms == 1_000
    signal.set("set")
    procedures.run()
    assert (seen, procedures.deadline_ms) == (["set"], 500)
    procedures.now_ms = 500
    procedures.pass_deadlines()
    procedures.run()
    assert (seen, procedures.deadline_ms, procedures.under_way) == (["set", "held", "followed"], None, ())


def test_a_procedure_that_is_cancelled_in_front_of_a_gate_leaves_its_place() -> None:
    procedures = Procedures(lambda error: None)
    gate, seen = Gate(procedures, 1), []

    async def inside(name: str, span_s: float) -> None:
        async with gate:
            seen.append(name)
            await procedures.pause(span_s)

    procedures.spawn(inside("a", 1.0))
    second = procedures.spawn(inside("b", 1.0))
    procedures.spawn(inside("c", 1.0))
    procedures.run()
    procedures.cancel(second)
    procedures.now_ms = 1_000
    procedures.pass_deadlines()
    procedures.run()
    assert seen == ["a", "c"]


def test_a_procedure_that_fails_takes_no_other_with_it() -> None:
    failed: list[Exception] = []
    procedures = Procedures(failed.append)

    async def fails() -> None:
        raise ValueError("a bug")

    async def waits() -> None:
        await procedures.pause(1.0)

    procedures.spawn(fails())
    procedures.spawn(waits())
    procedures.run()
    assert [str(error) for error in failed] == ["a bug"]
    assert len(procedures.under_way) == 1
