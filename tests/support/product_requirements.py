"""What the product itself needs, out of the locked requirements of the tests: the same versions and hashes.

python -m tests.support.product_requirements > requirements-product.txt

A requirement belongs if the lock says that it is there for the project, or for one that belongs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = "primacy (pyproject.toml)"


def product(locked: str) -> str:
    """The blocks that belong, as they stand."""
    blocks = re.findall(r"^\S.*?(?=^\S|\Z)", locked, re.MULTILINE | re.DOTALL)
    needed = {PROJECT}
    while True:
        more = {_name(block) for block in blocks if _wanted_by(block) & needed}
        if more <= needed:
            return "".join(block for block in blocks if _name(block) in needed)
        needed |= more


def _name(block: str) -> str:
    found = re.match(r"[\w.-]+", block)
    assert found is not None, block[:80]
    return found[0]


def _wanted_by(block: str) -> set[str]:
    comments = re.findall(r"^\s+#(.*)$", block, re.MULTILINE)
    return {text.strip().removeprefix("via").strip() for text in comments}


if __name__ == "__main__":
    sys.stdout.write(product((ROOT / "requirements.txt").read_text()))
