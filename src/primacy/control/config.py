"""`GET /v1/config`: the settings that this node runs with, in their canonical form, without anything secret.

Whoever is on this machine may read it. So the values of `run.environment` are left out, which `primacy check` shows to
the file's owner; of hooks and of the fence command only the program is shown, and what is secret in an address is
hidden.
"""

from __future__ import annotations

import re
from typing import Any

from primacy.control import API, NodeStatus
from primacy.settings.canonical import HIDDEN, canonical


def config(status: NodeStatus) -> dict[str, Any]:
    """The document."""
    shown = _hidden(canonical(status.settings))
    run = shown.get("run", {})
    if "environment" in run:
        run["environment"] = dict.fromkeys(run["environment"], HIDDEN)
    if "fence_command" in run:
        run["fence_command"] = _program(run["fence_command"])
    if "hooks" in run:
        run["hooks"] = {kind: _program(argv) for kind, argv in run["hooks"].items()}
    return {"api": API, "node": status.node, "source": status.settings.source, "hash": status.config, "settings": shown}


def _program(argv: list[str]) -> list[str]:
    """Whatever it is told may be a password: it runs for a moment, and no list of processes need show it."""
    return [*argv[:1], *([HIDDEN] if argv[1:] else [])]


def _hidden(value: Any) -> Any:
    """Credentials and queries in addresses, wherever they stand."""
    if isinstance(value, dict):
        return {key: _hidden(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(each) for each in value]
    if isinstance(value, str):
        value = re.sub(r"(?<=://)[^/\s]+@", f"{HIDDEN}@", value)
        return re.sub(r"(://[^?\s]*)\?\S+", rf"\1?{HIDDEN}", value)
    return value
