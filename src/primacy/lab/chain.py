"""`primacy lab chain`: stands for the outside system that must never see two signers (the single executor's chain).

A thin server around the ledger: signatures come in, the last ones are served as JSON and as server-sent events. It ends
with 1 if a double signature was seen.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from primacy.control.loopback import LOOPBACK, LoopbackServer, body_of, number_of, refusal, sent_event, wants_stream
from primacy.errors import InUse, UsageError
from primacy.lab.ledger import SIGNATURES_MAX, Ledger, Signature, Signer, Verdict
from primacy.lab.screen import counted
from primacy.settings.accepted import NAME_PATTERN

API = 1
SHOWN = 50
"""Signatures in the document; the others are asked for."""
NUMBER_MAX = 2**53
INTERVAL_MS_MAX = 3_600_000
EXIT_DOUBLE = 1
WAITING_MAX = 64


class ChainServer(LoopbackServer):
    """Serves one ledger. Signing needs no key: the token is what is checked here."""

    def __init__(self, ledger: Ledger, host: str, complain: Callable[[str], None]) -> None:
        super().__init__("", host, complain)
        self.ledger = ledger
        self.wakers: set[Callable[[], None]] = set()

    @property
    def newest(self) -> int:
        return self.ledger.newest

    def after(self, number: int, /) -> list[Signature]:
        return self.ledger.after(number)

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/healthz", self.healthz)
        router.add_get("/v1/chain", self._chain)
        router.add_get("/v1/signatures", self._signatures)
        router.add_post("/v1/open", self._open)
        router.add_post("/v1/sign", self._sign)

    async def _chain(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response(document(self.ledger))

    async def _signatures(self, request: web.Request) -> web.StreamResponse:
        if wants_stream(request):
            return await self.stream(request, self, _event, "the signatures of this chain")
        if "after" in request.query:
            found = self.ledger.after(number_of(request.query["after"], "after"))
        else:
            last = number_of(request.query.get("last", str(SIGNATURES_MAX)), "last")
            found = list(self.ledger.signatures)[-last:] if last else []
        return web.json_response([each._asdict() for each in found])

    async def _open(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        interval_ms = _whole(body, "interval_ms", INTERVAL_MS_MAX)
        return self._answer(self.ledger.open(_signer(body), _whole(body, "made_us"), interval_ms))

    async def _sign(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        now_ms = time.time_ns() // 1_000_000
        return self._answer(self.ledger.sign(_signer(body), _whole(body, "height"), _whole(body, "made_us"), now_ms))

    def _answer(self, verdict: Verdict) -> web.Response:
        for wake in tuple(self.wakers):
            wake()
        if not verdict.is_taken:
            return refusal(409, verdict.why)
        return web.json_response({"next_height": verdict.next_height})


def document(ledger: Ledger) -> dict[str, Any]:
    """`GET /v1/chain`."""
    return {
        "api": API,
        "height": ledger.next_height - 1,
        "signer": ledger.signer._asdict() if ledger.signer is not None else None,
        "counters": dict(ledger.counters),
        "alerts": list(ledger.alerts),
        "signatures": [each._asdict() for each in list(ledger.signatures)[-SHOWN:]],
    }


def listening(address: str) -> socket.socket:
    """Raises `UsageError` for what is no address of loopback, `InUse` if it is taken."""
    host, _, port = address.rpartition(":")
    if host.strip("[]") not in LOOPBACK or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"--listen {address[:80]}: an address of this machine's loopback, such as 127.0.0.1:6111")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=WAITING_MAX)
    except OSError as error:
        raise InUse(f"--listen {address}: {error.strerror}; choose another, or port 0 for any") from None


def run(address: str, say: Callable[[str], None]) -> int:
    """Until a signal comes; returns the exit code."""
    ledger = Ledger()
    with listening(address) as taken:
        asyncio.run(_serve(ledger, taken, say))
    say(counted(ledger.counters))
    for alert in ledger.alerts:
        say(f"DOUBLE SIGNATURE: {alert}")
    return EXIT_DOUBLE if ledger.counters["double_signatures"] else 0


async def _serve(ledger: Ledger, taken: socket.socket, say: Callable[[str], None]) -> None:
    host, port = taken.getsockname()[:2]
    server = ChainServer(ledger, host, say)
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    await server.start(taken)
    say(f"the chain takes signatures at http://{host}:{port}/v1/sign and shows them at http://{host}:{port}/v1/chain")
    await over.wait()
    await server.close()


def _event(signature: Signature) -> bytes:
    return sent_event(signature.number, "signature", signature._asdict())


def _signer(body: dict[str, Any]) -> Signer:
    node, name = body.get("node"), body.get("id")
    if not isinstance(node, str) or not re.fullmatch(NAME_PATTERN, node):
        raise UsageError(f"node = {str(node)[:40]}: the name of a node")
    if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{8,64}", name):
        raise UsageError(f"id = {str(name)[:40]}: 8 to 64 hexadecimal digits, drawn at the signer's start")
    return Signer(_whole(body, "token"), _whole(body, "run"), node, name)


def _whole(body: dict[str, Any], name: str, most: int = NUMBER_MAX) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise UsageError(f"{name} = {str(value)[:40]}: a whole number from 0 to {most}")
    return value
