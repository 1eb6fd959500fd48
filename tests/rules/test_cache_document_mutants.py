"""Each cure of mode `mixed` taken out of the source, and the test that must notice.

A mutant is the machine's own text with one place changed; its modules are built anew from it, and the named test runs
against them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import primacy.cache as package
from primacy.cache import document
from tests.rules import test_cache_document as rules
from tests.rules import test_cache_document_floor as floors
from tests.rules import test_cache_weaknesses as weaknesses

pytestmark = pytest.mark.later

FOLDER = Path(document.__file__).parent
PARTS = ("document_state", "document_source", "document_elect", "document_floor", "document")
"""In the order in which they import each other."""


class Mutant(NamedTuple):
    """`old` stands exactly once in the part."""

    part: str
    old: str
    new: str
    noticed: Callable[[], None]


W = weaknesses
MUTANTS = {
    "S1: a candidate ignores a source of a lower term": Mutant(
        "document_elect",
        "        case None if not state.has_room():\n            return effects\n    until",
        "        case Campaign() if message.term < state.meta(key).term:\n            return effects\n    until",
        W.test_W_S1_a_candidate_follows_a_source_of_a_lower_term,
    ),
    "S1: a follower of a candidate ignores it": Mutant(
        "document_elect",
        "case Following(peer=peer, sourcing=True) if peer != sender and message.term",
        "case Following(peer=peer) if message.term",
        W.test_W_S1_a_follower_of_a_candidate_follows_a_source_of_a_lower_term,
    ),
    "S1: a source keeps its term": Mutant(
        "document_elect",
        "effects = state.adopt(key, message.term, state.me) if message.term > state.meta(key).term else []",
        "effects: list[Effect] = []",
        W.test_W_S1_a_source_takes_over_the_term_it_is_asked_in,
    ),
    "S2: a vote in a higher term is not remembered": Mutant(
        "document_elect",
        "effects = state.adopt(key, message.term, sender if vote else None)",
        "effects = state.adopt(key, message.term, state.meta(key).voted or sender if vote else None)",
        W.test_W_S2_one_vote_per_term,
    ),
    "S3: a vote lasts while its candidate is followed": Mutant(
        "document_elect",
        "    state.become(key, None)\n    return settle(state, key)\n\n\n# --- values",
        '    state.metas[key] = state.meta(key)._replace(voted="")\n'
        "    state.become(key, None)\n    return settle(state, key)\n\n\n# --- values",
        W.test_W_S3_a_vote_lasts_as_long_as_its_term,
    ),
    "S3: a fresh value does not free the vote": Mutant(
        "document_elect",
        '    effects += state.write(key, state.meta(key)._replace(voted=""))\n',
        "",
        W.test_W_S3_a_fresh_value_frees_the_vote,
    ),
    "S3: an election begins in a term in which the vote is given": Mutant(
        "document_elect",
        'meta.term if meta.voted == "" and forced is None else',
        "meta.term if forced is None else",
        W.test_W_S3_the_own_vote_is_a_vote,
    ),
    "S3: the vote for oneself is not kept": Mutant(
        "document_elect",
        "    effects = state.adopt(key, term, state.me)\n",
        "    effects = state.adopt(key, term)\n",
        W.test_W_S3_the_own_vote_is_a_vote,
    ),
    "S3: the vote is not stored": Mutant(
        "document_state",
        "        return [StoreMeta(key, meta), *self._note_bare(key, meta)]",
        '        return [StoreMeta(key, meta._replace(voted="")), *self._note_bare(key, meta)]',
        W.test_W_S3_the_vote_is_stored_with_the_term,
    ),
    "S3: votes right after a start": Mutant(
        "document_elect",
        "state.now_ms < state.quiet_until_ms or message.key in state.calls",
        "message.key in state.calls",
        W.test_W_S3_no_vote_right_after_a_start,
    ),
    "S3: a campaign right after a start": Mutant(
        "document_elect",
        "    at_ms = max(at_ms, state.quiet_until_ms)\n",
        "",
        W.test_W_S3_no_vote_right_after_a_start,
    ),
    "S3: late answers count": Mutant(
        "document_elect",
        "message.term == asking.ballot.term and message.vote and in_time",
        "message.term == asking.ballot.term and message.vote",
        W.test_W_S3_late_answers_count_for_nothing,
    ),
    "S3: answers of another election count": Mutant(
        "document_elect",
        "message.trailer.ballot not in (NO_BALLOT, asking.ballot)",
        "message.trailer.ballot is None",
        W.test_W_S3_late_answers_count_for_nothing,
    ),
    "S4: a call goes on without a majority": Mutant(
        "document_source",
        "    end_ms = sourcing.proved_ms + timing.follower_sourcing_ms if state.peers else FAR_MS\n",
        "    end_ms = FAR_MS\n",
        W.test_W_S4_a_source_that_hears_no_majority_ends_its_call,
    ),
    "S4: a call that is proved is ended all the same": Mutant(
        "document_source",
        "    sourcing.proved_ms = sourcing.round_ms\n    _bound",
        "    _bound",
        W.test_W_S4_a_call_runs_on_while_a_majority_is_heard,
    ),
    "S4: a call that was cut short is a failure": Mutant(
        "document_source",
        "        if cut_off(state, sourcing):  #",
        "        if False:  #",
        W.test_W_S4_a_call_that_was_cut_short_is_no_failure_of_the_source,
    ),
    "S4: a vote while an ended call may still run": Mutant(
        "document_elect",
        "or message.key in state.calls or message.term",
        "or message.term",
        W.test_W_S4_a_source_that_hears_no_majority_ends_its_call,
    ),
    "S4: a late result is used": Mutant(
        "document_source",
        "    if state.now_ms >= sourcing.over_at_ms:\n",
        "    if state.now_ms < 0:\n",
        W.test_W_S4_the_result_of_a_frozen_source_is_not_used,
    ),
    "S4: two sources go on": Mutant(
        "document_elect",
        "            if not _outranks(key, message, ballot, active):\n",
        "            if True:\n",
        W.test_W_S4_a_higher_term_of_another_source_ends_the_call,
    ),
    "S4: of two raised sources both end": Mutant(
        "document_elect",
        "    if ballot != NO_BALLOT:\n        return order(key, ballot) > order(key, active.ballot)\n",
        "",
        W.test_W_S4_a_higher_term_of_another_source_ends_the_call,
    ),
    "S4: of two sources of one term both go on": Mutant(
        "document_elect",
        "order(key, ballot) > order(key, active.ballot)",
        "ballot.term > active.ballot.term",
        W.test_W_S4_of_two_sources_of_one_term_exactly_one_goes_on,
    ),
    "S4: a call goes on although the key is fresh": Mutant(
        "document_elect",
        'return effects if active.forced is not None else effects + source.cancel(state, key, active, "it is fresh")',
        "return effects",
        W.test_W_S4_a_fresh_value_ends_the_call,
    ),
    "S4: a lower epoch replaces a fresh one": Mutant(
        "document_source",
        "            return epoch.term > meta.epoch.term and expire_ms > state.wall_ms\n",
        "            pass\n",
        W.test_W_S4_a_late_result_does_not_replace_a_newer_fetch,
    ),
    "S4: a value without an epoch replaces a fresh one": Mutant(
        "document_source",
        "        if epoch == NO_BALLOT:\n            return False\n",
        "        if epoch == NO_BALLOT:\n            return expire_ms > meta.expire_ms\n",
        W.test_W_S4_a_late_result_does_not_replace_a_newer_fetch,
    ),
    "S6: a value counts once it is stored": Mutant(
        "document_source",
        "    state.note(key, meta)\n    state.bare",
        "    state.bare",
        W.test_W_S6_what_is_being_stored_counts_already,
    ),
    "S7: not looked at again before the call": Mutant(
        "document_elect",
        "    if forced is None and state.fresh(state.meta(key)):\n",
        "    if False:\n",
        W.test_W_S7_a_call_needs_a_key_that_is_not_fresh,
    ),
    "S7: not looked at again when a campaign begins": Mutant(
        "document_elect",
        "    return [] if state.fresh(state.meta(key)) else wanted(state, key)\n",
        "    return wanted(state, key)\n",
        W.test_W_S7_a_call_needs_a_key_that_is_not_fresh,
    ),
    "S8: elections end by the wall clock": Mutant(
        "document_elect",
        "    in_time = state.now_ms - asking.started_ms <= state.timing.candidate_max_ms\n",
        "    in_time = 0 <= state.wall_ms - 1_700_000_000_000 <= 60_000\n",
        W.test_W_S8_timers_do_not_use_the_wall_clock,
    ),
    "L1: no limit of a call": Mutant(
        "document_source",
        "    limit_at_ms = state.now_ms + (LIMIT_MS if source is None else source.limit_ms)\n",
        "    limit_at_ms = FAR_MS\n",
        W.test_W_L1_a_call_that_never_ends_is_ended,
    ),
    "L2: no pause after a failure": Mutant(
        "document_source",
        "    state.failed[key] = Failed(state.now_ms + pause_ms, times, failure.reason, failure.missing)\n",
        "",
        W.test_W_L2_a_failing_source_is_not_called_again_at_once,
    ),
    "L2: the pause does not grow": Mutant(
        "document_source",
        "min(timing.backoff_ms << min(times - 1, 16), timing.backoff_max_ms)",
        "timing.backoff_ms",
        W.test_W_L2_a_failing_source_is_not_called_again_at_once,
    ),
    "L3: a follower's timeout is all": Mutant(
        "document_elect",
        "    state.become(key, None)\n    return settle(state, key)\n\n\n# --- values",
        "    state.become(key, None)\n    return []\n\n\n# --- values",
        W.test_W_L3_a_follower_that_is_waited_for_campaigns,
    ),
    "L3: the end of another's call is not heard": Mutant(
        "document_elect",
        "    if not active.sourcing or active.peer != sender or active.ballot != trailer.ballot:\n",
        "    if True:\n",
        W.test_W_L3_a_follower_that_is_waited_for_campaigns,
    ),
    "L4: only answers count": Mutant(
        "document_elect",
        "state.heard_since(asking.started_ms) < state.majority:\n        return partition",
        "1 + len(asking.answered) < state.majority:\n        return partition",
        W.test_W_L4_whoever_says_anything_is_there,
    ),
    "L4: only PONGs end a partition": Mutant(
        "document",
        "        return self._regained(sender) + self._message(sender, message)\n",
        "        back = self._regained(sender) if isinstance(message, Pong) else []\n"
        "        return back + self._message(sender, message)\n",
        W.test_W_L4_a_partition_ends_with_any_message,
    ),
    "L4: no PING at the start": Mutant(
        "document",
        "        return effects + self._ping()\n",
        "        return effects\n",
        W.test_W_L4_a_partition_ends_with_any_message,
    ),
    "L5: what was not sent is believed again": Mutant(
        "document_elect",
        "        asking.claims[asking.fetching] = asking.best[0]\n",
        "        pass\n",
        W.test_W_L5_what_was_not_sent_is_not_believed_again,
    ),
    "L5: elections without end": Mutant(
        "document_elect",
        "    if asking.rounds >= ROUNDS_MAX or over:\n",
        "    if over:\n",
        W.test_W_L5_elections_that_nobody_wins_end,
    ),
    "L7: terms without values pile up": Mutant(
        "document_state",
        "            del self.bare[old], self.metas[old]\n",
        "            pass\n",
        W.test_W_L7_what_is_known_without_a_value_is_bounded,
    ),
    "L7: keys under way pile up": Mutant(
        "document_elect",
        "    if active is None and not state.has_room():\n",
        "    if False:\n",
        W.test_W_L7_keys_under_way_are_bounded,
    ),
    "10: the expiry counts from the end": Mutant(
        "document_source",
        "    expire_ms = started_wall_ms + ttl_ms\n",
        "    expire_ms = state.wall_ms + ttl_ms\n",
        rules.test_10_sourcing,
    ),
    "2.1: partitioned, nothing is given": Mutant(
        "document",
        "        if state.may_give(key, meta, after_ms):\n",
        "        if state.may_give(key, meta, after_ms) and not state.partitioned:\n",
        rules.test_2_1_partitioned,
    ),
    "mixed: a value without an epoch passes a floor": Mutant(
        "document_state",
        "        return floor == 0 or epoch.term > floor\n",
        "        return floor == 0 or epoch.term > floor or epoch == NO_BALLOT\n",
        floors.test_a_value_without_an_epoch_never_passes_a_floor,
    ),
    "mixed: a floor is acked before it is durable": Mutant(
        "document_floor",
        "            if given.ok:\n",
        "            if True:\n",
        floors.test_a_floor_is_acked_once_it_is_durable,
    ),
    "mixed: a floor that the disk refused is not stored again": Mutant(
        "document_floor",
        "[StoreFloor(running.floor)] if running.refused else []\n",
        "[]\n",
        floors.test_invalidate_that_the_disk_refuses_at_first_is_stored_again,
    ),
    "mixed: a call below a floor goes on": Mutant(
        "document_floor",
        "        if isinstance(active, Sourcing) and active.ballot.term <= floor.term:\n",
        "        if False:\n",
        floors.test_a_call_below_a_floor_is_ended_and_asked_anew,
    ),
    "mixed: a refresh does not wait for originals": Mutant(
        "document_elect",
        "        complete = asking.forced is None or len(asking.answered) == len(state.peers)\n",
        "        complete = True\n",
        floors.test_refresh_is_refused_while_an_original_reports_the_key_as_fresh,
    ),
    "mixed: a refresh although an original has it fresh": Mutant(
        "document_elect",
        "            return _refused(state, sender, message)\n",
        "            pass\n",
        floors.test_refresh_is_refused_while_an_original_reports_the_key_as_fresh,
    ),
}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Mutant], None]]:
    """Replaces the machine by the mutant's, for one test."""

    def plant(mutant: Mutant) -> None:
        for part in PARTS:
            text = (FOLDER / f"{part}.py").read_text()
            if part == mutant.part:
                assert text.count(mutant.old) == 1, f"stands {text.count(mutant.old)} times in {part}.py"
                text = text.replace(mutant.old, mutant.new)
            name = f"primacy.cache.{part}"
            module = ModuleType(name)
            module.__file__ = str(FOLDER / f"{part}.py")
            monkeypatch.setitem(sys.modules, name, module)
            monkeypatch.setattr(package, part, module, raising=False)
            exec(compile(text, f"{part}.py (mutant)", "exec"), module.__dict__)
        monkeypatch.setattr(document, "DocumentMachine", sys.modules["primacy.cache.document"].DocumentMachine)

    return plant  # type: ignore[return-value]


@pytest.mark.parametrize("name", MUTANTS)
def test_every_cure_is_needed(name: str, planted: Callable[[Mutant], None]) -> None:
    mutant = MUTANTS[name]
    mutant.noticed()
    planted(mutant)
    with pytest.raises(AssertionError):
        mutant.noticed()


def test_the_machine_itself_is_built_the_same_way(planted: Callable[[Mutant], None]) -> None:
    """The method must not be what fails: without a change every test of every mutant passes."""
    planted(Mutant("document", "class DocumentMachine:", "class DocumentMachine:", lambda: None))
    for mutant in MUTANTS.values():
        mutant.noticed()
