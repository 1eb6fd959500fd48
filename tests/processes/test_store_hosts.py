"""Real PostgreSQL servers behind one address with several hosts: the one that is written to is found (L5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from primacy.store import open_store
from tests.support.servers import Postgres, fresh, servers_here, wait_for
from tests.support.store_harness import LIMIT_MS, Harness, opened, row

pytestmark = [
    pytest.mark.beside(order=86),
    pytest.mark.skipif("postgresql" not in servers_here(), reason="PostgreSQL is not installed here"),
]

Pair = tuple[Postgres, Postgres]


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    first, second = fresh("postgresql"), fresh("postgresql")
    assert isinstance(first, Postgres)
    assert isinstance(second, Postgres)
    try:
        yield first, second
    finally:
        first.remove()
        second.remove()


@pytest.fixture
def pair(servers: Pair) -> Pair:
    """Both are written to, and have no leases."""
    for one in servers:
        set_read_only(one, "off")
        one.empty()
    return servers


def set_read_only(one: Postgres, word: str, *connected: Harness) -> None:
    """Until new connections know it, and those of these."""
    one.admin("SET default_transaction_read_only = off",
              f"ALTER SYSTEM SET default_transaction_read_only = {word}", "SELECT pg_reload_conf()")  # fmt: skip
    shown = "SHOW default_transaction_read_only"
    wait_for(lambda: one.admin(shown) == [(word,)], "the setting of new connections")
    for harness in connected:
        store: Any = harness.store
        wait_for(lambda store=store: store._execute(shown, {}) == [(word,)], "the setting of this connection")  # type: ignore[misc]


def url_of(pair: Pair, tail: str = "") -> str:
    return f"postgresql://app@127.0.0.1:{pair[0].port},127.0.0.1:{pair[1].port}/app{tail}"


def test_L5_of_several_hosts_the_one_that_is_written_to_is_used(pair: Pair) -> None:
    """The first one is a former primary that came back and only reads."""
    set_read_only(pair[0], "on")
    harness = opened(url_of(pair))
    assert harness.take().done
    there = Harness(open_store(pair[1].url(), limit_ms=LIMIT_MS))
    assert there.look().row is not None
    there.store.close()
    harness.store.close()


def test_L5_a_user_may_say_which_of_several_hosts(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(pair[0].url()).store.close()
    set_read_only(pair[0], "on")
    store = open_store(url_of(pair, "?target_session_attrs=any"), limit_ms=LIMIT_MS, create=False)
    assert "is read-only" in Harness(store).look().reason
    store.close()
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "any")
    store = open_store(url_of(pair), limit_ms=LIMIT_MS, create=False)
    assert "is read-only" in Harness(store).look().reason
    store.close()


@pytest.mark.parametrize("asked", ["look", "renewal"])
def test_L4_a_server_that_is_fenced_is_left_for_the_next_host(pair: Pair, asked: str) -> None:
    """Who watches begins anew: another one may be written to meanwhile, and nothing of this one tells."""
    harness = opened(url_of(pair))
    assert harness.take().done
    seen = harness.look()
    assert harness.look().link == seen.link
    opened(pair[1].url()).store.close()
    set_read_only(pair[0], "on", harness)
    refused = harness.look() if asked == "look" else harness.renew(server=seen.server)
    assert not refused.ok
    assert not refused.final
    assert "is read-only" in refused.reason
    other = harness.look()
    assert (other.ok, other.row) == (True, None), "the second host's table"
    assert other.server != seen.server
    set_read_only(pair[1], "on", harness)
    set_read_only(pair[0], "off")
    assert not harness.look().ok
    back = harness.look()
    assert (back.ok, back.row, back.server) == (True, seen.row, seen.server)
    assert back.link != seen.link
    assert harness.take(new=row("b#1", 20, 2), seen=back).done
    harness.store.close()


def test_L4_one_host_that_is_fenced_is_connected_anew(pair: Pair) -> None:
    harness = opened(pair[0].url())
    seen = harness.look()
    set_read_only(pair[0], "on", harness)
    assert "is read-only" in harness.look().reason
    set_read_only(pair[0], "off")
    back = harness.look()
    assert (back.ok, back.server) == (True, seen.server)
    assert back.link != seen.link
    harness.store.close()
