"""Types and lint of the modules of the pages: `python -m tests.support.page_code`, a part of `make check`.

The modules are plain JavaScript, served as they stand. Here they are laid out as a browser gets them (the timeline
below the dashboard, the scripts of the files joined), and Deno, pinned like every tool, runs the compiler of TypeScript
over them (`checkJs`) and its linter. Nothing is fetched. Where Deno is missing, that is said, and nothing fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "src" / "primacy"
DENO = Path(sys.prefix) / "bin" / "deno"
SETTINGS = {
    "compilerOptions": {
        "checkJs": True,
        "strict": False,  # without written types every value may be missing
        "noUnusedLocals": True,
        "noUnusedParameters": True,
        "noImplicitReturns": True,
        "noFallthroughCasesInSwitch": True,
        "lib": ["dom", "dom.iterable", "esnext"],
    },
    "lint": {
        "rules": {
            "tags": ["recommended"],
            "include": [
                "default-param-last",
                "eqeqeq",
                "guard-for-in",
                "no-eval",
                "no-self-compare",
                "no-throw-literal",
            ],
            "exclude": ["no-window", "no-window-prefix"],  # these run in a window, and nowhere else
        }
    },
}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def laid_out(folder: Path) -> None:
    """As a browser gets them."""
    shutil.copytree(ROOT / "dashboard" / "static", folder, dirs_exist_ok=True)
    drawing = ROOT / "timeline" / "static"
    (folder / "timeline").mkdir()
    shutil.copy(drawing / "timeline.js", folder / "timeline")
    joined = [drawing / "timeline.js", drawing / "file.js", ROOT / "drill" / "static" / "drill.js"]
    for name, parts in (("incident-file.js", joined[:2]), ("drill-report.js", joined)):
        (folder / name).write_text("\n".join(part.read_text(encoding="utf-8") for part in parts), encoding="utf-8")


def found_in(folder: Path) -> str:
    """What is wrong with the modules there; empty if nothing is."""
    (folder / "deno.json").write_text(json.dumps(SETTINGS))
    environment = {**os.environ, "DENO_DIR": str(folder / ".deno"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    said = []
    for command in (["check", "--no-remote", "."], ["lint", "--compact", "."]):
        call = [str(DENO), *command]
        done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = COLOURS.sub("", done.stdout + done.stderr).splitlines()
            said += [line for line in lines if line.strip() and not line.startswith("Check ")]
    return "\n".join(said).replace(folder.as_uri(), "")


def main() -> int:
    if not DENO.exists():
        print("Deno is not here (make page-tools): the modules of the pages are not checked")
        return 0
    with tempfile.TemporaryDirectory(prefix="primacy-pages-") as name:
        laid_out(Path(name))
        wrong = found_in(Path(name))
    if wrong:
        print(wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
