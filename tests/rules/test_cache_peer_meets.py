"""Where a real driver and the machine of mode `own` meet: what each says to the other at the edges."""

from __future__ import annotations

from primacy.cache import inputs as told
from primacy.cache.messages import Ping, Trailer
from primacy.cache.model import Failure
from tests.support.cache_harness import KEY, Harness


def test_a_call_that_its_own_timer_cancelled_is_no_failure_of_the_source() -> None:
    """Calls are cancelled at their time by who runs them, too, perhaps before the machine's own timer. The source said
    nothing, so nobody is refused: whoever waits is served by the next call, here or elsewhere."""
    harness = Harness()
    harness.source_ms = None
    request = harness.ask("a")
    harness.run(100)
    [(_, caller, _, _)] = harness.calls
    others = [name for name in harness.names if name != caller]
    harness.cut(caller, " ".join(others))
    running = harness.running[caller, KEY]
    claim = harness.peers[caller]._known(KEY).claim
    at_ms = claim.hold_from_ms + harness.settings.timing.cancel_at_ms  # type: ignore[operator]
    harness.run(at_ms - harness.now - 1)
    harness.running.pop((caller, KEY), None)
    harness.now = at_ms
    harness.tell(caller, told.SourceEnded(KEY, running.ballot, Failure("the hold was not proved anew in time")))
    harness.heal()
    harness.source_ms = 50
    harness.run(3_000)
    assert harness.got(request) != "refused"
    if harness.got(request) == "other":
        again = harness.ask("b")
        harness.run(1_500)
        assert harness.got(again) == "fresh"
    assert not [event for _, event in harness.events if event == "fetch-failed"]


def test_a_message_without_a_list_is_of_no_neighbour() -> None:
    """A peer that never had another list has no list before it; 0 stands for that, and is nobody's."""
    harness = Harness()
    machine = harness.peers["a"]
    assert machine.members.works_with(Trailer(membership=machine.members.hash))
    assert machine.members.works_with(Trailer(membership=5, previous=machine.members.hash))
    assert not machine.members.works_with(Trailer(membership=0, previous=0))
    before = machine.counts.get("other-list", 0)
    harness.tell("a", told.Received("b", Ping(Trailer())))
    assert machine.counts.get("other-list", 0) == before + 1
