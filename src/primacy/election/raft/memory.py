"""Starting and recovering: the part of raft that reads and writes whole ballots.

`recovery.py` decides when a recovering node may speak (rules M); here its questions are sent, its answers given, and
its decisions written into the ballot: changed times, another strategy or store (M1), a lost memory (M2), the first
start of the cluster (M3). A ballot that turns out to be an old copy, or to be used twice, is given up here, too (Q10).
"""

from __future__ import annotations

from primacy.election.effects import Effect, Persist, Record, Send
from primacy.election.events import Code, Event
from primacy.election.inputs import Init
from primacy.election.messages import (
    Ack,
    Ahead,
    FirstBallot,
    FirstBallotTaken,
    Heartbeat,
    Message,
    Query,
    Report,
    Stale,
    VoteReply,
    VoteRequest,
)
from primacy.election.model import Register
from primacy.election.raft.lead import Leading
from primacy.election.raft.recovery import keep_latest
from primacy.election.raft.state import RaftState

TWO_BOOTS = "two-boots"
"""Why a node recovers: another one runs with its id."""

STRANGERS_TOLD = 8


def shows_use(message: Message) -> bool:
    """Its sender's ballot has left term 0: it may have voted or acked under its base (M3)."""
    match message:
        case Heartbeat() | Ack():
            return True
        case VoteRequest():
            return message.term > (1 if message.pre else 0)
        case VoteReply() | Ahead() | Query() | Report():
            return message.term > 0
        case _:
            return False


class Remembering:
    """What a node does at its start, and while it recovers."""

    def __init__(self, state: RaftState, leading: Leading) -> None:
        self.state = state
        self.leading = leading

    def boot(self, now_ms: int) -> list[Effect]:
        """Counts this start, enters the configuration into the ballot if it is another, and begins silent or mute."""
        state = self.state
        state.booted = True
        effects: list[Effect] = [Record(Event(Code.STARTED, state.term))]
        ballot = state.ballot
        if ballot is not None:
            if ballot.register is None:
                ballot = state.recovery.upgraded(ballot)
            lists = ballot.lists
            if state.recovery.own.hash not in [record.hash for record in lists]:
                lists = (*lists, state.recovery.own._replace(confirmed=False))
            changed = ballot.changed or len(lists) > 1
            token_max = max(ballot.token_max, state.options.token_max)
            state.ballot = ballot._replace(
                incarnation=ballot.incarnation + 1, lists=lists, changed=changed, token_max=token_max
            )
        return effects + self.ballot_read(now_ms)

    def ballot_read(self, now_ms: int) -> list[Effect]:
        """From here on the node is silent for P, or mute; the end of muteness counts as reading, too (Q4, M1)."""
        state = self.state
        state.read_at_ms = now_ms
        ballot = state.ballot
        if ballot is not None:
            state.origin = state.origin._replace(incarnation=ballot.incarnation, base=ballot.base)
        state.refresh_members()
        state.unacked = None
        state.promise.newest_at_ms, state.promise.newest_term = now_ms, state.reached_term
        state.promise.released_term = -1
        state.promise.release = None
        state.peers.known.clear()  # everybody is met anew
        was = state.become_able(self.why_mute())
        state.campaign_at_ms = now_ms if state.lock_suffices() else state.timeout(now_ms)
        if state.muted:
            state.ask_at_ms = now_ms
            return [Record(Event(Code.RECOVERING, state.term, detail=state.muted)), *self.ask(now_ms)]
        return [Record(Event(Code.RECOVERED, state.term, detail=was))] if was else []

    def ballot_lost(self, now_ms: int) -> None:
        """A save failed, and this node does not lead: it is what the older ballot makes of it (F31)."""
        state = self.state
        ballot = state.ballot
        if state.campaign is not None:
            state.become_follower()
        state.booted = ballot is None or ballot.incarnation == state.origin.incarnation
        if ballot is None:
            state.origin = state.origin._replace(incarnation=0, base=0)
        else:
            state.origin = state.origin._replace(base=ballot.base)
        state.refresh_members()
        state.become_able(self.why_mute())
        state.campaign_at_ms = now_ms + state.timing.promise_ms

    def why_mute(self) -> str:
        """Empty, or why this node must not speak (M1, M2, Q10)."""
        state = self.state
        if state.muted == TWO_BOOTS:
            return TWO_BOOTS
        if state.ballot is None:
            return "no-memory"
        if any(record.hash != state.recovery.own.hash for record in state.ballot.lists):
            return "other-list"
        return ""

    def ask(self, now_ms: int) -> list[Effect]:
        """Asks whoever has not answered, then decides. Repeated every heartbeat while mute."""
        state = self.state
        state.ask_at_ms = now_ms + state.timing.heartbeat_ms
        if state.muted == TWO_BOOTS:
            return self._doubt()  # only a restart helps, after the other machine was stopped
        targets = state.recovery.to_ask(state.ballot)
        if state.recovery.init is not None or state.options.auto:
            init = state.recovery.init or Init(0)
            targets = tuple(sorted({*targets, *state.recovery.first_missing(init)}))
        asked: list[Effect] = [Send(node, self._query()) for node in targets]
        return self._void() + asked + self.decide(now_ms)

    def _query(self) -> Query:
        state = self.state
        return Query(state.origin, state.ballot is not None, state.term)

    def decide(self, now_ms: int) -> list[Effect]:
        """Has enough been heard to speak again, or for a first start?"""
        state = self.state
        if state.muted == TWO_BOOTS:
            return []
        if self.is_blank():
            first = self._first_start(now_ms)
            if first:
                return first
        if not state.muted:
            return []
        wall_ms = now_ms + state.wall_offset_ms
        heard = state.recovery.remembered(wall_ms) if state.ballot is None else state.recovery.changed(state.ballot)
        if heard is None:
            return []
        state.ballot = heard._replace(hold_max_ms=max(heard.hold_max_ms, state.timing.hold_ms))
        return self.ballot_read(now_ms)

    def is_blank(self) -> bool:
        """No memory, or a first ballot of this very list that was never used, which counts as none for `init` (M3)."""
        state = self.state
        return state.ballot is None or state.recovery.is_first(state.ballot)

    def init_said(self, now_ms: int, init: Init) -> list[Effect]:
        state = self.state
        if not state.quorum.votes:
            return [Record(Event(Code.INIT_REFUSED, state.term, detail="this node does not vote"))]
        if not self.is_blank():
            return [Record(Event(Code.INIT_REFUSED, state.term, detail="this node remembers the cluster"))]
        state.recovery.init = init
        for node in state.recovery.first_asked(init):
            state.recovery.reports.pop(node, None)  # only answers given after the word count
        return self.init_again(now_ms)

    def init_again(self, now_ms: int) -> list[Effect]:
        """Asks who has not answered, as long as the operator's word stands; who still listens is asked again."""
        state = self.state
        state.ask_at_ms = now_ms + state.timing.heartbeat_ms
        init = state.recovery.init
        if init is None or not self.is_blank():
            state.recovery.init = None
            return []
        asked: list[Effect] = [Send(node, self._query()) for node in state.recovery.first_missing(init)]
        return asked + self.decide(now_ms)

    def _first_start(self, now_ms: int) -> list[Effect]:
        """M3: all have answered blank, so this node writes the first ballot and hands it to each."""
        state = self.state
        recovery, ballot = state.recovery, state.ballot
        listened = self.has_listened(now_ms)
        init = recovery.wants_first(waited_long=listened, base=ballot.base if ballot is not None else 0)
        if init is None or not state.quorum.votes:
            return []
        refused = recovery.first_refused(init) or self.speaks_against(now_ms, init)
        if refused:
            said, recovery.init = recovery.init, None
            return [Record(Event(Code.INIT_REFUSED, state.term, detail=refused))] if said else []
        wait_ms = recovery.first_wait_ms(state.timing)
        over_ms = max(state.first.heard_at_ms, state.read_at_ms) + wait_ms
        if not listened or not recovery.first_complete(init) or now_ms < over_ms:
            return []
        wall_ms = max(init.wall_ms, now_ms + state.wall_offset_ms)
        base = recovery.first_base(max(wall_ms, ballot.token_known + 1 if ballot is not None else 0))
        state.ballot = recovery.first_ballot(base, state.timing.hold_ms, wall_ms, ballot)
        state.first.init_tried = recovery.init
        state.first.offers = recovery.take_offers(init)
        state.first.offer_at_ms = now_ms + state.timing.heartbeat_ms
        effects: list[Effect] = [Record(Event(Code.FIRST_BALLOT, value=base)), *self.ballot_read(now_ms)]
        return effects + self._offer_first()

    def has_listened(self, now_ms: int) -> bool:
        """Since its start, or its first ballot, it has listened for P: longer than a leader is silent (M3)."""
        state = self.state
        return state.recovery.is_by_itself or now_ms - state.read_at_ms >= state.timing.promise_ms

    def stranger_heard(self, now_ms: int, node: str) -> None:
        """Of the cluster that is to begin here there may be one already, under other members (M3)."""
        state = self.state
        if self.is_blank() and node not in state.seat.membership.ids:
            keep_latest(state.first.strangers, node, now_ms)

    def stranger_told(self, now_ms: int, report: Report) -> None:
        """A leader speaks to the members that it knows; of those of our list, that may be just one (M3)."""
        state = self.state
        for node in report.strangers if report.echo == state.seat.boot else ():
            if node not in state.seat.membership.ids:
                keep_latest(state.first.told, node, now_ms)

    def speaks_against(self, now_ms: int, init: Init) -> str:
        """Why a cluster must not begin now: somebody outside of the list was heard within P, by this node or by one
        that answered (M3). An operator who knows better names it."""
        speaking = self.state.first.speaking_since(now_ms - self.state.timing.promise_ms)
        found = [node for node in speaking if node not in init.without]
        return f"node {found[0]} speaks for this cluster already, and is not in the file's list" if found else ""

    def first_start_failed(self) -> None:
        """The first ballot did not get to the disk: nobody was offered it, and what was asked for is still wanted.

        Kept as offers, the boots that said they are blank would not be heard when they say so again, for ever.
        """
        state = self.state
        if state.first.offers and state.origin.base != (state.ballot.base if state.ballot is not None else 0):
            state.first.offers = {}
            state.recovery.init, state.first.init_tried = state.first.init_tried, None

    def _offer_first(self) -> list[Effect]:
        """To the boots that said they are blank, every heartbeat until each has it.

        Late is as good as early: a boot that was blank when it answered has used nothing of this cluster since.
        """
        state = self.state
        ballot, offers = state.ballot, sorted(state.first.offers.items())
        if ballot is None:
            return []
        return [Send(node, FirstBallot(state.origin, ballot.base, boot)) for node, boot in offers]

    def offer_again(self, now_ms: int) -> list[Effect]:
        state = self.state
        if now_ms < state.first.offer_at_ms:
            return []
        state.first.offer_at_ms = now_ms + state.timing.heartbeat_ms
        return self._offer_first()

    def first_start_again(self) -> list[Effect]:
        """A first start that broke off, with `auto`: the lowest id asks all again.

        Only what is answered now counts: an answer that crossed the first ballot on its way says that its sender has
        none, and founding anew because of it would leave behind whoever has begun to use the first.
        """
        state = self.state
        if not (state.options.auto and self.is_blank() and state.quorum.voters[:1] == (state.node,)):
            return []
        state.recovery.reports.clear()
        return [Send(node, self._query()) for node in state.quorum.other_voters]

    def on_first_ballot(self, now_ms: int, message: FirstBallot) -> list[Effect]:
        """Written before it is confirmed; replaced only by a larger base, and only while it was never used (M3)."""
        state = self.state
        sender = message.origin.node
        if not state.seat.membership.is_config(message.origin.config):
            return []
        if not state.quorum.votes or sender not in state.quorum.voters:
            return []
        if state.ballot is not None and state.ballot.base == message.base:
            return [Send(sender, FirstBallotTaken(state.origin, message.base))]  # it has it, by whatever way
        if message.echo != state.seat.boot or not self.is_blank() or state.recovery.copy is not None:
            return []  # also one that this boot used and had to give up must not come back
        effects: list[Effect] = []
        if state.ballot is None or message.base > state.ballot.base:
            wall_ms = now_ms + state.wall_offset_ms
            state.ballot = state.recovery.first_ballot(message.base, state.timing.hold_ms, wall_ms, state.ballot)
            state.first.offers = {}
            effects = [Record(Event(Code.FIRST_BALLOT, value=message.base)), *self.ballot_read(now_ms)]
        if state.ballot.base == message.base:
            effects.append(Send(sender, FirstBallotTaken(state.origin, message.base)))
        return effects

    def on_first_ballot_taken(self, message: FirstBallotTaken) -> None:
        state, origin = self.state, message.origin
        if state.ballot is not None and message.base == state.ballot.base:
            state.first.offers.pop(origin.node, None)
            state.recovery.remembers[origin.node] = origin.boot

    def on_query(self, now_ms: int, query: Query) -> list[Effect]:
        """Anybody is told: our configuration (durable in our ballot before this), our members, and what we remember."""
        state = self.state
        if query.memory:
            self.stranger_heard(now_ms, query.origin.node)
        ballot = state.ballot
        asker = query.origin.node
        seen = state.seen(asker)[0]
        plain = state.seat.membership.hash
        origin = state.origin._replace(config=plain) if query.origin.config == plain else state.origin
        report = Report(
            origin,
            echo=query.origin.boot,
            memory=ballot is not None and not ballot.void,
            used=self._is_used(),
            term=state.term,
            hold_max_ms=ballot.hold_max_ms if ballot is not None else state.recovery.hold_max_ms,
            token_max=max(self._token_known(), state.options.token_max),
            confirmed=self._confirmed(),
            incarnation_seen=max(seen, query.origin.incarnation),
            gave_way=state.first.gave_way and state.recovery.copy is None,
            register=self._register_told(),
            strangers=self._strangers(now_ms),
            listens=self.is_blank() and not self.has_listened(now_ms),
        )
        return [*self.mark(), Send(asker, report)]

    def _strangers(self, now_ms: int) -> tuple[str, ...]:
        """To be told: the last ones, for a datagram has its bounds. All come in turn, as each is heard again."""
        heard = self.state.first.heard_since(now_ms - self.state.timing.promise_ms)
        return heard[-STRANGERS_TOLD:] if self.is_blank() else ()

    def _is_used(self) -> bool:
        """It has voted or acked, or cannot know who has: nobody begins a cluster by itself beside it (M3)."""
        recovery = self.state.recovery
        return not self.is_blank() or recovery.copy is not None or recovery.is_left or recovery.is_unlisted

    def _confirmed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The configurations that it has left. Under which members it was able, its register says."""
        ballot = self.state.ballot
        left = ballot.left if ballot is not None else self.state.recovery.left
        return tuple((one, ()) for one in left)

    def _register_told(self) -> Register:
        """The members that it knows of; without memory those of its file, which a first start compares (R12)."""
        return self.state.register or self.state.recovery.first()

    def mark(self) -> list[Effect]:
        """Before a node says that it has no memory, its disk knows under which file it does (M3)."""
        state = self.state
        if state.ballot is not None or not state.recovery.mark_due:
            return []
        state.disk.marking = True
        return [Persist(state.recovery.mark())]

    def _token_known(self) -> int:
        """The largest token that the ballot, or an old copy of it, knows of."""
        state = self.state
        known = state.ballot or state.recovery.copy
        return known.token_known if known is not None else 0

    def on_report(self, now_ms: int, report: Report) -> list[Effect]:
        state = self.state
        if not report.memory and state.first.offers.get(report.origin.node) == report.origin.boot:
            return []  # it is being offered a first ballot; that it has none yet is no news
        state.recovery.hear(report)
        self.stranger_told(now_ms, report)
        node, boot = report.origin.node, report.origin.boot
        if state.first.heard.get(node) != boot:
            state.first.heard[node], state.first.heard_at_ms = boot, now_ms
        return self._replaced(now_ms, report) + self.decide(now_ms)

    def _replaced(self, now_ms: int, report: Report) -> list[Effect]:
        """It was away while its configuration was replaced: it waits as if it had run under the new one (M1).

        Only at its start, while it is silent: it has promised nothing to anybody yet.
        """
        state = self.state
        ballot = state.ballot
        if ballot is None or state.muted or report.echo != state.seat.boot:
            return []
        if now_ms >= state.read_at_ms + state.timing.promise_ms or not state.recovery.is_replaced_by(report):
            return []
        lists = (*ballot.lists, state.recovery.told_of(report, ballot))
        state.ballot = ballot._replace(lists=lists, changed=True)
        state.recovery.ran_on(state.ballot)
        return self.ballot_read(now_ms)

    def give_way(self, message: Message) -> list[Effect]:
        """An unused first ballot binds nobody: it gives way to one in use, or else to a larger base (M3).

        Whatever message shows the other one: who is mute sends questions and answers only. One that was used never
        gives way, so that a majority can be in use of one base only.
        """
        state = self.state
        ballot, other = state.ballot, message.origin
        if ballot is None or ballot.term > 0 or other.base in (0, ballot.base) or other.node not in state.quorum.voters:
            return []
        if state.muted == TWO_BOOTS:
            return []  # which of two machines this is, an operator must say first (Q10)
        if not shows_use(message) and other.base < ballot.base:
            return []
        self.forget()
        state.first.gave_way = True
        return [Record(Event(Code.RECOVERING, 0, other.node, "another first start of this cluster counts"))]

    def forget(self) -> None:
        """The ballot counts no longer: mute until the others tell what they remember (M2)."""
        state = self.state
        state.ballot = state.disk.durable = state.disk.earlier = None
        state.first.offers = {}
        state.recovery.start_over()
        state.become_recovering("no-memory")
        state.origin = state.origin._replace(incarnation=0, base=0)
        state.refresh_members()

    def forget_durably(self) -> list[Effect]:
        """The ballot counts no longer, after a restart neither."""
        self.forget()
        self.state.disk.void_due = True
        return self._void()

    def on_stale(self, now_ms: int, message: Stale) -> list[Effect]:
        """A peer heard a later start of us, or another machine that speaks as this very start (Q10).

        Either way this ballot may be an old copy: durably no memory, or a restart would trust it again. A later start
        is reason to ask the others at once (M2); with two machines, that waits until an operator has stopped one.
        """
        state = self.state
        ballot = state.ballot
        if message.echo != state.seat.boot or ballot is None:
            return []
        if message.incarnation_seen < state.origin.incarnation:
            return []
        later = message.incarnation_seen > state.origin.incarnation
        if state.muted == TWO_BOOTS and not later:
            return []
        code = Code.STALE_INCARNATION if later else Code.TWO_BOOTS
        effects: list[Effect] = []
        if state.leader_state is not None:
            effects = self.leading.lose(now_ms, code, "this node's identity is in doubt")
        state.recovery.copy = ballot
        voided: list[Effect] = []
        if later:
            voided = self.forget_durably()
        else:
            state.become_recovering(TWO_BOOTS)
            self._doubt()
        detail = "our ballot is an old copy" if later else "another node runs with our id, or our disk is a copy"
        return [*effects, *voided, Record(Event(code, ballot.term, detail=detail))]

    def _doubt(self) -> list[Effect]:
        """Whatever is saved from now on bears the mark; tried again while mute, should the disk refuse it."""
        state = self.state
        if state.ballot is not None and not state.ballot.void:
            state.ballot = state.ballot._replace(void=True)
        return []

    def _void(self) -> list[Effect]:
        """Marks the ballot on the disk as an old copy; tried again with every question until it is saved."""
        state = self.state
        if not state.disk.void_due or state.recovery.copy is None:
            return []
        state.disk.marking = True
        return [Persist(state.recovery.mark())]
