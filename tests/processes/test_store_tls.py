"""TLS and passwords on the way to a store: options pass through, a wrong certificate or password is refused."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primacy.election.store import StoreAnswer
from primacy.store import open_store
from primacy.store.mysql import MysqlStore
from primacy.store.port import News
from tests.support.servers import Etcd, MariaDb, Postgres, Redis, Server
from tests.support.store_harness import LIMIT_MS, Harness, made_new, opened

pytestmark = [
    pytest.mark.beside(order=240),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed here"),
]


def certificate(folder: Path, user: str) -> tuple[Path, Path]:
    """One that vouches for itself, for 127.0.0.1."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    key.chmod(0o600)
    cert.chmod(0o644)
    if os.getuid() == 0:
        entry = pwd.getpwnam(user)
        os.chown(key, entry.pw_uid, entry.pw_gid)
    return key, cert


def asked(url: str) -> StoreAnswer:
    harness = Harness(open_store(url, limit_ms=LIMIT_MS))
    try:
        return harness.look()
    finally:
        harness.store.close()


class Safe:
    """A server that is started with a certificate of its own."""

    def __init__(self, made: type[Server]) -> None:
        if reason := made.missing():
            pytest.skip(reason)
        self.server = made()
        self.key, self.cert = certificate(self.server.folder, made.user)
        command = self.server.command
        self.server.command = lambda: [*command(), *self.more()]  # type: ignore[method-assign]
        self.server.prepare()

    def more(self) -> list[str]:
        match self.server:
            case Postgres():
                return ["-c", "ssl=on", "-c", f"ssl_key_file={self.key}", "-c", f"ssl_cert_file={self.cert}"]
            case MariaDb():
                return [f"--ssl-key={self.key}", f"--ssl-cert={self.cert}"]
            case Redis():
                port = ["--port", "0", "--tls-port", str(self.server.port), "--tls-ca-cert-file", str(self.cert)]
                return [*port, "--tls-key-file", str(self.key), "--tls-cert-file", str(self.cert)]
        return [f"--key-file={self.key}", f"--cert-file={self.cert}"]


@pytest.fixture(params=[Postgres, MariaDb])
def safe(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Safe]:
    found = Safe(request.param)
    found.server.start()
    yield found
    found.server.remove()


def test_a_database_by_TLS(safe: Safe, tmp_path: Path) -> None:
    url, ca = safe.server.url(), safe.cert
    (tmp_path / "other").mkdir()
    _, stranger = certificate(tmp_path / "other", safe.server.user)
    if isinstance(safe.server, Postgres):
        good = f"{url}?sslmode=verify-full&sslrootcert={ca}"
        bad = f"{url}?sslmode=verify-full&sslrootcert={stranger}"
    else:
        good = f"{url}?ssl_ca={ca}&ssl_verify_cert=true&ssl_verify_identity=true"
        bad = f"{url}?ssl_ca={stranger}&ssl_verify_cert=true&ssl_verify_identity=true"
    harness = opened(good)
    assert harness.take().done
    assert harness.renew().done
    store: Any = harness.store
    if isinstance(safe.server, Postgres):
        assert store._execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", {}) == [(True,)]
    else:
        assert store._execute("SHOW STATUS LIKE 'Ssl_cipher'", {})[0][1]
    hears_of_a_release(harness, Harness(open_store(good, limit_ms=LIMIT_MS)))
    store.close()
    refused = asked(bad)
    assert not refused.ok
    assert "certificate" in refused.reason.lower(), refused.reason
    assert refused.final, refused
    assert "TLS is refused" in refused.reason


def hears_of_a_release(holder: Harness, watcher: Harness) -> None:
    """Over TLS something may be readable that is no part of an answer."""
    watcher.look()
    store: Any = watcher.store
    descriptor = store.listen()
    if isinstance(holder.store, MysqlStore):
        assert isinstance(store._waiter.connection._sock, ssl.SSLSocket)
    assert store.news() == []
    assert holder.release(seq=2).done
    told: list[News] = []
    while not told:
        assert select.select([descriptor], [], [], 30)[0]
        told = store.news()
    assert told == [News("job")]
    store.close()


def test_a_wrong_password_is_refused_without_being_shown() -> None:
    if reason := MariaDb.missing():
        pytest.skip(reason)
    from tests.support.servers import server

    answer = asked(server("mariadb").url().replace("secret%20word", "guessed"))
    assert not answer.ok
    assert "Access denied" in answer.reason
    assert "guessed" not in answer.reason
    assert answer.final
    assert "change the user or the password" in answer.reason


def test_etcd_by_TLS_with_a_user(tmp_path: Path) -> None:
    safe = Safe(Etcd)
    etcd = safe.server
    assert isinstance(etcd, Etcd)
    plain_command = etcd.command
    etcd.command = lambda: [word.replace(f"http://127.0.0.1:{etcd.port}", f"https://127.0.0.1:{etcd.port}")  # type: ignore[method-assign]
                            for word in plain_command()]  # fmt: skip
    trusted = ssl.create_default_context(cafile=str(safe.cert))

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        import json
        from urllib.request import Request, urlopen

        request = Request(f"https://127.0.0.1:{etcd.port}/v3/{path}", json.dumps(body).encode())
        with urlopen(request, timeout=30, context=trusted) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    etcd.post = post  # type: ignore[method-assign]
    etcd.start()
    try:
        for path, body in (
            ("auth/user/add", {"name": "root", "password": "r"}),
            ("auth/role/add", {"name": "root"}),
            ("auth/user/grant", {"user": "root", "role": "root"}),
            ("auth/user/add", {"name": "app", "password": "p w"}),
            ("auth/role/add", {"name": "leases"}),
            ("auth/role/grant", {"name": "leases", "perm": _permission("primacy_leases")}),
            ("auth/user/grant", {"user": "app", "role": "leases"}),
            ("auth/enable", {}),
        ):
            post(path, body)
        where = f"127.0.0.1:{etcd.port}?ca={safe.cert}"
        harness = Harness(open_store(made_new(f"etcds://app:p%20w@{where}"), limit_ms=LIMIT_MS))
        assert harness.take().done
        assert harness.renew().done
        watcher = Harness(open_store(f"etcds://app:p%20w@{where}", limit_ms=LIMIT_MS))
        watcher.look()
        store: Any = watcher.store
        assert store.listen() >= 0
        assert harness.release(seq=2).done
        told: list[News] = []
        while not told:
            assert select.select([store.listen()], [], [], 30)[0]
            told = store.news()
        assert told[-1] == News("job")
        harness.store.close()
        store.close()
        for wrong in (f"etcds://app:guessed@{where}", f"etcds://{where}"):
            answer = asked(wrong)
            assert not answer.ok, wrong
            assert "guessed" not in answer.reason
        stranger = asked(f"etcds://app:p%20w@127.0.0.1:{etcd.port}")
        assert not stranger.ok
        assert "certificate" in stranger.reason.lower()
    finally:
        etcd.remove()


def test_redis_by_TLS_with_a_user_and_a_certificate(tmp_path: Path) -> None:
    safe = Safe(Redis)
    redis = safe.server
    assert isinstance(redis, Redis)
    redis.tls = ssl.create_default_context(cafile=str(safe.cert))
    redis.tls.load_cert_chain(str(safe.cert), str(safe.key))
    redis.start()
    try:
        redis.admin("ACL", "SETUSER", "app", "on", ">p w", "~*", "&*", "+@all")
        where = f"127.0.0.1:{redis.port}/1?ca={safe.cert}"
        ours = f"&cert={safe.cert}&key={safe.key}"
        harness = opened(f"rediss://app:p%20w@{where}{ours}")
        watcher = Harness(open_store(f"rediss://app:p%20w@{where}{ours}", limit_ms=LIMIT_MS))
        assert harness.take().done
        assert harness.renew().done
        watcher.look()
        store: Any = watcher.store
        descriptor = store.listen()
        assert harness.release(seq=2).done
        told: list[News] = []
        while not told:  # over TLS something may be readable that is no part of an answer
            assert select.select([descriptor], [], [], 30)[0]
            told = store.news()
        assert told == [News("job")]
        harness.store.close()
        store.close()
        (tmp_path / "other").mkdir()
        _, stranger = certificate(tmp_path / "other", redis.user)
        for query in (f"?ca={stranger}{ours}", ""):
            refused = asked(f"rediss://app:p%20w@127.0.0.1:{redis.port}/1{query}")
            assert (refused.ok, refused.final) == (False, True), refused
            assert "TLS is refused" in refused.reason
            assert "certificate" in refused.reason
        guessed = asked(f"rediss://app:guessed@{where}{ours}")
        assert (guessed.final, "WRONGPASS" in guessed.reason, "guessed" in guessed.reason) == (True, True, False)
        plain = asked(f"redis://app:p%20w@127.0.0.1:{redis.port}/1")
        assert (plain.ok, plain.final, "it speaks TLS only: use rediss://" in plain.reason) == (False, True, True), (
            plain
        )
        assert not asked(f"rediss://app:p%20w@{where}").ok
    finally:
        redis.remove()


def _permission(table: str) -> dict[str, str]:
    """All keys that begin with the table's name: the rows, and the news."""
    import base64

    end = table[:-1] + chr(ord(table[-1]) + 1)
    return {
        "permType": "READWRITE",
        "key": base64.b64encode(table.encode()).decode(),
        "range_end": base64.b64encode(end.encode()).decode(),
    }
