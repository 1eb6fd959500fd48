"""What users and other versions meet: wires, files, commands and processes, in one folder of a log."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.behaviour import commands, files, processes, wires
from tests.behaviour.draws import GivenRandom
from tests.behaviour.names import NameMissing, Names
from tests.behaviour.scripts import SCRIPTS, Script
from tests.behaviour.values import Decoder, Encoder, same

WIRES, FILES = "wires.jsonl.gz", "files.jsonl.gz"
COMMANDS, PROCESSES = "commands.json", "processes.json"
WIRE_LINE, FILE_LINE = "b", "f"


class Other(NamedTuple):
    """One difference."""

    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}\n  expected: {self.expected}\n  found:    {self.found}"


class Looked(NamedTuple):
    """How many were compared, and which differ."""

    compared: int
    others: list[Other]


# --- wires and files --------------------------------------------------------------------------------------------------


def record_wires(folder: Path) -> int:
    count = 0
    with gzip.open(folder / WIRES, "wt", encoding="utf-8") as file:
        encoder = Encoder(lambda line: file.write(line + "\n"))
        for name, wire in wires.WIRES.items():
            for value in wire.values():
                encoder.line(WIRE_LINE, name, encoder.code(value), wires.frames_of(name, value))
                count += 1
    return count


def replay_wires(folder: Path, names: Names) -> Looked:
    others: list[Other] = []
    count = 0
    for decoder, line in _lines(folder / WIRES, names, others):
        _, name, code, frames = line
        count += 1
        value: Any = code
        try:
            value = decoder.value(code)
            found = wires.difference(name, value, frames)
        except Exception as error:  # noqa: BLE001  (whatever goes wrong with it is a difference)
            found = frames, f"{type(error).__name__}: {error}"
        if found is not None:
            others.append(Other(f"wire {name}: {value!r}", *map(str, found)))
    return Looked(count, others)


def record_files(folder: Path) -> int:
    count = 0
    with gzip.open(folder / FILES, "wt", encoding="utf-8") as file:
        encoder = Encoder(lambda line: file.write(line + "\n"))
        for name, value in files.record(folder / "files"):
            encoder.line(FILE_LINE, name, encoder.code(value))
            count += 1
    return count


def replay_files(folder: Path, names: Names) -> Looked:
    others: list[Other] = []
    count = 0
    for decoder, line in _lines(folder / FILES, names, others):
        _, name, code = line
        count += 1
        expected: Any = code
        try:
            expected, found = decoder.value(code), files.read_copy(folder / "files", name)
        except Exception as error:  # noqa: BLE001  (as above)
            others.append(Other(f"file {name}", repr(expected), f"{type(error).__name__}: {error}"))
            continue
        if not same(expected, found):
            others.append(Other(f"file {name}, as it is read", repr(expected), repr(found)))
    for name, before, now in files.rewritten(folder / "files"):
        count += 1
        if before != now:
            others.append(Other(f"file {name}, as it is written", repr(before), repr(now)))
    return Looked(count, others)


def _lines(path: Path, names: Names, others: list[Other]) -> Any:
    """Those that say something, with what is needed to read them."""
    decoder = Decoder(names, GivenRandom)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            try:
                if decoder.takes(line):
                    continue
            except NameMissing as missing:
                others.append(Other(f"{path.name}: {line[:3]}", "a value of the code at hand", str(missing)))
                return  # what comes after it may need it
            yield decoder, line


# --- commands and processes -------------------------------------------------------------------------------------------


def record_commands(folder: Path) -> int:
    recorded = commands.record()
    _write(folder / COMMANDS, recorded)
    return len(recorded["helps"]) + len(recorded["calls"])


def replay_commands(folder: Path, names: Names) -> Looked:
    recorded = json.loads((folder / COMMANDS).read_text(encoding="utf-8"))
    others = [Other(what, str(expected), str(found)) for what, expected, found in commands.replay(recorded, names)]
    return Looked(len(recorded["helps"]) + len(recorded["calls"]), others)


def record_processes(folder: Path, scripts: tuple[Script, ...] = SCRIPTS) -> int:
    recorded = processes.record(scripts)
    _write(folder / PROCESSES, recorded)
    return sum(len(one["said"]) for one in recorded)


def replay_processes(folder: Path, names: Names) -> Looked:
    recorded = json.loads((folder / PROCESSES).read_text(encoding="utf-8"))
    others = [Other(what, str(expected), str(found)) for what, expected, found in processes.replay(recorded, names)]
    return Looked(sum(len(one["said"]) for one in recorded), others)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


RECORDS = {
    "wires": record_wires,
    "files": record_files,
    "commands": record_commands,
    "processes": record_processes,
}
REPLAYS = {
    "wires": (WIRES, replay_wires),
    "files": (FILES, replay_files),
    "commands": (COMMANDS, replay_commands),
    "processes": (PROCESSES, replay_processes),
}
"""What tells that it was recorded, and how it is compared."""
