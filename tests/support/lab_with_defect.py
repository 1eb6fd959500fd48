"""A lab whose command lets its work be started elsewhere, where no guard ends it: a planted defect.

    python -m tests.support.lab_with_defect FOLDER [OPTION ...]

The options are those of `primacy lab up`. The command of each node asks this process to start the signer, and does
nothing itself: as one that tells Docker or cron to do it. A signer that was started so outlives its node's hold, and
after a failover two sign.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from primacy.cli import main as entry
from primacy.lab import supervisor

ASKS = """
import json, os, socket, sys, time
who = {{name: os.environ[name] for name in ("PRIMACY_TOKEN", "PRIMACY_RUN", "PRIMACY_NODE") if name in os.environ}}
with socket.create_connection(("127.0.0.1", {port})) as line:
    line.sendall(json.dumps({{"env": who, "args": sys.argv[1:]}}).encode() + b"\\n")
    line.recv(1)
time.sleep(3_600)
"""


class Elsewhere:
    """Starts what it is asked for, and ends none of it before this process ends."""

    def __init__(self, signer: Path) -> None:
        self.signer = signer
        self.started: list[subprocess.Popen[bytes]] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listening.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            line, _ = self.listening.accept()
            with line, line.makefile("rb") as file:
                asked = json.loads(file.readline())
                call = [sys.executable, "-I", "-S", str(self.signer), *asked["args"]]
                self.started.append(subprocess.Popen(call, env={**os.environ, **asked["env"]}))
                line.sendall(b"!")

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


def main(folder: str, *options: str) -> int:
    elsewhere = Elsewhere(supervisor.SIGNER)
    command = Path(folder).with_suffix(".py")
    command.write_text(ASKS.format(port=elsewhere.port))
    supervisor.SIGNER = command
    try:
        return entry.run(["lab", "up", "--dir", folder, *options])
    finally:
        elsewhere.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
