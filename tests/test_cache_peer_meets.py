"""Where a real driver and the machine of mode `own` meet: what each says to the other at the edges."""

from __future__ import annotations

from tests.cache_stage import KEY, Stage

from primacy.cache import inputs as told
from primacy.cache.messages import Ping, Trailer
from primacy.cache.model import Failure


def test_a_call_that_its_own_timer_cancelled_is_no_failure_of_the_source() -> None:
    """Calls are cancelled at their time by who runs them, too, perhaps before the machine's own timer. The source said
    nothing, so nobody is refused: whoever waits is served by the next call, here or elsewhere."""
    stage = Stage()
    stage.source_ms = None
    request = stage.ask("a")
    stage.run(100)
    [(_, caller, _, _)] = stage.calls
    others = [name for name in stage.names if name != caller]
    stage.cut(caller, " ".join(others))
    running = stage.running[caller, KEY]
    claim = stage.peers[caller]._known(KEY).claim
    at_ms = claim.hold_from_ms + stage.settings.timing.cancel_at_ms
    stage.run(at_ms - stage.now - 1)
    stage.running.pop((caller, KEY), None)
    stage.now = at_ms
    stage.tell(caller, told.SourceEnded(KEY, running.ballot, Failure("the hold was not proved anew in time")))
    stage.heal()
    stage.source_ms = 50
    stage.run(3_000)
    assert stage.got(request) != "refused"
    if stage.got(request) == "other":
        again = stage.ask("b")
        stage.run(1_500)
        assert stage.got(again) == "fresh"
    assert not [event for _, event in stage.events if event == "fetch-failed"]


def test_a_message_without_a_list_is_of_no_neighbour() -> None:
    """A peer that never had another list has no list before it; 0 stands for that, and is nobody's."""
    stage = Stage()
    machine = stage.peers["a"]
    assert machine.members.works_with(Trailer(membership=machine.members.hash))
    assert machine.members.works_with(Trailer(membership=5, previous=machine.members.hash))
    assert not machine.members.works_with(Trailer(membership=0, previous=0))
    before = machine.counts.get("other-list", 0)
    stage.tell("a", told.Received("b", Ping(Trailer())))
    assert machine.counts.get("other-list", 0) == before + 1
