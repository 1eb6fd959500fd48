"""Every rule of the cache that is taken out shows in its schedule, and nothing else does."""

from __future__ import annotations

import pytest

from tests.support.mutants_cache import CACHE_MUTANTS, CacheMutant


@pytest.mark.parametrize("mutant", CACHE_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_rule_taken_out_is_caught(mutant: CacheMutant) -> None:
    assert mutant.schedule(mutant.base) == "", "the base breaks nothing"
    assert mutant.schedule(mutant.machine), "nothing catches it"


def test_every_marked_rule_has_a_mutant() -> None:
    marked = {"C2", "C3", "C4", "C5", "C6", "C7", "C8", "C10", "C11", "C12"}
    assert {mutant.rule for mutant in CACHE_MUTANTS} >= marked
    assert len({mutant.name for mutant in CACHE_MUTANTS}) == len(CACHE_MUTANTS)
