"""Django on many machines: a command, a task or a function that one of them runs.

    INSTALLED_APPS = [..., "primacy.contrib.django"]
    PRIMACY = {"store": "postgresql://host/db"}          # or the variable PRIMACY_STORE

    manage.py primacy_run reports -- build_reports       # any command, unchanged

    @only_one("reports")                                 # waits its turn, then runs
    class Command(BaseCommand): ...

    @once("nightly-report", lock_at_least_ms=60_000)     # the first one runs it, the others return None
    def report() -> None: ...

`PRIMACY` has the options of `primacy.blocking.Election`; those of a decorator go before them. The settings are read
when the function is called, so that decorated modules can be imported before Django is set up.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from primacy.contrib.options import options_from
from primacy.errors import MissingExtra, PrimacyError, UsageError
from primacy.library import recipes

try:
    from django.conf import settings
    from django.core.management.base import BaseCommand, CommandError
except ModuleNotFoundError as error:
    if not str(error.name).startswith("django"):
        raise
    raise MissingExtra("primacy.contrib.django", "django") from None

__all__ = ["election_options", "once", "only_one"]

F = TypeVar("F", bound=Callable[..., Any])
SETTING = "PRIMACY"
THREADS_ONLY = "check_within_ms"


def election_options() -> dict[str, Any]:
    """What `PRIMACY` in the site's settings says of an election, with the store."""
    said = getattr(settings, SETTING, {})
    if not isinstance(said, dict):
        raise UsageError(f"{SETTING} is a dictionary such as {{'store': 'postgresql://host/db'}}, not {said!r:.40}")
    return options_from(said, SETTING + "[{!r}]")


def only_one(name: str, **options: Any) -> Callable[[F], F]:
    """Of all processes that call the function, or the command, one runs it; the others wait (`primacy.singleton`)."""
    return _decorator(recipes.singleton, name, options)


def once(name: str, **options: Any) -> Callable[[F], F]:
    """Of many calls at one time, as from cron, the first one runs it; the others return None (`primacy.once`)."""
    return _decorator(recipes.once, name, options)


def _decorator(recipe: Callable[..., Any], name: str, options: dict[str, Any]) -> Callable[[F], F]:
    def decorate(function: Any) -> Any:
        if inspect.isclass(function):
            return _decorate_command(function)
        recipe(name, store=None, **options)(function)  # a wrong call is told where it stands
        is_coroutine = inspect.iscoroutinefunction(function)

        def ready() -> Any:
            said = election_options()
            if is_coroutine:
                said.pop(THREADS_ONLY, None)
            return recipe(name, **{**said, **options})(function)

        if is_coroutine:

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                return await ready()(*args, **kwargs)

            return call

        @functools.wraps(function)
        def call_here(*args: Any, **kwargs: Any) -> Any:
            return ready()(*args, **kwargs)

        return call_here

    def _decorate_command(command: Any) -> Any:
        if not issubclass(command, BaseCommand):
            raise UsageError(f"{name}: this decorates a function or a Command of Django, not {command.__name__}")
        handle = decorate(command.handle)

        @functools.wraps(handle)
        def handle_and_tell(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return handle(self, *args, **kwargs)
            except PrimacyError as error:
                raise CommandError(str(error), returncode=error.exit_code) from error

        command.handle = handle_and_tell
        return command

    return decorate
