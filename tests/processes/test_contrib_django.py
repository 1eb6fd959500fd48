"""Django with `primacy.contrib.django`: the command `primacy_run` and the decorators, in a real site."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from primacy.errors import EXTRAS
from primacy.settings.timing import PROFILES
from tests.support.programs import WITHIN_S, Program, Start, need, until
from tests.support.safety_checks import safe

pytestmark = pytest.mark.beside(order=129)

CANARY_HEARTBEAT_MS = PROFILES["fast"].heartbeat_ms
AT_MOST_MS = (300, 3_000, 30_000)
SETTINGS = """
SECRET_KEY = "of a test"
INSTALLED_APPS = ["primacy.contrib.django", "shop"]
PRIMACY = {"profile": "fast"}
USE_TZ = True
"""
MANAGE = """
import os, sys
from django.core.management import execute_from_command_line
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
execute_from_command_line(sys.argv)
"""
COUNT = """
import os, time
from django.core.management.base import BaseCommand, CommandError
class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("--steps", type=int, default=0)
    def handle(self, *args, **options):
        step = 0
        while not options["steps"] or step < options["steps"]:
            step += 1
            self.stdout.write(f"step {step} at {time.monotonic():.3f}")
            self.stdout.flush()
            time.sleep(0.05)
        if step == 13:
            raise CommandError("thirteen", returncode=13)
"""
DECORATED = """
import time, primacy
from django.core.management.base import BaseCommand
from primacy.contrib.django import once, only_one
@once("report", lock_at_least_ms=200)
def report():
    return primacy.current().token
@once("report-async")
async def report_async():
    return primacy.current().token
@only_one("decorated")
class Command(BaseCommand):
    def handle(self, *args, **options):
        import asyncio
        self.stdout.write(f"reports under {report()} and {asyncio.run(report_async())}")
        while True:
            primacy.current().check()
            self.stdout.write(f"leads under token {primacy.current().token}")
            self.stdout.flush()
            time.sleep(0.05)
"""


class Site:
    """A site, and its commands as processes."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self.folder = start.folder
        commands = self.folder / "shop/management/commands"
        commands.mkdir(parents=True)
        for package in (self.folder / "shop", self.folder / "shop/management", commands):
            (package / "__init__.py").touch()
        (self.folder / "site_settings.py").write_text(SETTINGS)
        (self.folder / "manage.py").write_text(MANAGE)
        (commands / "count.py").write_text(COUNT)
        (commands / "decorated.py").write_text(DECORATED)
        self.store = f"sqlite:///{self.folder}/leases.db"

    def __call__(self, *arguments: str, **environment: str) -> Program:
        more = {"PRIMACY_STORE": self.store, **environment}
        return self._start(sys.executable, "manage.py", *arguments, cwd=self.folder, **more)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    need("django")
    start = Start(tmp_path)
    yield Site(start)
    start.end()


STEP = r"step \d+ at ([\d.]+)"


def one_at_a_time(programs: list[Program]) -> None:
    """From its first step to its last one, nobody else makes one. A process that loses its lease ends in between."""
    moments = [[float(at) for at in program.says(STEP)] for program in programs]
    spans = sorted((found[0], found[-1]) for found in moments if found)
    assert len(spans) > 1
    safe(all(last < first for (_, last), (first, _) in pairwise(spans)), f"two run the command: {spans}")


def test_primacy_run_runs_a_command_on_one_machine_at_a_time(site: Site) -> None:
    run = ("primacy_run", "counting", "--", "count")
    first = site(*run)
    until(lambda: len(first.says(STEP)) > 3, "steps", first)
    second = site(*run)
    late = site("primacy_run", "counting", "--within", "300ms", "--", "count")
    left_out = site("primacy_run", "counting", "--once", "--", "count")
    assert late.child.wait(WITHIN_S) == 4
    assert late.says("CommandError: lock counting was not had within 300 ms")
    assert left_out.child.wait(WITHIN_S) == 0
    assert left_out.says("another process runs counting")
    assert not any(one.says(STEP) for one in (second, late, left_out)), "the first one leads on"
    first.child.kill()
    first.child.wait(WITHIN_S)
    until(lambda: second.says(STEP), "the second one's steps", second)
    third = site("primacy_run", "counting", "--", "count", "--steps", "13")
    assert second.ends(signal.SIGINT) == 128 + signal.SIGINT, second.log.read_text()
    assert not second.says("Traceback")
    assert third.child.wait(WITHIN_S) == 13, "the command's own code"
    assert third.says("thirteen")
    one_at_a_time([first, second, late, left_out, third])
    assert not third.says("Traceback")


def test_primacy_run_ends_a_command_that_hangs(site: Site) -> None:
    """It is given more time where it does not come to its first step in it: a busy machine loads it slowly."""
    for at_most_ms in AT_MOST_MS:
        hanging = site("primacy_run", "counting", "--lock-at-most", f"{at_most_ms}ms", "--", "count")
        assert hanging.child.wait(WITHIN_S) == -signal.SIGKILL
        if hanging.says(STEP):
            return
    raise AssertionError("nothing could be started in time")


def test_only_one_and_once_as_decorators(site: Site) -> None:
    programs = [site("decorated") for _ in range(2)]
    leads = r"leads under token (\d+)"
    first = until(lambda: next((p for p in programs if p.says(leads)), None), "a leader", *programs)
    (other,) = (program for program in programs if program is not first)
    assert first.says(r"reports under \d+ and \d+")
    assert not other.says("leads|reports")
    assert first.ends() == 128 + signal.SIGTERM
    ended = time.monotonic()
    until(lambda: other.says(leads), "the other one", other)
    assert time.monotonic() - ended < WITHIN_S / 2
    assert int(first.says(leads)[-1]) < int(other.says(leads)[0])


def test_nonsense_is_one_sentence_and_a_code(site: Site) -> None:
    for arguments, code, said in (
        (("primacy_run", "x"), 2, "the following arguments are required: COMMAND"),
        (("primacy_run", "x", "--", "cuont"), 2, "this site has no command 'cuont': manage.py help lists them"),
        (("primacy_run", "x", "--within", "soon", "--", "count"), 2, "a span of time is 250ms, 3s, 2m"),
        (("primacy_run", "a b", "--", "count"), 2, "a lease's name has at most"),
        (("decorated",), 2, r"which store\? say PRIMACY\['store'\], such as postgresql://host/db, or set the variable"),
    ):
        found = site(*arguments, PRIMACY_STORE="" if arguments == ("decorated",) else site.store)
        assert found.child.wait(WITHIN_S) == code, found.log.read_text()
        assert found.says(said), found.log.read_text()
        assert not found.says("Traceback")


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("celery", "apscheduler", "django"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import primacy, primacy.contrib
primacy.Election, primacy.blocking
assert not {"celery", "apscheduler", "django"} & set(sys.modules)
for name in ("celery", "apscheduler", "django"):
    try:
        __import__(f"primacy.contrib.{name}")
    except primacy.PrimacyError as error:
        print(error)
"""


def test_without_the_package_each_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [
        f"primacy.contrib.{name} needs the extra `{name}`: pip install '{package}' (pipx inject primacy '{package}')"
        for name in ("celery", "apscheduler", "django")
        for package in EXTRAS[name]
    ]
    assert done.stdout.splitlines() == said
