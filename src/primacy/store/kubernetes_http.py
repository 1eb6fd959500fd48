"""How the API of Kubernetes is reached: in a pod by its service account, elsewhere by a kubeconfig.

One connection, HTTP/1.1, with a limit on everything. As with etcd a broken connection may be all that tells of a store
that was put back (L5), so none is ever replaced unnoticed: each one, and each request that failed, gives `link` a new
number. The token of a pod is read anew for every request, for it is replaced every hour.

A request that takes too long is given up on both sides: the server is told how long it may take. Without that it would
try for 34 s to write, long after nobody waits for it any more.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import os
import socket
import ssl
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from primacy.errors import CannotHere, NotReached, PrimacyError, Refused, StoreUnusable, UsageError
from primacy.store.etcd_http import TLS_PASSES, Watch
from primacy.store.port import next_link, server_limit_ms

POD = "/var/run/secrets/kubernetes.io/serviceaccount"
"""What Kubernetes puts into every pod."""
BODY_BYTES_MAX = 64 * 1024 * 1024
FILE_BYTES_MAX = 4 * 1024 * 1024
RIGHTS = "give this account the rights that `primacy lease schema --store kubernetes:` prints"
CONFLICT, MISSING = 409, 404


class Account(NamedTuple):
    """Where the API is, and who asks."""

    host: str
    port: int
    namespace: str
    tls: ssl.SSLContext
    token: Callable[[], str]
    """Read for each request; empty: a certificate says who we are."""

    def __str__(self) -> str:
        return f"Kubernetes at {self.host}:{self.port}"


# --- who asks ---------------------------------------------------------------------------------------------------------


def in_pod(namespace: str = "", folder: str = POD) -> Account:
    """The service account of the pod that this process runs in."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not os.path.isdir(folder):
        raise CannotHere(
            "this process runs in no pod of Kubernetes (no KUBERNETES_SERVICE_HOST, or no service account): name a "
            "kubeconfig, such as kubernetes:?kubeconfig=/home/me/.kube/config"
        )
    tls = _trusting(_file(f"{folder}/ca.crt").decode(errors="replace"))
    token = f"{folder}/token"
    own = namespace or _file(f"{folder}/namespace").decode(errors="replace").strip()
    return Account(host, _port(port), own, tls, lambda: _file(token).decode(errors="replace").strip())


def by_kubeconfig(path: str, context: str = "", namespace: str = "") -> Account:
    """The context of a kubeconfig; its present one if none is named."""
    whole = _kubeconfig(path)
    name = context or str(whole.get("current-context") or "")
    chosen = _named(whole, "contexts", name, "context", path)
    cluster = _named(whole, "clusters", str(chosen.get("cluster") or ""), "cluster", path)
    user = _named(whole, "users", str(chosen.get("user") or ""), "user", path)
    parts = urlsplit(str(cluster.get("server") or ""))
    if parts.scheme != "https" or not parts.hostname:
        raise UsageError(f"{path}: the server of cluster {chosen.get('cluster')!r} is no https:// address")
    if parts.path.strip("/"):
        raise UsageError(f"{path}: a server behind a path ({parts.path[:40]}) is not supported; name the API itself")
    authority = _data(cluster, "certificate-authority", path)
    tls = _trusting(authority.decode(errors="replace") if authority else "")
    if cluster.get("insecure-skip-tls-verify"):
        raise UsageError(f"{path}: insecure-skip-tls-verify: a lease is not asked of a server that proves nothing")
    _present(tls, _data(user, "client-certificate", path), _data(user, "client-key", path), path)
    own = namespace or str(chosen.get("namespace") or "default")
    return Account(parts.hostname, parts.port or 443, own, tls, _token(user, path))


def _token(user: dict[str, Any], path: str) -> Callable[[], str]:
    for unknown in ("exec", "auth-provider", "username"):
        if unknown in user:
            raise UsageError(
                f"{path}: this user signs in by `{unknown}`, which is not supported here: use a token, a tokenFile or "
                "a client certificate, such as those of a service account"
            )
    file = str(user.get("tokenFile") or "")
    if file:
        return lambda: _file(file).decode(errors="replace").strip()
    text = str(user.get("token") or "")
    return lambda: text


def _kubeconfig(path: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(_file(path))
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{path} is no kubeconfig: {str(error).splitlines()[0][:80]}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no kubeconfig: it holds no settings")
    return found


def _named(whole: dict[str, Any], part: str, name: str, inner: str, path: str) -> dict[str, Any]:
    entries = whole.get(part)
    known = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    for entry in known:
        if entry.get("name") == name and isinstance(entry.get(inner), dict):
            found: dict[str, Any] = entry[inner]
            return found
    names = ", ".join(str(entry.get("name")) for entry in known)[:120] or "none"
    raise UsageError(f"{path}: there is no {inner} {name!r}; there are: {names}")


def _data(entry: dict[str, Any], name: str, path: str) -> bytes:
    """Of a file that is named, or of what stands in the kubeconfig itself."""
    text = entry.get(f"{name}-data")
    if text:
        try:
            return base64.b64decode(str(text), validate=True)
        except binascii.Error:
            raise UsageError(f"{path}: {name}-data is not base64") from None
    file = str(entry.get(name) or "")
    return _file(os.path.join(os.path.dirname(os.path.abspath(path)), file)) if file else b""


def _trusting(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(f"the certificate authority of Kubernetes cannot be used: {error}") from None


def _present(tls: ssl.SSLContext, certificate: bytes, key: bytes, path: str) -> None:
    """Our own certificate. OpenSSL takes files only: they are there for a moment, for this user only."""
    if not certificate:
        return
    with tempfile.NamedTemporaryFile(prefix="primacy-") as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        try:
            tls.load_cert_chain(file.name)
        except (ssl.SSLError, OSError) as error:
            raise UsageError(f"{path}: the client's certificate and key cannot be used: {error}") from None


def _file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise CannotHere(f"{path}: {error.strerror}; Kubernetes cannot be asked without it") from None


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65_536:
        raise CannotHere(f"KUBERNETES_SERVICE_PORT = {text[:20]!r} is no port")
    return int(text)


# --- requests ---------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What the API said: a status of HTTP, and a document."""

    status: int
    body: dict[str, Any]


class Api:
    """Requests to one API server. Not for two threads."""

    def __init__(self, account: Callable[[], Account], limit_ms: int) -> None:
        self._find = account
        self._limit_s = limit_ms / 1_000
        self._server_limit = f"{max(1, server_limit_ms(limit_ms))}ms"
        self._account: Account | None = None
        self._connection: http.client.HTTPSConnection | None = None
        self.link = next_link()
        """Number of the connection; a new one after every failure."""

    @property
    def account(self) -> Account:
        if self._account is None:
            self._account = self._find()
        return self._account

    @property
    def is_open(self) -> bool:
        """The next request goes over the connection of the last one."""
        return self._connection is not None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, **query: str) -> Answer:
        """One request. Raises unless the answer is a document that says yes, or names a conflict or nothing there."""
        where = f"{path}?{urlencode({**query, 'timeout': self._server_limit})}"
        try:
            status, text = self._exchange(method, where, None if body is None else json.dumps(body).encode())
        except ssl.SSLError as error:
            if isinstance(error, TLS_PASSES):
                raise self._broken(_words(error, self._limit_s)) from None
            raise self._unusable(f"TLS is refused: {_words(error, self._limit_s)}; check the certificates") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(_words(error, self._limit_s)) from None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise self._broken(f"it answered {status} and no JSON: is this the API of Kubernetes?") from None
        if not isinstance(found, dict):
            raise self._broken("it does not answer like the API of Kubernetes")
        if status in (200, 201, CONFLICT, MISSING):
            return Answer(status, found)
        raise self._refusal(status, str(found.get("message") or status)[:200])

    def _exchange(self, method: str, where: str, body: bytes | None) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._new_connection()
        self._connection.request(method, where, body, self._headers())
        answer = self._connection.getresponse()
        found = answer.read(BODY_BYTES_MAX + 1)
        if len(found) > BODY_BYTES_MAX:
            raise ValueError("an answer without an end")
        if answer.will_close:
            self.close()
        return answer.status, found

    def _headers(self) -> dict[str, str]:
        token = self.account.token()
        if not token.isascii() or not token.isprintable():
            raise StoreUnusable(f"{self.account}: the token is not one")
        more = {"Authorization": f"Bearer {token}"} if token else {}
        return {"Content-Type": "application/json", "Accept": "application/json", **more}

    def _new_connection(self) -> http.client.HTTPSConnection:
        account = self.account
        connection = http.client.HTTPSConnection(account.host, account.port, timeout=self._limit_s, context=account.tls)
        connection.connect()
        connection.auto_open = 0  # or http.client would replace a broken one, and nobody would know
        self.link = next_link()
        return connection

    def _refusal(self, status: int, said: str) -> PrimacyError:
        sentence = f"{self.account}: {said}"
        self.close()
        self.link = next_link()
        self._account = None  # certificates and addresses may have been replaced
        if status == 401:
            return StoreUnusable(f"{sentence}: the token or the certificate is not taken; renew it")
        if status == 403:
            return StoreUnusable(f"{sentence}: {RIGHTS}")
        return Refused(sentence) if status < 500 else NotReached(sentence)

    def _broken(self, said: str) -> NotReached:
        sentence = f"{self.account}: {said}"
        self.close()
        self.link = next_link()
        return NotReached(sentence)

    def _unusable(self, said: str) -> StoreUnusable:
        self._account, sentence = None, str(self._broken(said))
        return StoreUnusable(sentence)

    # --- watch --------------------------------------------------------------------------------------------------------

    def watch(self, path: str, **query: str) -> Watch:
        """A stream of changes, on a connection of its own, in HTTP/1.0: its lines come as they are."""
        account = self.account
        try:
            plain = socket.create_connection((account.host, account.port), self._limit_s)
            stream = account.tls.wrap_socket(plain, server_hostname=account.host)
            lines = [f"GET {path}?{urlencode({**query, 'watch': 'true'})} HTTP/1.0", f"Host: {account.host}"]
            lines += [f"{name}: {value}" for name, value in self._headers().items()]
            stream.settimeout(self._limit_s)
            stream.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            found = Changes(stream)
            found.begin(self._limit_s)
        except (OSError, ValueError) as error:
            raise NotReached(f"{account}: no watch: {_words(error, self._limit_s)}") from None
        return found


class Changes(Watch):
    """The lines of a watch of Kubernetes, which says nothing before the first change."""

    def begin(self, limit_s: float) -> None:
        self.stream.settimeout(limit_s)
        while b"\r\n\r\n" not in self._buffer:
            self._add(self.stream.recv(65_536))
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            raise ValueError(head.partition(b"\r\n")[0].decode(errors="replace"))
        self.stream.setblocking(False)


def _words(error: Exception, limit_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {limit_s * 1_000:.0f} ms"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror
    return str(error) or type(error).__name__
