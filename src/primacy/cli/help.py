"""`primacy help [COMMAND]...` and `primacy completion SHELL`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from primacy.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_PRIMACY_COMPLETE"
"""With it in the environment, the shell asks for completions (click)."""


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_(ctx: click.Context, /, *, words: tuple[str, ...]) -> None:
    """What a command does, and its options: the same as `primacy COMMAND --help`."""
    above = ctx.find_root()
    command: click.Command = above.command
    for word in words:
        found = command.get_command(above, word) if isinstance(command, click.Group) else None
        if found is None:
            known = command.list_commands(above) if isinstance(command, click.Group) else []
            there = f"there are {', '.join(known)}" if known else "it has no verbs"
            whose = f"a command of `{above.command_path}`" if command is not ctx.find_root().command else "a command"
            raise UsageError(f"{word[:40]!r} is not {whose}: {there}")
        above, command = click.Context(found, parent=above, info_name=word), found
    click.echo(command.get_help(above))


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, /, *, shell: str) -> None:
    """Print what makes SHELL complete the commands and options of primacy.

    bash: `eval "$(primacy completion bash)"` in ~/.bashrc; zsh: the same with zsh in ~/.zshrc; fish: primacy completion
    fish > ~/.config/fish/completions/primacy.fish
    """
    made = get_completion_class(shell)
    assert made is not None, "a shell of click's"
    click.echo(made(ctx.find_root().command, {}, "primacy", VARIABLE).source())
