"""Every block and every command line of every page is looked at, also those that no test runs: the program would take
the command, the file is one of settings, the Python can be read. A kind of block that nobody looks at is refused."""

from __future__ import annotations

import ast
import importlib.util
import re
import sqlite3
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from primacy import settings
from primacy.errors import SettingsError
from tests.support.page_blocks import (
    INDENT,
    PAGES,
    ROOT,
    Block,
    Line,
    Wrong,
    blocks,
    commands_in,
    is_of_commands,
    lines_of,
    of_primacy,
    refuse,
    simple_commands,
)

BLOCKS = [block for page in PAGES for block in blocks(page)]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
THREE = {
    "cluster": {
        "secret_file": "secret",
        "manager": {"nodes": {n: {"addr": f"10.0.0.{i}:7400"} for i, n in enumerate("abc", 1)}},
    }
}
"""What a part of a file is put into."""
OTHERS = {
    *(".", "[", "cat", "cd", "chmod", "curl", "cut", "docker", "echo", "for", "git", "grep", "haproxy", "jobs", "kill"),
    *("kubectl", "mkdir", "nft", "sed", "sleep", "sort", "tail", "uniq", "wait", "wc"),
}
"""Programs that are not ours, and words of the shell: what they are given is not looked at."""
MAKEFILE = (ROOT / "Makefile").read_text()
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
WRITTEN = {page: [name for name, _ in FILE.findall(page.read_text())] for page in PAGES}
SHOWN = {
    "docs/containers.md": ("FROM primacy", "process 1"),
    "docs/cron.md": ("0 3 * * *",),
    "docs/tasks/cron-once.md": ("0 3 * * *",),
    "docs/dashboard.md": ("● One holder",),
    "docs/leases.md": ("appendonly yes",),
    "docs/map.md": ("src/primacy/",),
    "docs/schedulers.md": ("manage.py primacy_run",),
}
"""Indented blocks that are neither commands of a shell nor settings, by how they begin. What they say is looked at
elsewhere, or is a picture. ARCHITECTURE.md has pictures only."""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_program_takes_every_command_line(page: Path) -> None:
    wrong = []
    for line in lines_of(page):
        try:
            refuse(line)
        except Wrong as error:
            wrong.append(f"{line.where}: {error}")
    assert not wrong, "\n".join(wrong)


def test_command_lines_are_found() -> None:
    found = [line for page in PAGES for line in lines_of(page)]
    assert len(found) > 300
    assert sum(not line.inline for line in found) > 100
    assert {line.where.partition(":")[0] for line in found} >= {
        *("README.md", "docs/drills.md", "docs/lab.md", "docs/leases.md", "docs/many.md", "docs/node.md"),
        *("docs/kubernetes.md", "docs/operate.md", "docs/run.md", "docs/slots.md", "docs/strategies.md"),
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("stauts", "has no 'stauts'"),
        ("lab frob a", "has no 'frob'"),
        ("lab", "needs a verb"),
        ("status --wach", "No such option"),
        ("transfer", "needs NODE"),
        ("transfer a b", "does not take 'b'"),
        ("completion tcsh", "is not one of"),
        ("status --election", "requires an argument"),
        ("drill --lab --minutes soon", "is not a valid"),
    ],
)
def test_what_the_program_would_refuse_is_refused(words: str, why: str) -> None:
    with pytest.raises(Wrong, match=why):
        refuse(Line("here", tuple(words.split()), inline=False))


def test_a_sentence_may_name_a_command_without_its_arguments() -> None:
    for words in ("transfer", "lab", "simulate --strategy", "members [VERB]", "lab kill NODE [--whole]"):
        refuse(Line("here", tuple(words.split()), inline=True))
    for words in ("transfer --elektion", "lab frob", "transfer --within"):
        with pytest.raises(Wrong):
            refuse(Line("here", (*words.split(), "3s", "more", "more"), inline=True))


def test_blocks_and_comments_are_told_apart(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "a\n\n    primacy status  # now\n\n    primacy why\n\n- b\n\n  ```python\n  pass\n  ```\n\nc\n    d\n"
    )
    found = list(blocks(page))
    assert [(one.number, one.language, one.text) for one in found] == [
        (3, "", "primacy status  # now\n\nprimacy why\n"),
        (10, "python", "pass\n"),
    ]
    said = "until PRIMACY_NODE=a primacy status > log 2>&1 && kubectl exec a -- primacy why | sort  # primacy x\n"
    assert [words for _, words in simple_commands(said)] == [
        ["primacy", "status"],
        ["kubectl", "exec", "a", "--", "primacy", "why"],
        ["sort"],
    ]


# --- blocks, by what they are -----------------------------------------------------------------------------------------


def is_settings(block: Block, folder: Path) -> None:
    """A whole file, or a part of one."""
    said = yaml.safe_load(block.text)
    assert isinstance(said, dict), block.where
    (folder / "settings.yaml").write_text(yaml.safe_dump({**THREE, **said}) if "cluster" not in said else block.text)
    for node in ("a", None):
        try:
            settings.load(folder / "settings.yaml", node, any_node=True)
        except SettingsError as error:
            wrong = error
        else:
            return
    raise AssertionError(f"{block.where}: {wrong}")


def is_python(block: Block, folder: Path) -> None:
    """A program, or a part of a coroutine function."""
    indented = re.sub("^", INDENT, block.text, flags=re.MULTILINE)
    ast.parse(f"async def body():\n{indented}", block.where)


def is_commands(block: Block, folder: Path) -> None:
    """Of primacy (looked at above), of this checkout, or of programs that are not ours."""
    if block.text.startswith("#!"):
        (folder / "script").write_text(block.text)
        subprocess.run(["/bin/sh", "-n", str(folder / "script")], check=True)
        return
    for offset, words in simple_commands(commands_in(block)):
        where = f"{block.where}+{offset}: {' '.join(words)}"
        program = words[0].rpartition("/")[2]
        if program == "make":
            targets = [word for word in words[1:] if "=" not in word]
            assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in targets), where
        elif program.startswith("python") and words[1] == "-m":
            is_module(words[2], words[3:], where)
        elif program.startswith("python"):
            assert any(words[1] == name for name in WRITTEN[block.page]), where
        else:
            assert of_primacy(words) is not None or program in OTHERS, where


def is_module(name: str, words: list[str], where: str) -> None:
    """One of this checkout, or of the tests' environment; its options stand in its source."""
    found = importlib.util.find_spec(name)
    assert found is not None, where
    if name.partition(".")[0] in ("bench", "primacy", "tests"):
        home = Path(found.origin or "")
        files = home.parent.rglob("*.py") if home.name == "__init__.py" else [home]
        source = "".join(file.read_text() for file in files)
        for word in words:
            assert not word.startswith("-") or f'"{word}"' in source, f"{where}: no {word}"


def is_sql(block: Block, folder: Path) -> None:
    """It lets a token pass and refuses an older one."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE thing (id INTEGER, value TEXT, fence INTEGER)")
        connection.execute("INSERT INTO thing VALUES (1, '', 0)")
        rows = [connection.execute(block.text, {"value": "x", "id": 1, "token": n}).rowcount for n in (7, 7, 6, 8)]
    assert rows == [1, 1, 0, 1], block.where


def is_table(block: Block, folder: Path) -> None:
    """Settings of oauth2-proxy, which are TOML; the address behind it is the one of the page's own file."""
    said = tomllib.loads(block.text)
    (upstream,) = said["upstreams"]
    assert upstream.split("/")[2] in block.page.read_text().replace(block.text, ""), block.where


def is_html(block: Block, folder: Path) -> None:
    """A file that a test of the page's tasks serves."""
    assert f"```html\n{block.text}" in "".join(f"```html\n{text}" for _, text in FILE.findall(block.page.read_text()))


def is_transcript(block: Block, folder: Path) -> None:
    """Played by the test of CONTRIBUTING.md."""
    assert block.page.name == "CONTRIBUTING.md", block.where


CHECKS: dict[str, Callable[[Block, Path], None]] = {
    "console": is_commands,
    "html": is_html,
    "ini": is_table,
    "python": is_python,
    "sh": is_commands,
    "sql": is_sql,
    "text": is_transcript,
    "yaml": is_settings,
}
"""By what stands behind the fence."""


@pytest.mark.parametrize("block", BLOCKS, ids=[block.where for block in BLOCKS])
def test_every_block_is_of_a_kind_that_is_looked_at(block: Block, tmp_path: Path) -> None:
    if block.fenced:
        assert block.language in CHECKS, (
            f"{block.where}: nobody looks at {block.language or 'a fence without a name'!r}"
        )
        CHECKS[block.language](block, tmp_path)
    elif is_of_commands(block):
        is_commands(block, tmp_path)
    elif not is_shown(block):
        is_settings(block, tmp_path)


def is_shown(block: Block) -> bool:
    name = str(block.page.relative_to(ROOT))
    return name == "ARCHITECTURE.md" or any(block.text.startswith(begin) for begin in SHOWN.get(name, ()))


def test_what_is_only_shown_is_still_there() -> None:
    for name, begins in SHOWN.items():
        for begin in begins:
            assert any(one.text.startswith(begin) for one in blocks(ROOT / name) if not one.fenced), (name, begin)


def test_what_is_wrong_in_a_block_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs/run.md"

    def of(language: str, text: str) -> Block:
        return Block(page, 1, language, True, text)

    for block in (
        of("yaml", "election:\n  stratgy: raft\n"),
        of("yaml", "run:\n  stop_ms: soon\n"),
        of("python", "async with a as b\n"),
        of("sh", "#!/bin/sh\ncase x\n"),
        of("console", "$ make tset\n"),
        of("console", "$ .venv/bin/python -m bench.failover --runds 3\n"),
        of("console", "$ some-program\n"),
        of("sql", "UPDATE thing SET value = :value, fence = :token WHERE id = :id\n"),
        of("ini", 'upstreams = ["http://127.0.0.1:1/"]\n'),
        of("text", "> cluster a b c\n"),
        of("html", "ok\n"),
        of("", "x\n"),
        Block(page, 1, "", False, "a picture\n"),
    ):
        with pytest.raises((AssertionError, SyntaxError, subprocess.CalledProcessError)):
            test_every_block_is_of_a_kind_that_is_looked_at(block, tmp_path)
