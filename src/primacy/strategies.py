"""Which strategy a name means: one of ours, or a user's own, `package.module:Name`.

A user's module is looked for where Python looks, then in the working folder and in that of the settings: last, so that
nothing there takes the place of an installed package.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from primacy.election.guarantees import OF, Guarantees
from primacy.errors import UsageError

if TYPE_CHECKING:
    from primacy.election.own import Pluggable


def is_own(strategy: str) -> bool:
    return strategy not in OF


def promise_of(strategy: str, folder: str = "") -> Guarantees:
    """What it promises. Raises `UsageError` if a user's own cannot be loaded."""
    return OF[strategy] if strategy in OF else own_strategy(strategy, folder).guarantees


def own_strategy(strategy: str, folder: str = "") -> type[Pluggable]:
    """The class of this name. `folder`: of the settings. Raises `UsageError` with what is wrong with it."""
    from primacy.election.own import wrong_with  # loaded by those only who have one

    home, _, name = strategy.partition(":")
    for place in (os.getcwd(), os.path.abspath(folder or ".")):
        if place not in sys.path:
            sys.path.append(place)
    try:
        module = importlib.import_module(home)
    except ImportError as error:
        raise UsageError(
            f"election.strategy = {strategy}: {error}; it is looked for where Python looks and in {os.getcwd()}"
        ) from None
    except Exception as error:
        raise UsageError(f"election.strategy = {strategy}: {home} raises {type(error).__name__}: {error}") from error
    made = getattr(module, name, None)
    if made is None:
        raise UsageError(f"election.strategy = {strategy}: {home} has no {name}")
    if wrong := wrong_with(made):
        raise UsageError(f"election.strategy = {strategy}: {wrong}; see `primacy docs strategies`")
    found: type[Pluggable] = made
    return found
