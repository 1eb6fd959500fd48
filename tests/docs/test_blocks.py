"""Every block and every command line of every page is looked at, also those that no test runs: the program would take
the command, the file is one of settings, the Python can be read. A kind of block that nobody looks at is refused, and
so is a program or a command that neither a test runs nor `NOT_RUN` excuses."""

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
from tests.support.page_scenes import SCENES

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
TASKS = sorted(page.stem for page in (ROOT / "docs/tasks").glob("*.md"))
MEASURED = ("lease", "slots", "manager", "cache", "containment", "elections")
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


RUN_BY_MARK = {
    "CONTRIBUTING.md": "test_contributing.py",
    "README.md": "test_docs.py",
    **dict.fromkeys(
        ("docs/cron.md", "docs/fencing.md", "docs/library.md", "docs/schedulers.md"), "test_docs_library.py"
    ),
    "docs/cache.md": "test_docs_cache.py",
    **{f"docs/tasks/{name}.md": "test_tasks.py" for name in TASKS},
}
"""Pages whose blocks with a mark (runnable, file) are run, and the test that does it."""
MARK = re.compile(r" *<!-- (runnable(: \w+)?|file: \S+) -->")
RUN_ELSEWHERE = {("README.md", "$ primacy lab kill c"): "test_readme_lab.py"}
PART = "a part of a program: names that stand for the reader's own"
DOCKER = "needs Docker's image and a registry's names; tests/processes/test_containers.py runs the like"
BENCH = "minutes of measuring"
NOT_RUN = {
    ("README.md", "$ make demo"): "makes environments, and waits for keys; tests/processes/test_demo.py",
    ("CONTRIBUTING.md", "make setup"): "the tests themselves",
    ("CONTRIBUTING.md", "make release"): "tests/docs/test_release.py builds one",
    ("docs/behaviour.md", "git worktree add"): "another version of this checkout; a test replays a recorded one",
    ("docs/behaviour.md", ".venv/bin/python -m tests.behaviour replay"): "likewise",
    ("docs/cache.md", "primacy cache serve --source"): "the ports of the default; docs/tasks/cache-paid-api.md is run",
    ("docs/cache.md", "primacy keygen secret"): "three machines; docs/tasks/cache-paid-api.md is run",
    ("docs/cache.md", "@primacy.cached("): PART,
    ("docs/cache.md", "async with primacy.cache.Client("): PART,
    ("docs/cluster.md", "from primacy.agent.cluster import"): PART,
    ("docs/containers.md", "make wheel"): DOCKER,
    ("docs/containers.md", "docker run"): DOCKER,
    (
        "docs/cron.md",
        "primacy run -- celery",
    ): "programs of others; tests/docs/test_examples.py runs Celery's beat",
    ("docs/cron.md", "@primacy.singleton("): PART,
    ("docs/dashboard.md", "primacy dashboard    "): "opens a browser; tests/processes/test_dashboard_command.py",
    ("docs/dashboard.md", "primacy dashboard --store"): "likewise",
    ("docs/fencing.md", "from primacy.fence import sql"): PART,
    ("docs/fencing.md", "from primacy.fence.http import"): PART,
    ("docs/kubernetes.md", "primacy keygen"): "needs kubectl and a cluster",
    ("docs/library.md", "async with primacy.Renewer("): PART,
    ("docs/library.md", "@primacy.singleton("): PART,
    ("docs/operate.md", "primacy rejoin"): "what is left of a change of the store: tests/processes/test_changes.py",
    ("docs/operate.md", "nft add rule"): "changes the firewall of this machine, as root",
    ("docs/run.md", "nft add rule"): "likewise",
    ("docs/run.md", "primacy run [options]"): "the usage, in words",
    ("docs/scale.md", ".venv/bin/python -m bench"): BENCH,
    ("docs/scale.md", ".venv/bin/python -m tests.support.proof_many"): BENCH,
    ("docs/schedulers.md", "app = Celery("): PART,
    ("docs/schedulers.md", "INSTALLED_APPS"): PART,
    ("docs/schedulers.md", "from primacy.contrib.django"): PART,
    ("docs/slots.md", "async with primacy.slots.Client("): PART,
    ("docs/speed.md", "make bench"): BENCH,
    **{("docs/speed.md", f".venv/bin/python -m bench.{name}"): BENCH for name in MEASURED},
}
"""Programs and commands that are looked at only, by how they begin, and why."""
PROGRAMS = ("console", "python", "sh")


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


def marked(block: Block) -> bool:
    lines = block.page.read_text().splitlines()
    return block.fenced and block.number >= 3 and MARK.fullmatch(lines[block.number - 3]) is not None


def who_runs(block: Block) -> list[str]:
    """All that claim it: tests, or the reason why none does."""
    name = str(block.page.relative_to(ROOT))
    found = [RUN_BY_MARK[name]] if marked(block) else []
    found += [scene.name for scene in SCENES for page, begin in scene.blocks if page == name and begins(block, begin)]
    for listed in (RUN_ELSEWHERE, NOT_RUN):
        found += [why for (page, begin), why in listed.items() if page == name and begins(block, begin)]
    return found


def begins(block: Block, begin: str) -> bool:
    return block.text.startswith(begin)


@pytest.mark.parametrize("block", BLOCKS, ids=[block.where for block in BLOCKS])
def test_a_program_or_a_command_is_run_or_excused(block: Block) -> None:
    if block.language in PROGRAMS or (not block.fenced and is_of_commands(block)):
        found = who_runs(block)
        assert len(found) == 1, f"{block.where}: {found or 'nobody runs it: a mark, a scene, or a reason in NOT_RUN'}"


def test_every_excuse_and_every_scene_has_its_block() -> None:
    listed = [*RUN_ELSEWHERE, *NOT_RUN, *(each for scene in SCENES for each in scene.blocks)]
    for page, begin in listed:
        assert [each for each in blocks(ROOT / page) if begins(each, begin)], (page, begin)
    for test in {*RUN_BY_MARK.values(), *RUN_ELSEWHERE.values()}:
        assert (Path(__file__).parent / test).exists(), test


def test_most_programs_are_run() -> None:
    those = [one for one in BLOCKS if one.language in PROGRAMS or (not one.fenced and is_of_commands(one))]
    run = [one for one in those if set(who_runs(one)).isdisjoint(NOT_RUN.values())]
    assert len(run) > 60
    assert len(NOT_RUN) < 40


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
