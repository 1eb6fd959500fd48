"""Copies primacy, its Python and the libraries of both into a folder: for a container whose image has none of them.

    /opt/primacy/bin/python3 /opt/primacy/copy_primacy.py /primacy

An init container of the image of primacy runs this; the other containers of the pod mount the folder at the same path,
and start their program by /primacy/bin/primacy run -- PROGRAM. The copy brings its own C library and loader, so that
the other image may have another one, or an older one. It needs a shell there (/bin/sh), and a machine of the same kind.
What is copied is not in the environment of the program: it finds its own libraries, as without primacy.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

LEFT_OUT = shutil.ignore_patterns(
    "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "config-*", "site-packages", "dist-packages"
)
LINE = re.compile(r"(?:=> )?(/\S+) \(0x")


def loader_of(program: Path) -> Path:
    """What the kernel starts to load the program, as the program names it."""
    found = re.search(rb"/lib[\w/.-]*/ld-[\w.-]+\.so\.\d+", program.read_bytes()[:65_536])
    if found is None:
        sys.exit(f"{program} names no loader of a C library: it cannot be copied this way")
    return Path(os.fsdecode(found[0]))


def libraries_of(loader: Path, files: Iterable[Path]) -> set[Path]:
    """All libraries that these files are loaded with, and that those need."""
    found = set()
    for file in files:
        said = subprocess.run([loader, "--list", file], capture_output=True, text=True, check=False).stdout
        found |= {Path(path) for path in LINE.findall(said)}
    return found


def script(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
    path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o555)


def copy(to: Path) -> None:
    program = Path(sys.executable).resolve()
    loader, stdlib, version = (
        loader_of(program),
        Path(sysconfig.get_path("stdlib")),
        f"python{sys.version_info[0]}.{sys.version_info[1]}",
    )
    environment = Path(sys.prefix)
    shutil.copytree(stdlib, to / "lib" / version, ignore=LEFT_OUT, dirs_exist_ok=True)
    shutil.copytree(environment / "lib", to / "venv" / "lib", dirs_exist_ok=True)
    (to / "bin").mkdir(exist_ok=True)
    shutil.copy(program, to / "bin" / version)
    (to / "libraries").mkdir(exist_ok=True)
    modules = [*(to / "lib").rglob("*.so"), *(to / "venv").rglob("*.so")]
    for library in libraries_of(loader, [program, *modules]):
        shutil.copy(library, to / "libraries" / library.name)
    shutil.copy(loader, to / "libraries" / loader.name)
    (to / "venv" / "pyvenv.cfg").write_text(f"home = {to}/bin\ninclude-system-site-packages = false\n")
    python = to / "venv" / "bin" / "python3"
    script(python, f"{to}/libraries/{loader.name} --argv0 {python} --library-path {to}/libraries {to}/bin/{version}")
    script(to / "bin" / "primacy", f"{python} -m primacy")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.path.isabs(sys.argv[1]):
        sys.exit("usage: copy_primacy.py FOLDER, with its whole path, from / on")
    copy(Path(sys.argv[1]))
