"""The other half of a fencing token: what the protected resource checks.

A leadership's token is larger than that of every leadership before it. A resource that remembers the largest token it
has seen, and refuses smaller ones, is safe from a holder that was frozen and does not know yet that it was replaced.
Nothing else is (U1).

    fence.sql    a guard inside of the user's own transaction
    fence.http   a gate before an ASGI or WSGI application: header `Primacy-Token`, 412 for a stale one
    fence.file   a file that is appended to or replaced, and a durable mark for anything else

All raise `StaleToken`. Tokens of different elections must not meet at one mark: each election has its own name there.
"""

from types import ModuleType

_MODULES = ("file", "http", "sql")


def __getattr__(name: str) -> ModuleType:
    """The three, when they are first asked for: nobody needs all of them."""
    from importlib import import_module  # noqa: PLC0415 -- nothing is loaded before it is needed

    if name not in _MODULES:
        raise AttributeError(f"module 'primacy.fence' has no attribute {name!r}; there are {', '.join(_MODULES)}")
    return import_module(f"primacy.fence.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
