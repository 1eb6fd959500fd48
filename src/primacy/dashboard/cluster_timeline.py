"""The timeline of what is read here: the fold of `primacy.timeline`, given what this page knows. Pure.

Live, it is made of the rows that the page holds. For a range of the last day, of what the nodes have kept of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from primacy.control.acting import Acting
from primacy.dashboard.known import Known
from primacy.dashboard.spans import Spans
from primacy.dashboard.standing import acting, statements
from primacy.timeline.clocks import TOKENS_FROM
from primacy.timeline.fold import Facts, timeline_of
from primacy.timeline.history import Past, cut_to
from primacy.timeline.schema import Timeline, Told

KEPT_SAID_MAX = 1
"""Sentences about how far back it is kept: of one node that is read."""


def cluster_timeline(
    known: Known, spans: Spans, now_unix_ms: int, kind: str = "cluster", kept: Sequence[Past] = ()
) -> Timeline:
    """`kind`: cluster, for the page; incident, for a file. `kept`: how far back nodes can tell more, each with the
    range of which all is in the rows."""
    told = [Told(*row) for row in (*known.before, *known.rows)]
    holds = [(node, *span, token) for (node, token), span in spans.holds.items()]
    found = timeline_of(told, _facts(known, spans, now_unix_ms, kind, holds, kept))
    return cut_to(found, kept, is_whole=kind == "incident") if kept else found


def past_facts(known: Known, spans: Spans, now_unix_ms: int, pasts: Sequence[Past]) -> Facts:
    """For `past_timeline`: what is heard live tells how it went on. It goes on being heard, so that this is for the
    loop that hears it; nothing of what is returned changes any more."""
    heard = [(node, *span, token) for (node, token), span in spans.holds.items()]
    holds = list(dict.fromkeys([*(hold for past in pasts for hold in past.holds), *heard]))
    return _facts(known, spans, now_unix_ms, "cluster", holds, pasts)


def past_timeline(facts: Facts, pasts: Sequence[Past]) -> Timeline:
    """Of a range of the last day. Any thread may do it."""
    told = [one for past in pasts for one in past.all_told]
    return cut_to(timeline_of(told, facts), pasts, is_whole=False)


def _facts(
    known: Known,
    spans: Spans,
    now_unix_ms: int,
    kind: str,
    holds: Sequence[tuple[str, int, int, int]],
    kept: Sequence[Past],
) -> Facts:
    seen = statements(known)
    head = known.first
    return Facts(
        now_ms=now_unix_ms,
        title=" · ".join(part for part in (head.cluster, head.election, head.strategy) if part) or "no cluster yet",
        kind=kind,
        at_most_one=known.at_most_one,
        names=list(seen),
        acting={
            node: now_unix_ms - (seen[node].told_ms or 0)
            for node, acts in acting(known, seen).items()
            if acts is Acting.ACTS
        },
        silent={node: now_unix_ms - each.heard_ms for node, each in seen.items() if not each.fresh and each.heard_ms},
        token_base=token_base(known),
        reads=spans.clocks(),
        one_machine=known.lab is not None,
        holds=holds,
        chain=list(spans.signatures.values()),
        notes=[sentence for past in kept if (sentence := past.sentence())][:KEPT_SAID_MAX],
    )


def token_base(known: Known) -> int:
    """Of raft: what its tokens have more than their terms; 0 if nobody told a token."""
    for read in known.reads:
        for row in read.document.rows if read.document is not None else ():
            if row.token >= TOKENS_FROM > row.term > 0:
                return row.token - row.term
    return 0
