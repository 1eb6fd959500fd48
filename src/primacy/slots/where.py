"""Where clients reach a server of slots. Small, for every agent needs it: the servers are loaded by who serves."""

from __future__ import annotations

from typing import NamedTuple


class Where(NamedTuple):
    """host:port, split."""

    host: str
    port: int

    @classmethod
    def of(cls, address: str) -> Where:
        host, _, port = address.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def reached(listens: str, dialled: str) -> str:
    """Where clients reach a server that listens so, on a machine that others reach so; empty if nothing says it.

    Without a host of its own (`:25873`, `0.0.0.0:25873`) it is that machine's.
    """
    if not listens or not dialled:
        return ""
    where = Where.of(listens)
    return str(Where(Where.of(dialled).host, where.port) if names_no_host(listens) else where)


def names_no_host(address: str) -> bool:
    """All of this machine's."""
    return Where.of(address).host in ("", "0.0.0.0", "::")
