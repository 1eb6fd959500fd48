"""`primacy check`: all problems of a file at once, or its canonical form."""

from __future__ import annotations

import click

from primacy.cli.call import FILE_NAME, Call, json_option, print_json
from primacy.errors import SettingsError, UsageError
from primacy.settings import config_hash, load, timing_of
from primacy.settings.canonical import canonical
from primacy.settings.checks import notes


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@json_option
@click.pass_obj
def check(call: Call, file: str | None, as_json: bool) -> None:
    """Check a file of settings.

    Prints its canonical form (our spelling, one order, secrets hidden), or every problem with its line, and then ends
    with 2. Notes on what is allowed but unusual go to standard error.
    """
    from primacy.cli.slots import unread

    name = call.file(file)
    if name is None:
        lack = f"there is no {FILE_NAME} here; name a file, or write one with `primacy new`"
        raise UsageError("\n".join([lack, *unread(None)]))
    try:
        settings = load(name, call.node)
    except SettingsError as error:
        if not as_json:
            raise
        print_json({"api": 1, "file": name, "ok": False, "problems": [p._asdict() for p in error.problems]})
        raise click.exceptions.Exit(error.exit_code) from None
    said = [*notes(settings), *unread(name)]
    form = canonical(settings)
    if as_json:
        print_json(
            {
                "api": 1,
                "file": name,
                "ok": True,
                "hash": config_hash(settings),
                "node": settings.node,
                "notes": said,
                "settings": form,
                "timing": timing_of(settings)._asdict(),
            }
        )
        return
    import yaml

    click.echo(f"# {name} is right; configuration {config_hash(settings)}")
    click.echo(yaml.safe_dump(form, sort_keys=False, allow_unicode=True, width=120), nl=False)
    for note in said:
        click.echo(f"note: {note}", err=True)
