"""One peer of mode `mixed`, a, among others that a test speaks for, told as a transcript.

Lines that begin with `>` say what happens; those behind it are all that the peer does about it, in order. Times of
entries are relative to the wall clock of that moment: `+60000` is fresh, `-5` has expired, `0` is no value. A `*`
behind the name of a peer says that it is one of this product: its messages carry a trailer.
"""

from __future__ import annotations

from random import Random
from textwrap import dedent

from primacy.cache import document
from primacy.cache.effects import (
    Call,
    Cancel,
    DropValue,
    Effect,
    Extend,
    Finished,
    Forget,
    ForgetFloor,
    Give,
    KeepAlive,
    Membership,
    Record,
    Refuse,
    SeeOther,
    Send,
    SendEntry,
    StoreCeiling,
    StoreEntry,
    StoreFloor,
    StoreMeta,
)
from primacy.cache.inputs import (
    Asked,
    FloorStored,
    Input,
    Invalidate,
    Put,
    Received,
    Refresh,
    SourceEnded,
    Started,
    TimerPassed,
    ValueGone,
    Withdrawn,
)
from primacy.cache.messages import (
    Announce,
    Answer,
    EntryRequest,
    FloorAck,
    FloorAnswer,
    FloorQuery,
    FloorSet,
    Message,
    Ping,
    Pong,
    Question,
    Trailer,
    Update,
)
from primacy.cache.model import (
    ALL,
    NO_BALLOT,
    Ballot,
    CacheSettings,
    Failure,
    Fetched,
    Floor,
    Meta,
    Mode,
    PeerAddress,
    SourceSettings,
)
from primacy.settings.timing_cache import CACHE_PROFILES

WALL_MS = 1_700_000_000_000
BOOT = 7
THEIR_BOOT = 9
SETTINGS = CacheSettings(
    timing=CACHE_PROFILES["ha-cache"], mode=Mode.MIXED, sources=(SourceSettings(ttl_ms=60_000, limit_ms=30_000),)
)


class Least(Random):
    """Chance that always falls on the smallest number, so that transcripts have one outcome."""

    def randint(self, a: int, b: int) -> int:
        assert a <= b
        return a


def addresses(names: str) -> tuple[PeerAddress, ...]:
    return tuple(PeerAddress(name, f"api-{name}") for name in names)


class Bench:
    """The peer a, its clock, and what it has done."""

    def __init__(
        self,
        names: str = "abc",
        settings: CacheSettings = SETTINGS,
        stored: dict[bytes, Meta] | None = None,
        quiet: bool = False,
        boot: int = BOOT,
    ) -> None:
        self.now_ms = 50_000
        self.wall_ms = WALL_MS
        self.machine = document.DocumentMachine("a", addresses(names), settings, Least())
        self.calls: dict[bytes, Ballot] = {}
        self.all: list[Effect] = []
        self.give(Started(boot, stored or {}))
        if not quiet:
            self.pass_ms(2_000)
            self.all.clear()

    # --- in -----------------------------------------------------------------------------------------------------------

    def give(self, given: Input) -> list[Effect]:
        effects = self.machine.step(self.now_ms, self.wall_ms, given)
        self.all += effects
        for effect in effects:
            if isinstance(effect, Call):
                self.calls[effect.key] = effect.ballot
        return effects

    def pass_ms(self, span_ms: int) -> list[str]:
        """Every timer on its millisecond; each line begins with how much of the time had passed."""
        told: list[str] = []
        end_ms = self.now_ms + span_ms
        for _ in range(10_000):
            due_ms = self.machine.deadline_ms
            if due_ms is None or due_ms > end_ms:
                break
            self.wall_ms += max(0, due_ms - self.now_ms)
            self.now_ms = max(self.now_ms, due_ms)
            told += [f"{span_ms - (end_ms - self.now_ms)}: {line}" for line in self.words(self.give(TimerPassed()))]
        else:
            raise AssertionError("the deadline does not move on")
        self.wall_ms += end_ms - self.now_ms
        self.now_ms = end_ms
        return told

    def freeze(self, span_ms: int) -> None:
        """The process stands still: nothing is read and no timer runs."""
        self.now_ms += span_ms
        self.wall_ms += span_ms

    def at(self, text: str) -> int:
        return 0 if text == "0" else self.wall_ms + int(text)

    # --- a transcript -------------------------------------------------------------------------------------------------

    def play(self, transcript: str) -> None:
        given = ""
        told: list[str] = []
        for line in [*dedent(transcript).strip().splitlines(), "> end"]:
            if not line.startswith(">"):
                assert told, f"{given!r}: nothing (more) was done, {line.strip()!r} was expected"
                assert told.pop(0) == line.strip(), given
                continue
            assert told == [], f"{given!r}: not expected"
            given = line[1:].strip()
            told = self.command(*given.split(" "))

    def command(self, word: str, *rest: str) -> list[str]:
        match word, *rest:
            case "end", *_:
                return []
            case "pass", span, "ms":
                return self.pass_ms(int(span))
            case "freeze", span, "ms":
                self.freeze(int(span))
                return []
            case "ask", request, key, *options:
                return self._asked(int(request), key.encode(), dict(option.split("=") for option in options))
            case "gone", request:
                return self.words(self.give(Withdrawn(int(request))))
            case "fetched", key, value, *ttl:
                result = Fetched(value.encode(), int(ttl[0]) if ttl else None)
                return self.words(self.give(SourceEnded(key.encode(), self.calls[key.encode()], result)))
            case "failed", key, *reason:
                result = Failure(" ".join(reason))
                return self.words(self.give(SourceEnded(key.encode(), self.calls[key.encode()], result)))
            case "evicted", key:
                gone = ValueGone(key.encode(), self.machine._state.meta(key.encode()).epoch)
                return self.words(self.give(gone))
            case "invalidate", request, key:
                return self.words(self.give(Invalidate(int(request), key.encode())))
            case "invalidate", request, key, "prefix":
                return self.words(self.give(Invalidate(int(request), key.encode(), prefix=True)))
            case "stored", "floor", key, term:
                return self.words(self.give(FloorStored(Floor(key.encode(), False, int(term)))))
            case "refresh", request, key:
                return self.words(self.give(Refresh(int(request), key.encode())))
            case "put", request, key, value, ttl:
                return self.words(self.give(Put(int(request), key.encode(), value.encode(), int(ttl))))
        return self.words(self.give(Received(word[0], self._message(word, rest))))

    def _asked(self, request: int, key: bytes, options: dict[str, str]) -> list[str]:
        after_ms = self.at(options.get("after", "0")) if "after" in options else 0
        until_ms = self.now_ms + int(options["until"]) if "until" in options else None
        fetch, offers = options.get("fetch", "yes") == "yes", "offers" in options
        return self.words(self.give(Asked(request, key, after_ms, fetch, offers, until_ms)))

    def _message(self, word: str, rest: tuple[str, ...]) -> Message:
        ours = word.endswith("*")
        kind, *fields = rest
        options = {name: value for name, _, value in (field.partition("=") for field in fields if "=" in field)}
        fields = [field for field in fields if "=" not in field]
        key = fields[0].encode() if fields else b""
        trailer = self._trailer(word[0], options) if ours else None
        match kind:
            case "QUESTION":
                return Question(key, int(fields[1]), trailer)
            case "ANSWER":
                return Answer(key, int(fields[1]), self.at(fields[2]), fields[3] == "yes", trailer)
            case "ENTRYREQ":
                return EntryRequest(key, trailer)
            case "UPDATE":
                return Update(key, int(fields[1]), self.at(fields[2]), fields[3].encode(), trailer)
            case "ANNOUNCE":
                return Announce(key, int(fields[1]), self.at(fields[2]), trailer)
            case "PING":
                return Ping(trailer)
            case "PONG":
                return Pong(trailer)
        assert trailer is not None, kind
        match kind:
            case "FLOORQUERY":
                return FloorQuery(key, False, int(fields[1]), trailer)
            case "FLOORANSWER":
                return FloorAnswer(key, False, int(fields[1]), int(fields[2]), trailer)
            case "FLOORSET":
                return FloorSet(Floor(key, False, int(fields[2])), int(fields[1]), trailer)
            case "FLOORACK":
                return FloorAck(Floor(key, False, int(fields[2])), int(fields[1]), 0, trailer)
        raise AssertionError(kind)

    def _trailer(self, peer: str, options: dict[str, str]) -> Trailer:
        """`term=` of the ballot of that peer (or of ours, in an ANSWER), `epoch=` of its value, `need=`, `ended=`."""

        def ballot(text: str) -> Ballot:
            term, _, owner = text.partition(":")
            owner = owner or peer
            return Ballot(int(term), owner, BOOT if owner == "a" else THEIR_BOOT)

        return Trailer(
            boot=THEIR_BOOT,
            echo=BOOT,
            ballot=ballot(options["term"]) if "term" in options else NO_BALLOT,
            epoch=ballot(options["epoch"]) if "epoch" in options else NO_BALLOT,
            need=int(options.get("need", "0")),
            ended="ended" in options,
        )

    # --- out ----------------------------------------------------------------------------------------------------------

    def words(self, effects: list[Effect]) -> list[str]:
        return [word for word in map(self._word, effects) if word]

    def _when(self, expire_ms: int) -> str:
        return "0" if expire_ms == 0 else f"{expire_ms - self.wall_ms:+d}"

    def _word(self, effect: Effect) -> str:
        match effect:
            case Send(to, message):
                return f"to {'all' if to == ALL else to}: {self._message_word(message)}"
            case SendEntry(to, Update(key, term, expire_ms)):
                return f"to {to}: UPDATE {key.decode()} {term} {self._when(expire_ms)} stored"
            case StoreEntry(key, meta, value):
                return f"store {key.decode()} = {value.decode()} {self._when(meta.expire_ms)}"
            case DropValue(key):
                return f"drop {key.decode()}"
            case Forget(key):
                return f"forget {key.decode()}"
            case StoreFloor(Floor(key, prefix, term)):
                return f"store floor {key.decode()}{'*' if prefix else ''} {term}"
            case ForgetFloor(Floor(key, _, term)):
                return f"forget floor {key.decode()} {term}"
            case Call(key, ballot):
                return f"call {key.decode()} in term {ballot.term}"
            case Cancel(key):
                return f"cancel {key.decode()}"
            case Give(request, key, _, stale):
                return f"client {request}: {'STALE' if stale else 'VALUE'} {key.decode()}"
            case KeepAlive(request):
                return f"client {request}: KEEPALIVE"
            case SeeOther(request, miss):
                return f"client {request}: {'MISS' if miss else 'SEEOTHER'}"
            case Refuse(request, reason):
                return f"client {request}: REFUSED {reason}"
            case Finished(request, ok, reason):
                return f"request {request}: {'done' if ok else 'not done'} {reason}".strip()
            case StoreMeta() | Extend() | Record() | Membership() | StoreCeiling():
                return ""
        raise AssertionError(effect)

    def _message_word(self, message: Message) -> str:
        match message:
            case Question(key, term, trailer):
                need = f" need={trailer.need}" if trailer is not None and trailer.need else ""
                return f"QUESTION {key.decode()} {term}{need}"
            case Answer(key, term, expire_ms, vote, trailer):
                ended = " ended" if trailer is not None and trailer.ended else ""
                return f"ANSWER {key.decode()} {term} {self._when(expire_ms)} {'yes' if vote else 'no'}{ended}"
            case EntryRequest(key):
                return f"ENTRYREQ {key.decode()}"
            case Update(key, term, expire_ms, value):
                return f"UPDATE {key.decode()} {term} {self._when(expire_ms)} {value.decode()}"
            case Announce(key, term, expire_ms):
                return f"ANNOUNCE {key.decode()} {term} {self._when(expire_ms)}"
            case FloorQuery(key, _, number):
                return f"FLOORQUERY {key.decode()} {number}"
            case FloorAnswer(key, _, number, term):
                return f"FLOORANSWER {key.decode()} {number} {term}"
            case FloorSet(floor, number):
                return f"FLOORSET {floor.key.decode()} {number} {floor.term}"
            case FloorAck(floor, number):
                return f"FLOORACK {floor.key.decode()} {number} {floor.term}"
        return type(message).__name__.upper()


def meta(term: int, expires: int, bench_wall_ms: int = WALL_MS, voted: str = "") -> Meta:
    """Of a stored value of an original: `expires` counts from the start of the bench."""
    return Meta(term, bench_wall_ms + expires if expires else 0, size=1, voted=voted)
