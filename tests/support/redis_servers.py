"""Redis as it must not be used for a lease, or only with care: replicas, a Sentinel, a cluster, other settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.ports import free_port
from tests.support.servers import Redis, wait_for


class Replica(Redis):
    """Follows another one, over `port`, which may be that of a proxy."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.settings = (*Redis.settings, "--replicaof", f"127.0.0.1 {port}")

    def stop(self) -> None:
        """It refuses to end in order while it writes its first file after a full copy, and forgets that it was told."""
        self.kill()

    def follows(self) -> bool:
        return b"master_link_status:up" in self.admin("INFO", "replication")

    def promote(self) -> None:
        self.admin("REPLICAOF", "NO", "ONE")


class Sentinel(Redis):
    """Watches another one, alone: its vote is enough."""

    kind = "redis-sentinel"

    def __init__(self, watched: Redis) -> None:
        super().__init__()
        self.file = self.folder / "sentinel.conf"
        self.file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\nsentinel monitor leases 127.0.0.1 {watched.port} 1\n"
        )
        if self._as:
            os.chown(self.file, self._as["user"], self._as["group"])

    def command(self) -> list[str]:
        where = self.where()
        assert where is not None
        return [where, str(self.file), "--sentinel"]


class Node(Redis):
    """A cluster of one, which has all slots."""

    def __init__(self) -> None:
        """Its second port would be 10,000 above the first, where the kernel gives out ports."""
        super().__init__()
        self.settings = (*Redis.settings, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))

    def start(self) -> None:
        super().start()
        self.admin("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        wait_for(lambda: b"cluster_state:ok" in self.admin("CLUSTER", "INFO"), "the cluster", self)


@contextmanager
def running(made: Redis) -> Iterator[Redis]:
    """Until the end of the block; skips where there is none."""
    if reason := made.missing():
        made.remove()
        pytest.skip(reason)
    try:
        made.start()
        yield made
    finally:
        made.remove()


def with_settings(*settings: str) -> Redis:
    """One that is set otherwise than a lease needs it; of two values the later one counts."""
    made = Redis()
    made.settings = (*Redis.settings, *settings)
    return made
