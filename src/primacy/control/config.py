"""`GET /v1/config`: the settings that this node runs with, in their canonical form, without anything secret.

Whoever is on this machine may read it. So the values of `run.environment` are left out, which `primacy check` shows to
the file's owner, and credentials in any address are hidden.
"""

from __future__ import annotations

import re
from typing import Any

from primacy.control import API, Snapshot
from primacy.settings.canonical import HIDDEN, canonical


def config(shot: Snapshot) -> dict[str, Any]:
    """The document."""
    shown = _hidden(canonical(shot.settings))
    run = shown.get("run", {})
    if "environment" in run:
        run["environment"] = dict.fromkeys(run["environment"], HIDDEN)
    return {"api": API, "node": shot.node, "source": shot.settings.source, "hash": shot.config, "settings": shown}


def _hidden(value: Any) -> Any:
    """Credentials in addresses, wherever they stand."""
    if isinstance(value, dict):
        return {key: _hidden(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"(?<=://)[^/@\s]+@", f"{HIDDEN}@", value)
    return value
