"""W8 in raft: an order of campaigns makes a node wait a little longer, and keeps nobody from campaigning."""

from __future__ import annotations

import pytest

from primacy.election.inputs import CampaignOrder
from tests.support.raft_harness import LAB, Bench


@pytest.mark.parametrize(("order", "steps"), [("abc", 0), ("bac", 1), ("bca", 2), ("bc", 2), ("", 0)])
def test_W8_who_stands_behind_others_campaigns_a_spread_later_each(order: str, steps: int) -> None:
    plain, ordered = Bench(), Bench()
    ordered.give(CampaignOrder(tuple(order)))
    assert ordered.m.deadline_ms == (plain.m.deadline_ms or 0) + steps * LAB.spread_ms
    ordered.wait(LAB.promise_ms + 4 * LAB.spread_ms)
    assert [effect for effect in ordered.all if type(effect).__name__ == "Send"], "it campaigns all the same"
