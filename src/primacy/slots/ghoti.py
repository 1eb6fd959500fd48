"""What Ghoti's program reads besides its file, and we do not: said, so that nobody believes it counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

PREFIX = "GHOTI_"
FOLDERS = ("/etc/ghoti", "~/.ghoti", ".")
NAMES = ("config.yaml", "config.yml", "config.json", "config.toml", "config")


def unread(environment: Mapping[str, str], named: bool, exists: Callable[[str], bool]) -> list[str]:
    """One sentence for each thing that is there and not read. `named`: a file was given."""
    found = []
    words = sorted(name for name in environment if name.startswith(PREFIX))
    if words:
        found.append(
            f"{', '.join(words)}: variables of Ghoti do not count here. The address is --addr or slots.addr; all else "
            "is in the file."
        )
    if not named:
        home = environment.get("HOME", "")
        for folder in FOLDERS:
            paths = [f"{folder.replace('~', home, 1) if home else folder}/{name}" for name in NAMES]
            file = next((path for path in paths if exists(path)), "")
            if file:
                found.append(f"{file} is not read: folders are not searched. Name the file: --config {file}")
    return found
