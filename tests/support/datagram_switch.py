"""A switch between real nodes: every datagram of theirs goes through it, and is passed on, lost, repeated or recorded.

    python -I -S datagram_switch.py          (orders as lines of JSON on standard input, each answered with a line)

Each node is listed under a port of this switch and listens on another, so that the nodes need not know of it. Who sends
stands in the head of every datagram in clear text, a guard's release included, which comes from a port of its own;
what is passed on leaves from the port under which its sender is listed, as if it came from there. What has no such
head is passed on from a port of nobody's. It ends with its standard input.

Orders: {"nodes": {NAME: [listed port, real port, ...]}}, several where several machines have one name;
{"cut": [[FROM, TO], ...]}, all that is cut from now on; {"loss": 0.1, "double": 0.2}; {"recorded": FILE}, the last
datagrams as lines `TO HEX`.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import sys
from collections import deque

HEAD_BYTES = 29
RECORDED_MAX = 20_000
READS_MAX = 64
LARGEST = 65_536


class Switch:
    """All links, as they are now."""

    def __init__(self) -> None:
        self.listeners: dict[str, socket.socket] = {}
        self.ports: dict[str, list[int]] = {}
        self.cut: set[tuple[str, str]] = set()
        self.loss = self.double = 0.0
        self.recorded: deque[tuple[str, bytes]] = deque(maxlen=RECORDED_MAX)
        self.nobody = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.chance = random.Random(1)
        self.watch = selectors.DefaultSelector()
        self.watch.register(0, selectors.EVENT_READ, None)
        os.set_blocking(0, False)
        self.text = b""

    def run(self) -> None:
        while True:
            for key, _ in self.watch.select():
                if key.data is None:
                    if not self.hear():
                        return
                else:
                    self.pass_on(key.data)

    def hear(self) -> bool:
        data = os.read(0, LARGEST)
        *lines, self.text = (self.text + data).split(b"\n")
        for line in lines:
            self.obey(json.loads(line))
            os.write(1, b"done\n")
        return bool(data)

    def obey(self, order: dict[str, object]) -> None:
        for name, (listed, *real) in dict(order.get("nodes", {})).items():  # type: ignore[call-overload]
            self.ports[name] = real
            if name not in self.listeners:
                listener = self.listeners[name] = socket.socket(
                    socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
                )
                listener.bind(("127.0.0.1", listed))
                self.watch.register(listener, selectors.EVENT_READ, name)
        if "cut" in order:
            self.cut = {(from_, to) for from_, to in order["cut"]}  # type: ignore[attr-defined]
        self.loss = float(order.get("loss", self.loss))  # type: ignore[arg-type]
        self.double = float(order.get("double", self.double))  # type: ignore[arg-type]
        if "recorded" in order:
            with open(str(order["recorded"]), "w") as file:
                file.writelines(f"{to} {data.hex()}\n" for to, data in self.recorded)

    def pass_on(self, to: str) -> None:
        for _ in range(READS_MAX):
            try:
                data = self.listeners[to].recv(LARGEST)
            except BlockingIOError:
                return
            sender = data[HEAD_BYTES : HEAD_BYTES + data[HEAD_BYTES - 1]].decode("latin1") if len(data) > 40 else ""
            if (sender, to) in self.cut or self.chance.random() < self.loss:
                continue
            self.recorded.append((to, data))
            out = self.listeners.get(sender, self.nobody)
            for port in self.ports[to] * (2 if self.chance.random() < self.double else 1):
                try:
                    out.sendto(data, ("127.0.0.1", port))
                except OSError:
                    continue  # nobody listens there just now


if __name__ == "__main__":
    Switch().run()
    sys.exit(0)
