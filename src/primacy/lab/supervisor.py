"""The supervisor of a lab: holds its nodes, takes orders from the API and the script, and ends all of it in order.

The lab belongs to the thread that runs this (the main one, for signals are heard there); the API runs beside it and
hands its orders over. A signal ends the lab in order; a second one, at once; and if this process is killed, the kernel
ends the nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from primacy import __version__
from primacy.control import ADDRESS_FILE
from primacy.control.client import FoundNode, ask
from primacy.control.eventlog import EventLog
from primacy.control.key import own_key, write_whole
from primacy.control.when import instant
from primacy.errors import NotReached, PrimacyError
from primacy.lab.cluster import Lab, Row, acts, leader_of
from primacy.lab.lab_server import Act, LabOrder, LabServer, serve
from primacy.lab.place import free_ports

API = 1
LOOK_S = 0.02
"""How often a wait looks, and takes orders."""
INTERVAL_MS = 100
"""How often the signer signs."""
SIGNER = Path(__file__).with_name("signer.py")
CHAIN = "chain"
WAITING_MAX = 64

Answer = TypeVar("Answer")


class Ended(Exception):
    """A signal asked for the end, or the time is over (number 0)."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name if number else "the time is over")
        self.number = number


class Ending(NamedTuple):
    """How a fault ends by itself."""

    due_s: float
    """On the monotonic clock."""
    act: Act
    text: str
    node: str


class Supervisor:
    """One lab, with its API. Use it as a context: it is up inside, and gone afterwards."""

    def __init__(
        self,
        where: str | Path,
        nodes: int,
        profile: str,
        command: tuple[str, ...],
        say: Callable[[str], None],
        strategy: str = "raft",
    ) -> None:
        """Without a command, the nodes run the signer, and a chain takes its signatures."""
        self.say = say
        (chain_port,) = free_ports(1, socket.SOCK_STREAM) if not command else (0,)
        self.chain_at = f"127.0.0.1:{chain_port}" if chain_port else ""
        signer = (sys.executable, "-I", "-S", str(SIGNER), self.chain_at, str(INTERVAL_MS))
        self.lab = Lab(where, nodes, profile, command or signer, strategy=strategy)
        self.asked = 0
        """The signal that asked for the end."""
        self.end_s = float("inf")
        """When the time is over, on the monotonic clock."""
        self.chain_code: int | None = None
        """What the chain ended with: 1 if it saw a double signature."""
        self.last_chain: dict[str, Any] | None = None
        """What the chain had seen at the end."""
        self.lab.on_wait = self._check_asked
        self._orders: queue.SimpleQueue[tuple[LabOrder, Future[None]]] = queue.SimpleQueue()
        self._endings: dict[str, Ending] = {}
        """What ends by itself, by what it is done to."""
        self._heard: dict[int, Any] = {}
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=WAITING_MAX)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        folder = self.lab.place.folder
        self.events = EventLog(folder, self.complain, keeps_day=False)
        self._key = own_key(folder)
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread: threading.Thread | None = None

    # --- from start to end --------------------------------------------------------------------------------------------

    def __enter__(self) -> Supervisor:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                self._heard[number] = signal.signal(number, self._hear)
        try:
            self._serve()
            if self.chain_at:
                call = [sys.executable, "-m", "primacy.cli.main", "lab", "chain", "--listen", self.chain_at]
                self.lab.assist(CHAIN, call)
                self.lab.until(self.chain, "an answer of the chain")
            self.lab.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """In order; asked again, at once."""
        self.lab.on_wait = lambda: None
        try:
            self.last_chain = self.chain()
            self._close_api()
            self.lab.close()
        except KeyboardInterrupt:
            self.lab.drop()
        finally:
            helper = self.lab.helpers.get(CHAIN)
            self.chain_code = helper.exit_code if helper is not None else None
            for number, before in self._heard.items():
                # one that was asked to end is about to: nobody kills it while it removes its folder
                signal.signal(number, signal.SIG_IGN if self.asked else before)

    def _hear(self, number: int, _: object) -> None:
        """Between two looks, not in the midst of something; a second time, now."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = number

    def _check_asked(self) -> None:
        if self.asked or time.monotonic() > self.end_s:
            raise Ended(self.asked)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def rest(self, seconds: float) -> None:
        """Time passes, and orders are taken. Raises `Ended`."""
        last_s = time.monotonic() + seconds
        while (left_s := last_s - time.monotonic()) > 0:
            self._check_asked()
            if not self._take():
                time.sleep(min(left_s, LOOK_S))

    def until(self, check: Callable[[], Answer], what: str, within_s: float) -> Answer:
        """Looks until it is so, and takes orders. Raises `Ended`, or `NotReached`."""
        last_s = time.monotonic() + within_s
        while not (found := check()):
            if time.monotonic() > last_s:
                raise NotReached(f"waited {within_s:g} s for {what}, in vain; see {self.lab.place.path}/logs")
            self.rest(LOOK_S)
        return found

    def _take(self) -> bool:
        """One order, or the end of a fault, if there is any. Never waits in the queue: `SimpleQueue.get` with a limit
        waits for ever if a signal comes just before that limit (CPython 3.11: what is left is negative then, which
        means no limit)."""
        if self._end_due():
            return True
        try:
            order, told = self._orders.get_nowait()
        except queue.Empty:
            return False
        try:
            self._perform(order)
        except Exception as error:  # noqa: BLE001  (whoever gave the order is told)
            told.set_exception(error)
        else:
            told.set_result(None)
        return True

    def _perform(self, order: LabOrder) -> None:
        """What was to end by itself is ended by this, or begins anew."""
        self.act(order.act, order.text, order.node)
        self._endings.pop(order.of, None)
        if order.ending is not None:
            due_s = time.monotonic() + order.for_ms / 1_000
            self._endings[order.of] = Ending(due_s, order.ending, order.ending_text, order.node)

    def _end_due(self) -> bool:
        """Ends a fault whose time is over, by whomever it was asked for, and also if that one is gone."""
        now_s = time.monotonic()
        due = next((of for of, ending in self._endings.items() if ending.due_s <= now_s), None)
        if due is None:
            return False
        ending = self._endings.pop(due)
        try:
            self.act(ending.act, ending.text, ending.node)
        except PrimacyError as error:  # a person has ended it already, or the node has died meanwhile
            self.complain(f"{ending.text}: {error}")
        return True

    def act(self, act: Act, text: str, node: str = "") -> None:
        """Does something to the lab, and writes it down before what comes of it, with how long it took."""
        now_ms = time.time_ns() // 1_000_000
        act(self.lab)
        took_ms = time.time_ns() // 1_000_000 - now_ms
        self._loop.call_soon_threadsafe(self.events.add, now_ms, node, 0, "lab", text, max(0, took_ms))

    # --- for the API --------------------------------------------------------------------------------------------------

    def submit(self, order: LabOrder) -> Future[None]:
        told: Future[None] = Future()
        self._orders.put((order, told))
        return told

    def complain(self, sentence: str) -> None:
        self.say(sentence)

    def document(self) -> dict[str, Any]:
        rows = self.lab.look()
        return {
            "api": API,
            "version": __version__,
            "folder": str(self.lab.place.path),
            "pid": os.getpid(),
            "at": instant(time.time_ns() // 1_000_000),
            "strategy": self.lab.strategy,
            "profile": self.lab.profile,
            "command": list(self.lab.command),
            "nodes": [row._asdict() for row in rows],
            "leader": leader_of(rows) or None,
            "acting": self.acting(rows),
            "cuts": self.lab.links.listed(),
            "chain": {"address": self.chain_at, **(self.chain() or {})} if self.chain_at else None,
        }

    def acting(self, rows: list[Row]) -> list[str]:
        """Who claims to run the command. The nodes are asked one after the other, so that a handover in between looks
        like two: only those that still claim it when they are asked once more do."""
        claim = [row.node for row in rows if acts(row.state)]
        return claim if len(claim) < 2 else [name for name in claim if acts(self.lab.state(name))]

    def chain(self) -> dict[str, Any] | None:
        """What the chain shows; None if there is none, or it does not answer."""
        said: dict[str, Any] | None = self.ask_chain("/v1/chain")
        return said

    def ask_chain(self, path: str) -> Any:
        if not self.chain_at:
            return None
        host, _, port = self.chain_at.rpartition(":")
        try:
            return ask(FoundNode(host, int(port), ""), path)
        except PrimacyError:
            return None

    # --- how ----------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        host, port = self._listening.getsockname()
        server = LabServer(self, self.lab.tails(), self.events, self._key, host)
        up = threading.Event()
        self._thread = threading.Thread(target=self._run_api, args=(server, up.set), name="api", daemon=True)
        self._thread.start()
        up.wait()
        said = {"host": host, "port": port, "pid": os.getpid(), "node": "lab"}
        write_whole(self.lab.place.folder, ADDRESS_FILE, json.dumps(said).encode())

    def _run_api(self, server: LabServer, ready: Callable[[], None]) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(serve(server, self._listening, self._over, ready))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _refuse_orders(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                _, told = self._orders.get_nowait()
                told.set_exception(NotReached("the lab is ending"))

    def _close_api(self) -> None:
        self._refuse_orders()
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self._listening.close()
        self.events.close()
        with contextlib.suppress(FileNotFoundError):
            (self.lab.place.path / ADDRESS_FILE).unlink()
