"""The backend for dogpile.cache passes dogpile's own generic suites, on three real peers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, ClassVar

import pytest
from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from dogpile.testing.fixtures import (  # type: ignore[import-untyped]
    _GenericBackendFixture,
    _GenericBackendTestSuite,
    _GenericMutexTestSuite,
    _GenericSerializerTestSuite,
)

from primacy.cache.dogpile_backend import PrimacyBackend
from primacy.errors import NotReached, UsageError
from tests.support.cache_served_peers import Served
from tests.support.ports import free_ports

pytestmark = pytest.mark.moments(order=170)

CANARY_HEARTBEAT_MS = 100
"""The suites wait for parts of a second, and lose their lock if their process stands still: asked of a machine that
lets a process run in time."""
ARGUMENTS: dict[str, Any] = {"apis": []}


@pytest.fixture(scope="module", autouse=True)
def served() -> Iterator[None]:
    with Served() as three:
        ARGUMENTS["apis"] = tuple(three.apis)
        yield


class _OnPeers:
    backend = "primacy.cache"
    config_args: ClassVar = {"arguments": ARGUMENTS}


class TestBackend(_OnPeers, _GenericBackendTestSuite):  # type: ignore[misc]
    pass


class TestSerializer(_OnPeers, _GenericSerializerTestSuite, _GenericBackendFixture):  # type: ignore[misc]
    pass


class TestMutex(_OnPeers, _GenericMutexTestSuite):  # type: ignore[misc]
    pass


def test_the_backend_is_found_by_its_entry_point() -> None:
    (found,) = entry_points(group="dogpile.cache", name="primacy.cache")
    assert found.load() is PrimacyBackend


def test_without_peers_an_application_goes_on() -> None:
    (port,) = free_ports(1)
    region = make_region().configure(
        "primacy.cache", arguments={"apis": (f"tcp://127.0.0.1:{port}",), "timeout_ms": 300}
    )
    assert region.get("k") is NO_VALUE
    region.set("k", "v")
    with pytest.raises(NotReached):
        region.delete("k")


@pytest.mark.parametrize("ttl_ms", [99, 1.5, "1"])
def test_a_wrong_ttl_is_named(ttl_ms: Any) -> None:
    with pytest.raises(UsageError, match="ttl_ms"):
        PrimacyBackend({"apis": ("tcp://127.0.0.1:1",), "ttl_ms": ttl_ms})
