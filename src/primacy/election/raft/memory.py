"""Starting, meeting others, and the end of muteness: the part of raft that reads and writes whole ballots.

`recovery.py` decides when a mute node may speak (rules M); here its questions are sent, its answers given, and its
decisions written into the ballot. Meeting somebody for the first time in a boot is here too: earlier starts and
copies of a node are recognised by incarnation and boot (Q10), other lists by their hash, other clusters by their
token base (T1).
"""

from __future__ import annotations

from primacy.election.effects import Effect, Persist, Record, Send
from primacy.election.events import Code, Event
from primacy.election.inputs import Init
from primacy.election.messages import (
    Ack,
    Ahead,
    Beat,
    FirstBallot,
    FirstBallotTaken,
    Message,
    Query,
    Release,
    Report,
    Stale,
    VoteReply,
    VoteRequest,
)
from primacy.election.raft.vote import Voting

TWO_BOOTS = "two-boots"
"""Why a node recovers: another one runs with its id."""


def shows_use(message: Message) -> bool:
    """Its sender's ballot has left term 0: it may have voted or acked under its base (M3)."""
    match message:
        case Beat() | Ack():
            return True
        case VoteRequest():
            return message.term > (1 if message.pre else 0)
        case VoteReply() | Ahead() | Query() | Report():
            return message.term > 0
        case _:
            return False


class Remembering(Voting):
    """What a node does at its start, and while it is mute."""

    def _boot(self, now_ms: int) -> list[Effect]:
        """Counts this start, enters the own list into the ballot if it is another, and begins silent or mute."""
        self._booted = True
        effects: list[Effect] = [Record(Event(Code.STARTED, self.term))]
        ballot = self.ballot
        if ballot is not None:
            lists = ballot.lists
            if self.recovery.own.hash not in [record.hash for record in lists]:
                lists = (*lists, self.recovery.own._replace(confirmed=False))
            changed = ballot.changed or len(lists) > 1
            self.ballot = ballot._replace(incarnation=ballot.incarnation + 1, lists=lists, changed=changed)
        return effects + self._ballot_read(now_ms)

    def _ballot_read(self, now_ms: int) -> list[Effect]:
        """From here on the node is silent for P, or mute; the end of muteness counts as reading, too (Q4, M1)."""
        self._read_at_ms = now_ms
        ballot = self.ballot
        if ballot is not None:
            self.origin = self.origin._replace(incarnation=ballot.incarnation, base=ballot.base)
        self.newest_at_ms, self.newest_term = now_ms, self.term
        self.released_term = -1
        self.release = None
        self._known.clear()  # everybody is met anew
        was = self._become_able(self._why_mute())
        self.stand_at_ms = now_ms if self._lock_suffices() else self._timeout(now_ms)
        if self.muted:
            self._ask_at_ms = now_ms
            return [Record(Event(Code.RECOVERING, self.term, detail=self.muted)), *self._ask(now_ms)]
        return [Record(Event(Code.RECOVERED, self.term, detail=was))] if was else []

    def _why_mute(self) -> str:
        """Empty, or why this node must not speak (M1, M2, Q10)."""
        if self.muted == TWO_BOOTS:
            return TWO_BOOTS
        if self.ballot is None:
            return "no-memory"
        if any(record.hash != self.recovery.own.hash for record in self.ballot.lists):
            return "other-list"
        return ""

    def _ask(self, now_ms: int) -> list[Effect]:
        """Asks whoever has not answered, then decides. Repeated every beat while mute."""
        self._ask_at_ms = now_ms + self.timing.heartbeat_ms
        if self.muted == TWO_BOOTS:
            return self._doubt()  # only a restart helps, after the other machine was stopped
        targets = self.recovery.to_ask(self.ballot)
        if self.recovery.init is not None or self.options.auto:
            init = self.recovery.init or Init(0)
            targets = tuple(sorted({*targets, *self.recovery.first_missing(init)}))
        asked: list[Effect] = [Send(node, self._query()) for node in targets]
        return self._void() + asked + self._decide_mute(now_ms)

    def _query(self) -> Query:
        return Query(self.origin, self.ballot is not None, self.term)

    def _decide_mute(self, now_ms: int) -> list[Effect]:
        """Has enough been heard to speak again, or for a first start?"""
        if self.muted == TWO_BOOTS:
            return []
        if self._is_blank():
            first = self._first_start(now_ms)
            if first:
                return first
        if not self.muted:
            return []
        wall_ms = now_ms + self._wall_offset_ms
        heard = self.recovery.remembered(wall_ms) if self.ballot is None else self.recovery.changed(self.ballot)
        if heard is None:
            return []
        self.ballot = heard._replace(hold_max_ms=max(heard.hold_max_ms, self.timing.hold_ms))
        return self._ballot_read(now_ms)

    def _is_blank(self) -> bool:
        """No memory, or a first ballot of this very list that was never used, which counts as none for `init` (M3)."""
        return self.ballot is None or (self.ballot.term == 0 and self.ballot.lists == (self.recovery.own,))

    def _init_said(self, now_ms: int, init: Init) -> list[Effect]:
        if not self.quorum.votes:
            return [Record(Event(Code.INIT_REFUSED, self.term, detail="this node does not vote"))]
        if not self._is_blank():
            return [Record(Event(Code.INIT_REFUSED, self.term, detail="this node remembers the cluster"))]
        self.recovery.init = init
        self.recovery.reports.clear()  # only answers given after the word count
        asked: list[Effect] = [Send(node, self._query()) for node in self.recovery.first_missing(init)]
        return asked + self._decide_mute(now_ms)

    def _first_start(self, now_ms: int) -> list[Effect]:
        """M3: all have answered blank, so this node writes the first ballot and hands it to each."""
        waited = now_ms - self._read_at_ms >= self.timing.promise_ms
        init = self.recovery.wants_first(waited_long=waited, base=self.ballot.base if self.ballot is not None else 0)
        if init is None or not self.quorum.votes:
            return []
        refused = self.recovery.first_refused(init)
        if refused:
            said, self.recovery.init = self.recovery.init, None
            return [Record(Event(Code.INIT_REFUSED, self.term, detail=refused))] if said else []
        if not self.recovery.first_complete(init):
            return []
        wall_ms = max(init.wall_ms, now_ms + self._wall_offset_ms)
        base = self.recovery.first_base(max(wall_ms, self.ballot.base + 1 if self.ballot is not None else 0))
        self.ballot = self.recovery.first_ballot(base, self.timing.hold_ms, wall_ms, self.ballot)
        self._init_tried = self.recovery.init
        self._offers = self.recovery.take_offers(init)
        self._offer_at_ms = now_ms + self.timing.heartbeat_ms
        effects: list[Effect] = [Record(Event(Code.FIRST_BALLOT, value=base)), *self._ballot_read(now_ms)]
        return effects + self._offer_first()

    def _first_start_failed(self) -> None:
        """The first ballot did not get to the disk: nobody was offered it, and what was asked for is still wanted.

        Kept as offers, the boots that said they are blank would not be heard when they say so again, for ever.
        """
        if self._offers and self.origin.base != (self.ballot.base if self.ballot is not None else 0):
            self._offers = {}
            self.recovery.init, self._init_tried = self._init_tried, None

    def _offer_first(self) -> list[Effect]:
        """To the boots that said they are blank, every beat until each has it.

        Late is as good as early: a boot that was blank when it answered has used nothing of this cluster since.
        """
        ballot = self.ballot
        if ballot is None:
            return []
        return [Send(node, FirstBallot(self.origin, ballot.base, boot)) for node, boot in sorted(self._offers.items())]

    def _offer_again(self, now_ms: int) -> list[Effect]:
        if now_ms < self._offer_at_ms:
            return []
        self._offer_at_ms = now_ms + self.timing.heartbeat_ms
        return self._offer_first()

    def _first_start_again(self) -> list[Effect]:
        """A first start that broke off, with `auto`: the lowest id asks all again.

        Only what is answered now counts: an answer that crossed the first ballot on its way says that its sender has
        none, and founding anew because of it would leave behind whoever has begun to use the first.
        """
        if not (self.options.auto and self._is_blank() and self.quorum.voters[:1] == (self.node,)):
            return []
        self.recovery.reports.clear()
        return [Send(node, self._query()) for node in self.quorum.other_voters]

    def _on_first_ballot(self, now_ms: int, message: FirstBallot) -> list[Effect]:
        """Written before it is confirmed; replaced only by a larger base, and only while it was never used (M3)."""
        sender = message.origin.node
        if message.origin.config != self.origin.config or not self.quorum.votes or sender not in self.quorum.voters:
            return []
        if self.ballot is not None and self.ballot.base == message.base:
            return [Send(sender, FirstBallotTaken(self.origin, message.base))]  # it has it, by whatever way
        if message.echo != self.seat.boot or not self._is_blank() or self.recovery.copy is not None:
            return []  # also one that this boot used and had to give up must not come back
        effects: list[Effect] = []
        if self.ballot is None or message.base > self.ballot.base:
            wall_ms = now_ms + self._wall_offset_ms
            self.ballot = self.recovery.first_ballot(message.base, self.timing.hold_ms, wall_ms, self.ballot)
            self._offers = {}
            effects = [Record(Event(Code.FIRST_BALLOT, value=message.base)), *self._ballot_read(now_ms)]
        if self.ballot.base == message.base:
            effects.append(Send(sender, FirstBallotTaken(self.origin, message.base)))
        return effects

    def _on_query(self, query: Query) -> list[Effect]:
        """Anybody of any list is told: our list (durable in our ballot before this) and what we remember."""
        ballot = self.ballot
        asker = query.origin.node
        seen = self._seen(asker)[0]
        report = Report(
            self.origin,
            echo=query.origin.boot,
            memory=ballot is not None and not ballot.void,
            used=not self._is_blank() or self.recovery.copy is not None or self.recovery.is_left,
            term=self.term,
            hold_max_ms=ballot.hold_max_ms if ballot is not None else 0,
            token_max=max(self._token_known(), self.options.token_max),
            confirmed=tuple((r.hash, r.voters) for r in ballot.lists if r.confirmed) if ballot is not None else (),
            incarnation_seen=max(seen, query.origin.incarnation),
            gave_way=self._gave_way and self.recovery.copy is None,
        )
        return [*self._mark(), Send(asker, report)]

    def _mark(self) -> list[Effect]:
        """Before a node says that it has no memory, its disk knows under which list it does (M3)."""
        if self.ballot is not None or not self.recovery.mark_due:
            return []
        self._voiding = True
        return [Persist(self.recovery.mark())]

    def _token_known(self) -> int:
        """The largest token that the ballot, or an old copy of it, knows of."""
        known = self.ballot or self.recovery.copy
        return known.token_known if known is not None else 0

    def _on_report(self, now_ms: int, report: Report) -> list[Effect]:
        if not report.memory and self._offers.get(report.origin.node) == report.origin.boot:
            return []  # it is being offered a first ballot; that it has none yet is no news
        self.recovery.hear(report)
        return self._decide_mute(now_ms)

    def _meet(self, now_ms: int, message: Message) -> tuple[bool, list[Effect]]:
        """The first message of a boot, or one that does not fit: is its sender of this cluster and list?"""
        origin = message.origin
        about_memory = isinstance(message, Query | Report | FirstBallot | FirstBallotTaken | Stale)
        effects: list[Effect] = []
        if self.ballot is not None and origin.incarnation > 0:
            heard, effects = self._meet_incarnation(now_ms, message)
            if not heard:
                return False, effects
        if origin.config != self.origin.config and origin.node in self.quorum.others:
            self._elsewhere[origin.node] = now_ms
        if about_memory:
            tells = isinstance(message, Query | Report) and message.memory and origin.config == self.origin.config
            return True, effects + (self._give_way(message) if tells else [])
        if origin.config != self.origin.config:
            return False, effects + self._note(Code.OTHER_LIST, origin.node, "it runs under another list or timing")
        if self.ballot is None:
            return False, effects  # without memory it can tell no cluster from another
        if origin.base != self.origin.base:
            return False, effects + self._other_base(message)
        if origin.node not in self.quorum.others:
            return False, effects + self._note(Code.OTHER_LIST, origin.node, "it is not in the list")
        if not isinstance(message, Release):
            self._known[origin.node] = origin
        return True, effects

    def _meet_incarnation(self, now_ms: int, message: Message) -> tuple[bool, list[Effect]]:
        """Q10: an earlier start is dropped and told so; two boots of one start are both muted, and told so, too."""
        origin = message.origin
        assert self.ballot is not None
        newest, boot = self._seen(origin.node)
        if origin.incarnation > newest:
            self._duplicates.discard(origin.node)
            if origin.node in self.quorum.others:
                known = [record for record in self.ballot.seen if record[0] != origin.node]
                seen = sorted([*known, (origin.node, origin.incarnation, origin.boot)])
                self.ballot = self.ballot._replace(seen=tuple(seen))
            return True, []
        if isinstance(message, Release | Stale) or (isinstance(message, Query) and not message.memory):
            return True, []  # what is said of our own start is true, however old the one who heard of it
        if origin.incarnation < newest:  # of the boot that spoke last, it is a late word from before it rose
            return False, [] if origin.boot == boot else self._tell_stale(now_ms, message, newest)
        if origin.boot != boot or origin.node in self._duplicates:
            self._duplicates.add(origin.node)
            self._known.pop(origin.node, None)
            sentence = "two starts of one id speak: neither is heard"
            told = self._tell_stale(now_ms, message, newest)
            return False, [*told, *self._note(Code.TWO_BOOTS, origin.node, sentence)]
        return True, []

    def _tell_stale(self, now_ms: int, message: Message, newest: int) -> list[Effect]:
        """Says that a later, or another, start of the sender was heard; never in answer to a refusal (E1)."""
        if self._is_refusal(message):
            return []
        origin = message.origin
        return self._refuse(now_ms, Send(origin.node, Stale(self.origin, origin.boot, newest)), origin.boot)

    def _seen(self, node: str) -> tuple[int, int]:
        """The highest incarnation heard of a node, and the boot that spoke with it."""
        seen = self.ballot.seen if self.ballot is not None else ()
        return next(((incarnation, boot) for name, incarnation, boot in seen if name == node), (0, 0))

    def _other_base(self, message: Message) -> list[Effect]:
        """Another token base is another cluster; but a first ballot that was never used gives way to one that is."""
        sentence = "its token base is another: another cluster, or another first start"
        return self._give_way(message) or self._note(Code.OTHER_CLUSTER, message.origin.node, sentence)

    def _give_way(self, message: Message) -> list[Effect]:
        """An unused first ballot binds nobody: it gives way to one in use, or else to a larger base (M3).

        Whatever message shows the other one: who is mute sends questions and answers only. One that was used never
        gives way, so that a majority can be in use of one base only.
        """
        ballot, other = self.ballot, message.origin
        if ballot is None or ballot.term > 0 or other.base in (0, ballot.base) or other.node not in self.quorum.voters:
            return []
        if self.muted == TWO_BOOTS:
            return []  # which of two machines this is, an operator must say first (Q10)
        if not shows_use(message) and other.base < ballot.base:
            return []
        self._forget()
        self._gave_way = True
        return [Record(Event(Code.RECOVERING, 0, other.node, "another first start of this cluster counts"))]

    def _forget(self) -> None:
        """The ballot counts no longer: mute until the others tell what they remember (M2)."""
        self.ballot = self._durable = self._earlier = None
        self._offers = {}
        self.recovery.start_over()
        self._become_recovering("no-memory")
        self.origin = self.origin._replace(incarnation=0, base=0)

    def _on_stale(self, now_ms: int, message: Stale) -> list[Effect]:
        """A peer heard a later start of us, or another machine that speaks as this very start (Q10).

        Either way this ballot may be an old copy: durably no memory, or a restart would trust it again. A later start
        is reason to ask the others at once (M2); with two machines, that waits until an operator has stopped one.
        """
        ballot = self.ballot
        if message.echo != self.seat.boot or ballot is None or message.origin.node not in self.quorum.others:
            return []
        if message.incarnation_seen < self.origin.incarnation:
            return []
        later = message.incarnation_seen > self.origin.incarnation
        if self.muted == TWO_BOOTS and not later:
            return []
        code = Code.STALE_INCARNATION if later else Code.TWO_BOOTS
        effects = self._lose(now_ms, code, "this node's identity is in doubt") if self.leader_state is not None else []
        self.recovery.copy = ballot
        voided: list[Effect] = []
        if later:
            self._forget()
            self._void_due = True
            voided = self._void()
        else:
            self._become_recovering(TWO_BOOTS)
            self._doubt()
        detail = "our ballot is an old copy" if later else "another node runs with our id, or our disk is a copy"
        return [*effects, *voided, Record(Event(code, ballot.term, detail=detail))]

    def _doubt(self) -> list[Effect]:
        """Whatever is saved from now on bears the mark; tried again while mute, should the disk refuse it."""
        if self.ballot is not None and not self.ballot.void:
            self.ballot = self.ballot._replace(void=True)
        return []

    def _void(self) -> list[Effect]:
        """Marks the ballot on the disk as an old copy; tried again with every question until it is saved."""
        if not self._void_due or self.recovery.copy is None:
            return []
        self._voiding = True
        return [Persist(self.recovery.mark())]
