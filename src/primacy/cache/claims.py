"""Retrievals that are handed to a waiting client: claims. The peer's side; the client's stands in `client_claims.py`.

A key without a source is fetched by one of the clients that wait for it and offered to. The elected peer gives that
client a claim, which names the ballot. The client says that it is alive while it works, and reports the value, a
failure, or that it lets go. It is the peer that holds the ballot: where the client falls silent, or the hold
ends, the claim is void, and what is reported later is dropped. The function in the client's process cannot be ended
from here (U1).

Everything else goes to the calls that this stands in front of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from primacy.cache.driver import Calls
from primacy.cache.effects import Call, Cancel, Extend
from primacy.cache.inputs import Input, SourceEnded, Withdrawn
from primacy.cache.model import Ballot, Failure, Fetched
from primacy.cache.serving import Remote, Serving
from primacy.cache.wire_client import CLAIMED, DONE, Answer, ClaimRequest, Remark
from primacy.node.clock import Clock

ALIVE, VALUE, FAILED, RELEASED = "alive", "value", "failed", "released"
SILENT_MS = 1_500
"""A client with a claim that was not heard for so long has lost it. It speaks every `ALIVE_MS`."""
ALIVE_MS = 250


class _Given:
    """A claim that a client has."""

    __slots__ = ("asker", "call", "heard_ms", "timer")

    def __init__(self, call: Call, asker: Remote, now_ms: int) -> None:
        self.call, self.asker, self.heard_ms = call, asker, now_ms
        self.timer: asyncio.TimerHandle | None = None


class ClaimCalls:
    """Calls of one peer: by its sources, or by clients that offered."""

    def __init__(
        self,
        inner: Calls,
        serving: Serving,
        has_source: Callable[[bytes], bool],
        stored: Callable[[bytes, Ballot], bool],
        tell: Callable[[Input], None],
        clock: Clock,
    ) -> None:
        """`stored`: whether the value of this epoch is what the peer has."""
        self._inner, self._serving, self._has_source = inner, serving, has_source
        self._stored = stored
        self._tell, self._clock = tell, clock
        self._given: dict[tuple[bytes, Ballot], _Given] = {}
        self.given = self.lost = 0
        """Claims that were given, and those whose client fell silent."""
        serving.claimed = self._claimed

    # --- the port of calls --------------------------------------------------------------------------------------------

    def start(self, call: Call) -> None:
        if self._has_source(call.key):
            self._inner.start(call)
            return
        for request in call.offers:
            asker = self._serving.asker(request)
            if asker is not None:
                self._give(call, request, asker)
                return
        self._tell(SourceEnded(call.key, call.ballot, Failure("nobody who could fetch it waits", released=True)))

    def _give(self, call: Call, request: int, asker: Remote) -> None:
        """The request does not wait any more: its client has the claim instead of an answer."""
        given = self._given[call.key, call.ballot] = _Given(call, asker, self._clock.now_ms())
        self.given += 1
        self._serving.withdraw(request)
        self._tell(Withdrawn(request))
        ballot = call.ballot
        remark = Remark(ballot.peer, term=ballot.term, boot=ballot.boot, hold_ms=SILENT_MS)
        self._serving.answer(asker, Answer(asker.id, CLAIMED, remark=remark))
        self._look(given)

    def extend(self, extend: Extend) -> None:
        if (extend.key, extend.ballot) not in self._given:
            self._inner.extend(extend)

    def cancel(self, cancel: Cancel) -> None:
        given = self._given.get((cancel.key, cancel.ballot))
        if given is None:
            self._inner.cancel(cancel)
        else:
            self._void(given, "its hold has ended")

    async def close(self) -> None:
        for given in tuple(self._given.values()):
            self._void(given, "this peer ends")
        await self._inner.close()

    # --- from clients -------------------------------------------------------------------------------------------------

    def _claimed(self, request: ClaimRequest, client: Remote) -> None:
        """What a client reports. Only the one that was given the claim is heard about it."""
        report = request.report
        given = self._given.get((request.key, report.ballot))
        if report.state == RELEASED and given is None:
            # A client whose call was answered elsewhere knows the ballot and its id, and the key no more.
            given = next((one for one in self._given.values() if one.call.ballot == report.ballot), None)
        if given is None or (given.asker.identity, given.asker.id) != (client.identity, client.id):
            self._say(client, ok=False, reason="the claim is void")
            return
        given.heard_ms = self._clock.now_ms()
        match report.state:
            case "alive":
                self._serving.answer(client, Answer(client.id, b""))
            case "value":
                self._end(given, Fetched(report.value, report.ttl_ms or None))
                used = self._stored(request.key, report.ballot)
                self._say(client, used, "" if used else "the claim is void: its hold had ended")
            case "failed":
                self._end(given, Failure(report.reason or "the function failed"))
                self._say(client)
            case "released":
                self._end(given, Failure("it was let go", released=True))
                self._say(client)

    def _say(self, client: Remote, ok: bool = True, reason: str = "") -> None:
        self._serving.answer(client, Answer(client.id, DONE, remark=Remark(error=reason, ok=ok)))

    def _look(self, given: _Given) -> None:
        """The client must not be silent for long."""
        silent_ms = self._clock.now_ms() - given.heard_ms
        if silent_ms >= SILENT_MS:
            self.lost += 1
            self._void(given, "the client that had the claim was silent")
            return
        given.timer = asyncio.get_running_loop().call_later((SILENT_MS - silent_ms) / 1_000, self._look, given)

    def _void(self, given: _Given, reason: str) -> None:
        """The client has lost it, and is told; another may be given the next one."""
        self._say(given.asker, ok=False, reason=f"the claim is void: {reason}")
        self._end(given, Failure(reason, released=True))

    def _end(self, given: _Given, result: Fetched | Failure) -> None:
        """The ballot's call is over, as far as anybody here can say."""
        if given.timer is not None:
            given.timer.cancel()
        del self._given[given.call.key, given.call.ballot]
        self._tell(SourceEnded(given.call.key, given.call.ballot, result))
