"""Print a rate. However many of these run at once, on however many machines, it is computed once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from reports.rates import rate


class Command(BaseCommand):
    help = "Print the rate of a currency."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("currency")

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"{options['currency']}: {rate(options['currency'])}")
