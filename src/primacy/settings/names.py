"""What a node is called where no list says it."""

from __future__ import annotations

import os
import re

NAME_MAX = 63
"""Characters of a node's name."""


def host_name() -> str:
    """The host's name as that of a node."""
    short = re.sub(r"[^A-Za-z0-9._-]", "-", os.uname().nodename.partition(".")[0])
    return short.strip("-.")[:NAME_MAX] or "node"
