"""Puts the documents into the wheel, beside the package: `primacy docs` prints them there. Hatchling calls this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PATTERNS = ("docs/**/*.md", "contrib/**/*")


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # it reads those of the checkout
            return
        root = Path(self.root)
        found = (file for pattern in PATTERNS for file in root.glob(pattern) if file.is_file())
        for file in sorted(file for file in found if "__pycache__" not in file.parts):
            build_data["force_include"][str(file)] = f"primacy/documents/{file.relative_to(root)}"
