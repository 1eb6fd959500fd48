"""The shell of the membership machine: sockets, clock and disk. The ports `Transport` and `MembershipManager`.

It performs what `machine.py` asks for and tells it what happened, one input at a time; it decides nothing. Requests
come from `http_server.py`, calls are made by `http_client.py`. Before each step the machine is told whom the election
takes for the leader, if that is another one now.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, assert_never

from primacy.election.inputs import DeadlinePassed, Received
from primacy.election.inputs import Input as ElectionInput
from primacy.election.messages import Message, Release
from primacy.errors import CannotHere, InUse, NotReached, Refused
from primacy.membership.http_wire import Asked, Credentials, Reply
from primacy.membership.machine import MembershipMachine
from primacy.membership.state import Identity, JoinPlan
from primacy.membership.vocabulary import (
    REPLIES,
    Abandoned,
    Begin,
    Call,
    CallEnded,
    Close,
    Complain,
    Done,
    Effect,
    Ending,
    Fail,
    Input,
    JoinAt,
    Keep,
    LeaderIs,
    Outgoing,
    Overheard,
    Remove,
    Requested,
    Respond,
    Settle,
    Tell,
    Told,
    Word,
)
from primacy.settings.timing import RankTiming
from primacy.transport import Hear, Overhear, ReadyDatagram, Trouble, ignored
from primacy.transport.layout import packed_word
from primacy.transport.link_cuts import LinkCuts

SETTLE_S = 2.0
"""For the last calls of a node that ends: the next leader is told to stand."""


class HttpTransport:
    """One node's end. Set `give` and `leader` before `start`; both are the driver's side of it."""

    def __init__(
        self,
        identity: Identity,
        listen: str,
        credentials: tuple[Credentials, ...],
        timing: RankTiming,
        plan: JoinPlan,
        complain: Callable[[str], None],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        keep: Callable[[dict[str, Any]], None] = lambda _: None,
        tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    ) -> None:
        """`credentials`: the first is used, all are accepted. `keep` writes the list. `tls`: of the server, of the
        client."""
        # aiohttp is loaded by those who need it: it takes as long as everything else of a node's start
        from primacy.membership.http_client import ManagerClient  # noqa: PLC0415
        from primacy.membership.http_server import ManagerServer  # noqa: PLC0415

        self.identity = identity
        self.node = identity.node
        self.listen = listen
        self.plan = plan
        self.complain = complain
        self.links = LinkCuts()
        self.machine = MembershipMachine(identity, timing, plan, credentials, wall_ms(), self.links)
        self.member_list = self.machine.state.member_list
        self.client = ManagerClient(credentials[0].header, tls[1] if tls else None)
        self.server = ManagerServer(self._answer, complain)
        self.give: Callable[[ElectionInput], None] = lambda _: None
        self.leader: Callable[[], tuple[str, bool]] = lambda: ("", False)
        """Whom the election takes for the leader, and whether that is this node."""
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._keep = keep
        self._server_tls = tls[0] if tls else None
        self._hear: Hear = lambda _: None
        self._overhear: Overhear = ignored
        self._slot: list[Message] | None = None
        self._slot_for = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = 0
        self._waited_for: dict[int, asyncio.Future[Any]] = {}
        """By number: what the machine will answer."""
        self._leader = ("", False)
        self._waiting: deque[Input] = deque()
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None

    # --- the machine --------------------------------------------------------------------------------------------------

    def _tell(self, given: Input) -> None:
        """Now, or after the inputs that came before: what a port says while it is used comes after this step."""
        self._waiting.append(given)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                self._step(self._waiting.popleft())
        finally:
            self._busy = False
            self._arm()

    def _step(self, given: Input) -> None:
        now_ms, leader = self._now_ms(), self.leader()
        if leader != self._leader:
            self._leader = leader
            self.machine.step(now_ms, LeaderIs(*leader))
        for effect in self.machine.step(now_ms, given):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Call():
                self._spawn(self._call(effect))
            case Respond(number, found) | Done(number, found):
                if (waiting := self._waited_for.get(number)) is not None and not waiting.done():
                    waiting.set_result(found)
            case Tell(given, number, sender):
                answer = self._told(given, sender)
                if number:
                    self._waiting.appendleft(Told(number, answer))
            case Overheard(node, boot, row):
                self._overhear(node, boot, row)
            case Keep(kept):
                self._keep(kept)
            case Complain(sentence):
                self.complain(sentence)
            case Fail(error, number):
                if (waiting := self._waited_for.get(number)) is not None and not waiting.done():
                    waiting.set_exception(error)
                else:
                    self._say_fault(error)
            case _:
                assert_never(effect)

    def _told(self, given: ElectionInput, sender: str) -> Message | None:
        """What the election answers the sender in the same step."""
        if not isinstance(given, Received):
            self.give(given)
            return None
        assert self._slot is None
        self._slot, self._slot_for = [], sender
        try:
            self._hear(given.message)
            return self._slot[0] if self._slot else None
        finally:
            self._slot = None

    def _arm(self) -> None:
        due_ms = self.machine.deadline_ms
        if due_ms == self._armed_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_ms = due_ms
        if due_ms is not None:
            span_s = max(0, due_ms - self._now_ms()) / 1_000
            self._timer = asyncio.get_running_loop().call_later(span_s, self._due)

    def _due(self) -> None:
        self._timer = self._armed_ms = None
        self._tell(DeadlinePassed())

    async def _call(self, call: Call) -> None:
        found = await self.client.call(call.method, call.addr, call.path, call.body, call.said, call.limit_s)
        self._tell(CallEnded(call.number, found))

    async def _answer(self, asked: Asked) -> Reply | None:
        number = self._number()
        reply: Reply | None = await self._result(number, Requested(number, self._wall_ms(), asked), Abandoned(number))
        return reply

    async def _result(self, number: int, given: Input, otherwise: Input | None = None) -> Any:
        """What the machine answers this; `otherwise` it is told that nobody waits any more."""
        waiting = self._waited_for[number] = asyncio.get_running_loop().create_future()
        try:
            self._tell(given)
            return await waiting
        finally:
            del self._waited_for[number]
            if otherwise is not None and (not waiting.done() or waiting.cancelled()):
                self._tell(otherwise)

    def _number(self) -> int:
        self._asked += 1
        return self._asked

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._say_fault(fault)

    def _say_fault(self, fault: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a call of the manager failed", "exception": fault}
        )

    # --- the ports ----------------------------------------------------------------------------------------------------

    @property
    def counters(self) -> dict[str, int]:
        state = self.machine.state
        now = {"connections": self.server.connections, "hung_up": self.server.hung_up, "pace": state.pace.factor}
        return {**state.counters, **now}

    @property
    def troubles(self) -> list[Trouble]:
        return self.machine.troubles(self._now_ms())

    @property
    def nodes(self) -> tuple[tuple[str, str], ...]:
        return tuple((entry.node, entry.addr) for entry in self.member_list.listed)

    async def start(self, hear: Hear, overhear: Overhear = ignored) -> None:
        """Listens first, and joins afterwards: what is announced meanwhile must not be lost."""
        self._hear, self._overhear = hear, overhear
        listening = self._listening()
        self.client.open()
        await self.server.open(listening, self._server_tls)
        number = self._number()
        if why := await self._result(number, Begin(number)):
            raise NotReached(why)

    def send(self, to: str, message: Message) -> None:
        if not isinstance(message, REPLIES):
            self._tell(Outgoing(to, message))
        elif self._slot is not None and to == self._slot_for:
            self._slot.append(message)

    def tell(self, to: str, row: list[Any], only: int = 0, *, later: bool = False) -> int:
        self._tell(Word(to, packed_word(row), only, later))
        return self.machine.boot_of(to)

    def ready_release(self, release: Release) -> list[ReadyDatagram]:  # noqa: ARG002
        """There is no hold to release here."""
        return []

    async def join(self, addr: str) -> None:
        self._must_grow()
        number = self._number()
        if why := await self._result(number, JoinAt(number, addr)):
            raise NotReached(f"{addr} {why}")

    def remove(self, node: str) -> None:
        self._must_grow()
        self._tell(Remove(node, self._wall_ms()))

    def _must_grow(self) -> None:
        if self.plan.fixed:
            raise Refused("the list of this cluster is a fixed one: change cluster.manager.nodes, on all nodes")

    def end(self) -> None:
        """Soon: nobody is taken in any more."""
        self._tell(Ending())

    async def settle(self) -> None:
        """The calls that are under way end, within a limit: the next leader is told to stand. Looks tell nobody."""
        number = self._number()
        try:
            async with asyncio.timeout(SETTLE_S):
                await self._result(number, Settle(number))
        except TimeoutError:
            pass

    def close(self) -> None:
        """At once. `aclose` is the one that lets calls end and waits for the sockets."""
        if not self.machine.state.closed:
            self._tell(Close())
        for task in tuple(self._tasks):
            task.cancel()

    async def aclose(self) -> None:
        self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.server.close()
        await self.client.close()
        if self._timer is not None:
            self._timer.cancel()
        for _ in range(2):  # what was closed is told to the loop, and done in its next turn
            await asyncio.sleep(0)

    def _listening(self) -> socket.socket:
        host, _, port = self.listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        setting = f"cluster.manager.nodes.{self.node}.bind" if self.plan.fixed else "cluster.manager.addr"
        try:
            found = socket.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
            return socket.create_server(address[:2], family=family, backlog=512)
        except socket.gaierror:
            raise CannotHere(f"the manager's address {self.listen} cannot be resolved; correct {setting}") from None
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise InUse(
                f"the manager cannot listen on {self.listen}: {why}; end what has it (ss -ltnp shows it), or choose "
                f"another {setting}"
            ) from None
