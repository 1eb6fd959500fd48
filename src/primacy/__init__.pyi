"""The names that `__init__.py` loads when they are first asked for, for type checkers."""

from primacy import blocking as blocking
from primacy import cache as cache
from primacy import fence as fence
from primacy import slots as slots
from primacy.agent.candidacy import ElectionCounts as ElectionCounts
from primacy.agent.candidacy import Standing as Standing
from primacy.agent.election import Election as Election
from primacy.agent.leadership import Leadership as Leadership
from primacy.agent.leadership import current as current
from primacy.agent.recipes import Lock as Lock
from primacy.agent.recipes import once as once
from primacy.agent.recipes import singleton as singleton
from primacy.agent.renewer import Renewer as Renewer
from primacy.cache.askers import cached as cached
from primacy.errors import InUse as InUse
from primacy.errors import LeadershipLost as LeadershipLost
from primacy.errors import NotReached as NotReached
from primacy.errors import PrimacyError as PrimacyError
from primacy.errors import SlotRefused as SlotRefused
from primacy.errors import StaleToken as StaleToken
from primacy.errors import Unsure as Unsure
from primacy.errors import UsageError as UsageError

__version__: str
_WHERE: dict[str, str]
