"""The options of an election as a framework's own settings say them: all problems named, nothing guessed."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from primacy import blocking
from primacy.errors import UsageError
from primacy.settings.loading import STORE_VARIABLE

EXCEPT = ("name", "store", "on_change", "observer")
KNOWN = ("store", *(name for name in inspect.signature(blocking.Election).parameters if name not in EXCEPT))
"""What a framework's settings may say of an election."""


def options_from(said: Mapping[str, Any], where: str, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """What was said, checked, with the store; `where` is how a name is written in the user's settings, such as `x_{}`.

    `also`: what the framework itself understands, and which is left out here.
    """
    unknown = sorted(set(said) - {*KNOWN, *also})
    if unknown:
        raise UsageError(f"{where.format(unknown[0])} is no setting; there are {', '.join(sorted({*KNOWN, *also}))}")
    found = {name: said[name] for name in KNOWN if said.get(name) is not None}
    found.setdefault("store", os.environ.get(STORE_VARIABLE) or None)
    if found["store"] is None:
        how = f"say {where.format('store')}, such as postgresql://host/db, or set the variable {STORE_VARIABLE}"
        raise UsageError(f"which store? {how}")
    return found
