"""primacy: of many nodes, at most one runs it.

    async with primacy.Election("reports", store="postgresql://host/db") as election:
        async for leadership in election:
            async with leadership:
                await build_reports(leadership.token)

`import primacy` loads nothing heavy; each name is loaded when it is first asked for. `primacy.blocking` has the same
for threads and scripts, `primacy.fence` the other half: what the protected resource checks. The machines stand in
`primacy.election`, the one configuration file in `primacy.settings`, the simulator in `primacy.sim`.
"""

__version__ = "0.2.0"

_WHERE = {
    "Election": "primacy.library.election",
    "ElectionCounts": "primacy.library.candidacy",
    "InUse": "primacy.errors",
    "Leadership": "primacy.library.leadership",
    "LeadershipLost": "primacy.errors",
    "Lock": "primacy.library.recipes",
    "NotReached": "primacy.errors",
    "PrimacyError": "primacy.errors",
    "Renewer": "primacy.library.renewer",
    "SlotRefused": "primacy.errors",
    "StaleToken": "primacy.errors",
    "Standing": "primacy.library.candidacy",
    "Unsure": "primacy.errors",
    "UsageError": "primacy.errors",
    "cached": "primacy.cache.askers",
    "current": "primacy.library.leadership",
    "once": "primacy.library.recipes",
    "singleton": "primacy.library.recipes",
}
"""The public names, and where each is loaded from when it is first asked for. `__init__.pyi` says the same to type
checkers; a test compares the two."""
_MODULES = ("blocking", "cache", "fence", "slots")
_RENAMED = {"Keeper": "Renewer"}
"""An `ImportError` says so: with an `AttributeError`, `from primacy import ...` would not pass the sentence on."""


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415 -- nothing is loaded before it is needed

    if name in _MODULES:
        return import_module(f"primacy.{name}")
    if name in _RENAMED:
        raise ImportError(f"primacy.{name} is called primacy.{_RENAMED[name]} now", name="primacy")
    if name not in _WHERE:
        raise AttributeError(f"module 'primacy' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, *_MODULES])
