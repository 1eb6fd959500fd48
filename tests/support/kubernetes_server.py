"""A real API server of Kubernetes on an etcd of its own, where its program has been built: `make kube-apiserver`.

Debian does not package it. It is built from Go's modules in five to eight minutes and kept outside of the tree, so
that it is built once on a machine. Without it, what it needs is skipped, and says so.
"""

from __future__ import annotations

import json
import os
import pwd
import ssl
import subprocess
import urllib.request
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.support.servers import Etcd, Server, fresh_of

HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)
"""The user's own, whatever a test says that it is."""
BUILT = Path(os.environ.get("PRIMACY_KUBE_APISERVER", HOME / ".cache/primacy/kube-apiserver"))
ADMIN, APP, WEAK = "token-of-admin", "token-of-app", "token-of-weak"
TOKENS = f"""{ADMIN},admin,1,system:masters
{APP},system:serviceaccount:default:app,2,"system:serviceaccounts,system:serviceaccounts:default"
{WEAK},weak,3
"""


class Kubernetes(Server):
    """It stops and starts with its etcd, or without."""

    kind = "kubernetes"
    program = "kube-apiserver"
    user = "root"

    def __init__(self) -> None:
        super().__init__()
        self.etcd = Etcd()

    @classmethod
    def missing(cls) -> str:
        if not cls.where():
            return f"{cls.program} is not built here ({BUILT}): make kube-apiserver"
        return Etcd.missing()

    @classmethod
    def where(cls) -> str | None:
        return str(BUILT) if os.access(BUILT, os.X_OK) else None

    def prepare(self) -> None:
        self.etcd.prepare()
        self.etcd.start()
        (self.folder / "tokens.csv").write_text(TOKENS)
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self.folder / "sa.key"), "2048"], check=True, capture_output=True
        )
        for name, token in (("admin", ADMIN), ("app", APP), ("weak", WEAK), ("wrong", "no-token")):
            self.kubeconfig(name).write_text(json.dumps(self._kubeconfig(token)))

    def command(self) -> list[str]:
        return [
            str(BUILT), "--etcd-servers", f"http://127.0.0.1:{self.etcd.port}", "--bind-address", "127.0.0.1",
            "--secure-port", str(self.port), "--cert-dir", f"{self.folder}/certs", "--advertise-address", "127.0.0.1",
            "--service-account-issuer", "https://localhost", "--service-account-key-file", f"{self.folder}/sa.key",
            "--service-account-signing-key-file", f"{self.folder}/sa.key",
            "--service-cluster-ip-range", "10.96.0.0/24", "--authorization-mode", "RBAC",
            "--token-auth-file", f"{self.folder}/tokens.csv", "--disable-admission-plugins", "ServiceAccount",
        ]  # fmt: skip

    def answers(self) -> bool:
        try:
            with self._open("GET", "/readyz") as answer:
                ready: bool = answer.read() == b"ok"
            return ready and bool(self.ask("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"])
        except (OSError, HTTPException, ValueError):
            return False

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """As the administrator. Raises `OSError` for what is refused."""
        with self._open(method, path, body) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def _open(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data, headers, method=method)
        trusting = ssl._create_unverified_context()  # the store under test does verify it
        return urllib.request.urlopen(request, timeout=20, context=trusting)

    def kubeconfig(self, who: str) -> Path:
        return self.folder / f"{who}.kubeconfig"

    def _kubeconfig(self, token: str) -> dict[str, Any]:
        cluster = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": f"{self.folder}/certs/apiserver.crt",
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "me", "user": {"token": token}}],
        }

    def url(self, who: str = "admin", namespace: str = "default") -> str:
        return f"kubernetes://{namespace}?kubeconfig={self.kubeconfig(who)}"

    def version(self) -> str:
        return f"Kubernetes {self.ask('GET', '/version')['gitVersion']}"

    def empty(self) -> None:
        self.ask("DELETE", "/apis/coordination.k8s.io/v1/namespaces/default/leases")

    def remove(self) -> None:
        super().remove()
        self.etcd.remove()


def kubernetes_here() -> list[str]:
    """Its kind, if it can be tried here. It stands in no other list of kinds, for most of their tests ask for what it
    has not: a genesis row, or an answer at once."""
    return [] if Kubernetes.missing() else [Kubernetes.kind]


@cache
def shared() -> Kubernetes:
    """The one that is shared by all tests of this process."""
    server = fresh_of(Kubernetes)
    assert isinstance(server, Kubernetes)
    return server


def empty() -> str:
    """The address of the shared one, without a lease."""
    shared().empty()
    return shared().url()
