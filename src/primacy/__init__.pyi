"""The names that `__init__.py` loads when they are first asked for, for type checkers."""

from primacy import blocking as blocking
from primacy import cache as cache
from primacy import fence as fence
from primacy import slots as slots
from primacy.cache.askers import cached as cached
from primacy.errors import InUse as InUse
from primacy.errors import LeadershipLost as LeadershipLost
from primacy.errors import NotReached as NotReached
from primacy.errors import PrimacyError as PrimacyError
from primacy.errors import SlotRefused as SlotRefused
from primacy.errors import StaleToken as StaleToken
from primacy.errors import Unsure as Unsure
from primacy.errors import UsageError as UsageError
from primacy.library.candidacy import ElectionCounts as ElectionCounts
from primacy.library.candidacy import Standing as Standing
from primacy.library.election import Election as Election
from primacy.library.leadership import Leadership as Leadership
from primacy.library.leadership import current as current
from primacy.library.recipes import Lock as Lock
from primacy.library.recipes import once as once
from primacy.library.recipes import singleton as singleton
from primacy.library.renewer import Renewer as Renewer

__version__: str
_WHERE: dict[str, str]
