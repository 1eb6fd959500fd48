"""What the command line says: the help of every command, and what it answers to calls that make no sense.

Texts are compared word by word, for a renamed word changes where lines are broken. Folders and versions are not
compared.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from primacy import __version__
from tests.behaviour.names import Names

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0
BAD_FILE = """\
cluster: {name: "", node: 7, secret_file: 5}
election: {strategy: nope, profile: slow, hold_ms: "x"}
run: {restart: sometimes, stop_ms: -1}
slots: {addr: "nowhere", "000": {kind: nope}, "1": {}}
cache: {peers: {a: {url: "udp://x"}}, source: 7}
strange: 1
"""
GOOD_FILE = """\
cluster:
  name: c1
  secret_file: secret
  manager: {nodes: {a: {addr: "127.0.0.1:7401"}, b: {addr: "127.0.0.1:7402"}, c: {addr: "127.0.0.1:7403"}}}
election: {name: main, strategy: raft, profile: fast}
"""
FILES = {"bad.yaml": BAD_FILE, "good.yaml": GOOD_FILE, "torn.yaml": "cluster: {name: [", "empty.yaml": ""}
CALLS: tuple[tuple[str, ...], ...] = (
    (),
    ("--version",),
    ("nonsense",),
    ("statuss",),
    ("--nope",),
    ("--config",),
    ("--config", "missing.yaml", "status"),
    ("run",),
    ("run", "--"),
    ("run", "--nope", "--", "true"),
    ("run", "--profile", "nope", "--", "true"),
    ("run", "--restart", "sometimes", "--", "true"),
    ("run", "--strategy", "bully", "--", "true"),
    ("run", "--stop-ms", "x", "--", "true"),
    ("run", "--store", "nope://x", "--", "true"),
    ("run", "--config", "bad.yaml", "--", "true"),
    ("node",),
    ("node", "start"),
    ("node", "start", "--port", "x"),
    ("node", "start", "--port", "70000"),
    ("node", "start", "--port", "5001", "--algorithm", "raft", "--leader"),
    ("node", "start", "--port", "5001", "--algorithm", "nope"),
    ("node", "stop"),
    ("node", "stop", "nobody"),
    ("cluster",),
    ("cluster", "status"),
    ("cluster", "nodes"),
    ("status",),
    ("status", "--json"),
    ("status", "--at", "nonsense"),
    ("why",),
    ("why", "--last", "x"),
    ("step-down",),
    ("transfer",),
    ("transfer", "b"),
    ("pause",),
    ("resume",),
    ("approve",),
    ("remove",),
    ("remove", "b"),
    ("init", "--yes"),
    ("rejoin",),
    ("rejoin", "--without", "b", "--yes"),
    ("lab",),
    ("lab", "nope"),
    ("demo", "--nope"),
    ("dashboard", "--port", "x"),
    ("simulate", "--strategy", "nope"),
    ("simulate", "--nodes", "0"),
    ("simulate", "--seeds", "x"),
    ("simulate", "--faults", "nope"),
    ("contract",),
    ("contract", "--json"),
    ("contract", "--profile", "nope"),
    ("contract", "--config", "good.yaml"),
    ("contract", "--config", "bad.yaml"),
    ("lease",),
    ("lease", "list"),
    ("lease", "list", "--store", "nope://x"),
    ("lease", "show"),
    ("lease", "show", "--store", "sqlite:///missing.db", "main"),
    ("lease", "break", "main"),
    ("slots",),
    ("slots", "get"),
    ("slots", "get", "x", "--addr", "nowhere"),
    ("slots", "set", "001"),
    ("slots", "serve", "--config", "bad.yaml"),
    ("cache",),
    ("cache", "get"),
    ("cache", "get", "k", "--api", "nonsense"),
    ("cache", "serve", "--config", "bad.yaml"),
    ("new", "--nodes", "0"),
    ("keygen", "no/such/folder/secret"),
    ("check",),
    ("check", "missing.yaml"),
    ("check", "bad.yaml"),
    ("check", "torn.yaml"),
    ("check", "empty.yaml"),
    ("check", "good.yaml"),
    ("check", "good.yaml", "--canonical"),
)
"""All of them end at once, and none of them starts anything."""


def environment(folder: str) -> dict[str, str]:
    """Of somebody who has nothing but this folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIMACY_", "XDG_", "COV"))}
    more = {"HOME": folder, "PRIMACY_STATE_DIR": f"{folder}/state", "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    return {**kept, **more, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])}


def answers(
    calls: list[list[str]], files: dict[str, str], folder: str = "", helps: bool = False
) -> list[dict[str, Any]]:
    """What the code at hand says; the helps of all commands come first. Without a folder, in an empty one."""
    if not folder:
        with tempfile.TemporaryDirectory(prefix="primacy-behaviour-") as place:
            return answers(calls, files, place, helps)
    for name, text in files.items():
        Path(folder, name).write_text(text, encoding="utf-8")
    told = subprocess.run(
        [sys.executable, "-m", "tests.behaviour.cli_calls"],
        input=json.dumps({"helps": helps, "calls": calls}),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if told.returncode:
        raise RuntimeError(
            f"the commands could not be called, or one did not end; the last lines: {told.stderr[-900:]}"
        )
    found: list[dict[str, Any]] = json.loads(told.stdout)
    return [{**one, "out": plain(one["out"], folder), "err": plain(one["err"], folder)} for one in found]


def plain(text: str, folder: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"\s+", " ", text.replace(folder, "FOLDER").replace(__version__, "VERSION")).strip()


def record() -> dict[str, Any]:
    found = answers([list(call) for call in CALLS], FILES, helps=True)
    return {"files": FILES, "helps": found[: -len(CALLS)], "calls": found[-len(CALLS) :]}


def replay(recorded: dict[str, Any], names: Names) -> list[tuple[str, object, object]]:
    """(call, expected, found) of each that differs; and commands that there were not."""
    files = {name: names.text(text) for name, text in recorded["files"].items()}
    calls = [{**one, **renamed(one, names)} for one in recorded["calls"]]
    now = answers([one["args"] for one in calls], files, helps=True)
    there = {tuple(one["args"]): one for one in now[: -len(calls)]}
    wanted = [{**one, **renamed(one, names)} for one in recorded["helps"]]
    found = [there.pop(tuple(one["args"]), {"out": "there is no such command"}) for one in wanted]
    found += now[-len(calls) :]
    differing = [
        (called(expected["args"]), *told(expected, other))
        for expected, other in zip([*wanted, *calls], found, strict=True)
        if expected != other
    ]
    return [*differing, *((called(args), "no such command", "there is one") for args in there)]


def renamed(one: dict[str, Any], names: Names) -> dict[str, Any]:
    return {
        "args": [names.text(argument) for argument in one["args"]],
        "out": names.text(one["out"]),
        "err": names.text(one["err"]),
    }


def called(args: Any) -> str:
    return " ".join(["primacy", *args])


def told(expected: dict[str, Any], found: dict[str, Any]) -> tuple[str, str]:
    """The part from which they differ."""
    for name in ("code", "out", "err"):
        wanted, now = str(expected.get(name, "")), str(found.get(name, ""))
        if wanted != now:
            pairs = enumerate(zip(wanted, now, strict=False))
            at = next((place for place, (one, other) in pairs if one != other), min(len(wanted), len(now)))
            start = max(0, at - 40)
            return f"{name}: …{wanted[start : at + 120]}", f"{name}: …{now[start : at + 120]}"
    return str(expected), str(found)
