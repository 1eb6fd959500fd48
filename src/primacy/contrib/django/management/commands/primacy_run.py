"""`manage.py primacy_run NAME -- COMMAND …`: a command of the site, on one machine at a time.

The command is run in this process, as it is, and asks nobody whether it still leads. So by default the kernel ends the
process if the lease is lost and the command is not over in time (`on_loss="kill"`): two of them never act at once.
"""

from __future__ import annotations

import argparse
import signal
from typing import Any

from django.core.management import call_command, get_commands
from django.core.management.base import BaseCommand, CommandError, CommandParser

from primacy import blocking
from primacy.contrib.django import election_options
from primacy.errors import PrimacyError
from primacy.library import recipes
from primacy.library.timers import HAS_KERNEL_TIMERS
from primacy.settings.reading import in_ms

INTERRUPTED = 128 + signal.SIGINT


def span_ms(text: str) -> int:
    """For an option."""
    found_ms = in_ms(text)
    if found_ms is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: a span of time is 250ms, 3s, 2m, or 3000 (milliseconds)")
    return found_ms


class Command(BaseCommand):
    help = "Runs a command of this site on one machine at a time: waits for the lease NAME, then runs it here."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the lease: who uses the same name excludes each other")
        parser.add_argument("command", metavar="COMMAND", nargs="+", help="what to run, behind --")
        parser.add_argument("--once", action="store_true", help="do not wait: if another runs it, this ends with 0")
        parser.add_argument("--within", type=span_ms, metavar="SPAN", help="wait for at most so long, then end with 4")
        parser.add_argument(
            "--lock-at-least", type=span_ms, metavar="SPAN", help="keep the lease for so long from the start"
        )
        parser.add_argument("--lock-at-most", type=span_ms, metavar="SPAN", help="lose it if the command takes longer")
        parser.add_argument(
            "--on-loss",
            choices=["kill", "cancel"],
            help="what happens to a command that runs although the lease is lost; default: kill, on Linux",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        command = options["command"]
        if command[0] not in get_commands():
            raise CommandError(f"this site has no command {command[0]!r}: manage.py help lists them", returncode=2)
        try:
            self.run(options["name"], command, options)
        except PrimacyError as error:
            raise CommandError(str(error), returncode=error.exit_code) from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None

    def run(self, name: str, command: list[str], options: dict[str, Any]) -> None:
        chosen = {
            "within_ms": options["within"],
            "lock_at_least_ms": options["lock_at_least"],
            "lock_at_most_ms": options["lock_at_most"],
            "on_loss": options["on_loss"],
        }
        by_default = {"on_loss": "kill" if HAS_KERNEL_TIMERS else "cancel"}
        said = by_default | election_options() | {word: value for word, value in chosen.items() if value is not None}
        if not options["once"]:
            with blocking.Lock(name, **said):
                self.call(command)
        elif not recipes.once(name, **said)(self.call)(command):
            self.stdout.write(f"another process runs {name}, or has just run it: nothing to do here")

    def call(self, command: list[str]) -> bool:
        call_command(*command, stdout=self.stdout, stderr=self.stderr)
        return True
