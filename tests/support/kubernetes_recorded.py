"""A conversation with a real API server of Kubernetes, kept in tests/data, and a server that plays it again.

    python -m tests.support.kubernetes_recorded

records it anew, with the program that `make kube-apiserver` has built. What the store says must be what it said then,
but for times, proofs and tokens; what it hears is what the real server answered, byte for byte.
"""

from __future__ import annotations

import http.server
import json
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from primacy.election.store import Place
from primacy.store.kubernetes import KubernetesStore
from primacy.store.kubernetes_http import Account, Answer, Api
from tests.support.store_harness import LIMIT_MS, Harness, row

RECORDED = Path(__file__).parents[1] / "data/kubernetes_conversation.json"
DRAWN = re.compile(r'(\\?"(?:proof|written_at)\\?":\\?")[^"\\]*|("(?:renewTime|acquireTime)": ?")[^"]*', re.ASCII)


def masked(body: bytes) -> str:
    """Without what is drawn anew each time."""
    return DRAWN.sub(lambda found: (found[1] or found[2]) + "*", body.decode())


def spoken(harness: Harness) -> list[str]:
    """What is said in the conversation, and what came of it, in words."""
    said = [
        str(harness.look().row),
        f"placed {harness.ask(Place('job', harness.server())).done}",
        f"placed again {harness.ask(Place('job', harness.server())).done}",
        f"taken {harness.take().done}",
        f"renewed {harness.renew().done}",
        f"renewed again {harness.renew().done}",
        f"released {harness.release(seq=2, to='b').done}",
        f"taken by another {harness.take(new=row('b#2', 20, 3)).done}",
    ]
    found = harness.look().row
    assert found is not None
    return [*said, f"{found.holder} {found.token} {found.seq} {found.released}"]


class Recording(Api):
    """Notes what is asked and answered."""

    def __init__(self, account: Callable[[], Account]) -> None:
        super().__init__(account, LIMIT_MS)
        self.exchanges: list[dict[str, Any]] = []

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, **query: str) -> Answer:
        answer = super().ask(method, path, body, **query)
        asked = "" if body is None else masked(json.dumps(body).encode())
        self.exchanges.append(
            {
                "method": method,
                "path": path,
                "query": query,
                "body": asked,
                "status": answer.status,
                "said": answer.body,
            }
        )
        return answer


class Played(http.server.ThreadingHTTPServer):
    """Answers as it was recorded. A request that was not is answered with 418, and noted."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Player)
        self.left: list[dict[str, Any]] = json.loads(RECORDED.read_text())["exchanges"]
        self.wrong: list[str] = []
        self.certificate = folder / "certificate.pem"
        make = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=recorded -addext subjectAltName=IP:127.0.0.1"
        subprocess.run(
            ["openssl", *make.split(), "-keyout", str(folder / "key.pem"), "-out", str(self.certificate)],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, folder / "key.pem")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def account(self) -> Account:
        tls = ssl.create_default_context(cafile=str(self.certificate))
        return Account("127.0.0.1", self.server_address[1], "default", tls, lambda: "a-token")

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()


class Player(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Played

    def play(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        expected = self.server.left.pop(0) if self.server.left else {}
        asked = {"method": self.command, "path": path, "body": masked(body)}
        if asked != {key: expected.get(key) for key in asked} or "timeout=" not in query:
            self.server.wrong.append(f"asked {asked} {query}, recorded {expected}")
        said = json.dumps(expected.get("said", {})).encode()
        self.send_response(expected.get("status", 418))
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_PUT = do_POST = play

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def record() -> int:
    from tests.support.kubernetes_server import Kubernetes
    from tests.support.servers import fresh_of

    if reason := Kubernetes.missing():
        print(reason)
        return 4
    server = fresh_of(Kubernetes)
    assert isinstance(server, Kubernetes)
    try:
        from primacy.store.kubernetes_http import by_kubeconfig

        api = Recording(lambda: by_kubeconfig(str(server.kubeconfig("admin"))))
        said = spoken(Harness(KubernetesStore(api)))
        kept = {"of": server.version(), "said": said, "exchanges": api.exchanges}
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{len(api.exchanges)} exchanges with {kept['of']}")
    finally:
        server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(record())
