"""primacy: of many nodes, exactly one does it.

    async with primacy.Election("reports", store="postgresql://host/db") as election:
        async for leadership in election:
            async with leadership:
                await build_reports(leadership.token)

`import primacy` loads nothing heavy; each name is loaded when it is first asked for. `primacy.blocking` has the same
for threads and scripts, `primacy.fence` the other half: what the protected resource checks. The machines stand in
`primacy.election`, the one configuration file in `primacy.settings`, the simulator in `primacy.sim`.
"""

TYPE_CHECKING = False  # as in `typing`, which costs memory
if TYPE_CHECKING:
    from primacy.agent.candidacy import ElectionCounts as ElectionCounts
    from primacy.agent.candidacy import Standing as Standing
    from primacy.agent.election import Election as Election
    from primacy.agent.keeper import Keeper as Keeper
    from primacy.agent.leadership import Leadership as Leadership
    from primacy.agent.leadership import current as current
    from primacy.agent.recipes import Lock as Lock
    from primacy.agent.recipes import once as once
    from primacy.agent.recipes import singleton as singleton
    from primacy.errors import InUse as InUse
    from primacy.errors import LeadershipLost as LeadershipLost
    from primacy.errors import NotReached as NotReached
    from primacy.errors import PrimacyError as PrimacyError
    from primacy.errors import StaleToken as StaleToken
    from primacy.errors import UsageError as UsageError

__version__ = "0.1.0"

_WHERE = {
    "Election": "primacy.agent.election",
    "ElectionCounts": "primacy.agent.candidacy",
    "InUse": "primacy.errors",
    "Keeper": "primacy.agent.keeper",
    "Leadership": "primacy.agent.leadership",
    "LeadershipLost": "primacy.errors",
    "Lock": "primacy.agent.recipes",
    "NotReached": "primacy.errors",
    "PrimacyError": "primacy.errors",
    "StaleToken": "primacy.errors",
    "Standing": "primacy.agent.candidacy",
    "UsageError": "primacy.errors",
    "current": "primacy.agent.leadership",
    "once": "primacy.agent.recipes",
    "singleton": "primacy.agent.recipes",
}
"""The public names, and where each is loaded from when it is first asked for."""
_MODULES = ("blocking", "fence")


def __getattr__(name: str) -> object:
    from importlib import import_module  # noqa: PLC0415 -- nothing is loaded before it is needed

    if name in _MODULES:
        return import_module(f"primacy.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'primacy' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, *_MODULES])
