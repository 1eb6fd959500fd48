"""The command `primacy`: finds the command that is meant, and turns every error into one sentence and an exit code.

Starting it loads click and nothing else of weight: commands are imported when they are called, and their short help
stands in the table below so that `--help` imports none of them.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NamedTuple, NoReturn

import click

from primacy import __version__
from primacy.cli.call import CONFIG_VARIABLE, EXIT_INTERRUPTED, Call, not_empty
from primacy.errors import PrimacyError

EXIT_SYSTEM = 4
EXIT_OUR_FAULT = 70
"""A bug of ours: the number that sysexits.h gives to an internal software error."""
PLAINER = {"is not a valid integer range.": "is not a whole number.", "is not a valid float range.": "is not a number."}
"""What click says of a word where a number in a range belongs, and what is said instead."""


class Lazy(NamedTuple):
    """A command that is imported when it is called."""

    home: str
    """module:attribute"""
    help: str


COMMANDS: dict[str, Lazy] = {
    "run": Lazy("primacy.cli.run:run", "Run a command, at most once at a time: started again, and stopped in time."),
    "agent": Lazy("primacy.cli.agent:agent", "Run all elections of a file in one process; `run` is for one."),
    "reload": Lazy("primacy.cli.agent:reload", "Have the agent read its file again, without touching other elections."),
    "placement": Lazy("primacy.cli.placement:placement", "Which node leads which election of an agent with several."),
    "rebalance": Lazy(
        "primacy.cli.placement:rebalance", "Hand elections over until they are spread as they should be."
    ),
    "drain": Lazy("primacy.cli.placement:drain", "Hand over all that NODE leads; nothing comes back until `undrain`."),
    "undrain": Lazy("primacy.cli.placement:undrain", "End `drain`: NODE may lead again."),
    "maintenance": Lazy("primacy.cli.placement:maintenance", "Keep elections where they are: on, off."),
    "node": Lazy("primacy.cli.node:node", "Take part in an election, and do nothing else: start, stop."),
    "cluster": Lazy("primacy.cli.node:cluster", "The cluster, as any node of this machine knows it: status, nodes."),
    "status": Lazy("primacy.cli.status:status", "Who leads, where the command runs, and what a node waits for."),
    "why": Lazy("primacy.cli.why:why", "What changed in the cluster, why, and how long it took."),
    "audit": Lazy("primacy.cli.audit:audit", "Which changes were asked for, who asked, and what came of it."),
    "step-down": Lazy("primacy.cli.requests:step_down", "Stop the command, in order, and elect again."),
    "transfer": Lazy("primacy.cli.requests:transfer", "Stop the command, in order, and hand the role to NODE."),
    "pause": Lazy("primacy.cli.requests:pause", "Keep this node, or NODE, from leading."),
    "resume": Lazy("primacy.cli.requests:resume", "End `pause`."),
    "approve": Lazy("primacy.cli.requests:approve", "Let the elected node start the command (manual mode)."),
    "remove": Lazy("primacy.cli.requests:remove", "Take NODE off the list of a cluster that grows by joining."),
    "init": Lazy("primacy.cli.requests:init", "Begin a cluster, once, on one node."),
    "rejoin": Lazy("primacy.cli.requests:rejoin", "Go on without a node that is gone for good."),
    "lab": Lazy("primacy.cli.lab:lab", "A real cluster on this machine, to try things and to break them."),
    "demo": Lazy("primacy.cli.demo:demo", "Watch a real cluster on this machine, and break it."),
    "dashboard": Lazy("primacy.cli.dashboard:dashboard", "A page that shows the cluster live, in a browser."),
    "drill": Lazy(
        "primacy.cli.drill:drill",
        "Play real faults against a running cluster, and see whether it keeps what it promises.",
    ),
    "simulate": Lazy(
        "primacy.cli.simulate:simulate", "Run many trials of a cluster, with faults, and look for a violation."
    ),
    "contract": Lazy(
        "primacy.cli.contract:contract", "What your times promise: who stops when, who starts when, the margin."
    ),
    "lease": Lazy("primacy.cli.lease:lease", "The leases in your database or etcd: list, show, watch, break."),
    "slots": Lazy("primacy.cli.slots:slots", "Small shared values on the node that leads: serve, get, set, watch."),
    "cache": Lazy("primacy.cli.cache:cache", "A cache that fetches each entry once for all: serve, get, status."),
    "members": Lazy("primacy.cli.members:members", "Who belongs; its verbs change it while the work runs."),
    "new": Lazy("primacy.cli.new:new", "Write a starter file and a secret."),
    "keygen": Lazy("primacy.cli.new:keygen", "Make the secret of a cluster."),
    "check": Lazy("primacy.cli.check:check", "Check a file: all problems at once, or its canonical form."),
    "docs": Lazy("primacy.cli.docs:docs", "The documents of this version, offline: pages by task, every setting."),
    "help": Lazy("primacy.cli.help:help_", "What a command does, and its options."),
    "completion": Lazy("primacy.cli.help:completion", "What makes a shell complete commands and options."),
}

WELCOME = """\
primacy {version}: of many nodes, at most one runs it.

  primacy run -- CMD    run a command, at most once at a time
  primacy status        who leads, and what this node waits for; primacy why says what changed
  primacy dashboard     the cluster live, as a page in the browser
  primacy demo          watch five real nodes on this machine, and break them; primacy lab does more
  primacy simulate      hundreds of trials of a cluster, with faults; looks for a violation
  primacy contract      what your times promise, as a timeline of a failover
  primacy new           write a starter file and a secret
  primacy check FILE    all problems of a file at once

`primacy --help` lists everything; `primacy help COMMAND` explains one.
`primacy docs` has the documents: pages by task, every setting.
"""


PLACES = ("--config", "--node", "--state-dir", "--store")
"""Options that say what is meant; the default would be another one."""


def _refuse_empty(command: click.Command) -> None:
    """These options of a command and its verbs are not empty."""
    for param in command.params:
        if param.callback is None and param.opts[0] in PLACES:
            param.callback = not_empty
    for verb in getattr(command, "commands", {}).values():
        _refuse_empty(verb)


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        module, _, attribute = lazy.home.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        _refuse_empty(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
            hint = f"is `{near[0]}` meant?" if near else f"there are {', '.join(COMMANDS)}."
            raise click.UsageError(f"There is no command {_short(args[0])!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    metavar="FILE",
    envvar=CONFIG_VARIABLE,
    callback=not_empty,
    help="The file of settings; default: $PRIMACY_CONFIG, else primacy.yaml here, if there is one.",
)
@click.option(
    "--node",
    metavar="ID",
    envvar="PRIMACY_NODE",
    callback=not_empty,
    help="Which node of the file this is; default: $PRIMACY_NODE.",
)
@click.option(
    "--at",
    metavar="HOST:PORT",
    envvar="PRIMACY_AT",
    callback=not_empty,
    help="The running node to speak to; default: $PRIMACY_AT.",
)
@click.option("--json", "as_json", is_flag=True, help="Answers as one JSON document.")
@click.option("-v", "--verbose", count=True, help="Say more; twice, say much more.")
@click.version_option(__version__, "-V", "--version", message="primacy %(version)s")
@click.pass_context
def cli(
    ctx: click.Context, *, config: str | None, node: str | None, at: str | None, as_json: bool, verbose: int
) -> None:
    """Of many nodes, at most one runs it: leader election with a guard and a fencing token, tested in a simulator."""
    if "NO_COLOR" in os.environ:
        ctx.color = False
    ctx.obj = Call(config, node, at, as_json, verbose)
    if ctx.invoked_subcommand is None:
        click.echo(WELCOME.format(version=__version__), nl=False)


def main(args: list[str] | None = None) -> NoReturn:
    """The entry point. Ends the process with an exit code; never with a traceback."""
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Does what the arguments say and returns the exit code."""
    try:
        result = _invoke(sys.argv[1:] if args is None else args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:  # a noun without its verb
        return _show(error.format_message(), error.exit_code)
    except click.UsageError as error:
        name = error.ctx.command_path if error.ctx else "primacy"
        sentence = _without_hidden(error).format_message()
        for theirs, ours in PLAINER.items():
            sentence = sentence.replace(theirs, ours)
        return _complain(f"{sentence}\nTry: {name} --help", error.exit_code)
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except PrimacyError as error:
        return _complain(str(error), error.exit_code)
    except (KeyboardInterrupt, EOFError, click.Abort):
        return _complain("stopped.", EXIT_INTERRUPTED)
    except BrokenPipeError:
        _forget_output()
        return 0
    except OSError as error:  # of our own output, or of a file that a command did not expect to fail
        _forget_output()
        named = f"{error.filename}: " if error.filename else ""
        return _complain(f"{named}{error.strerror or str(error) or type(error).__name__}", EXIT_SYSTEM)
    except Exception as error:  # the last resort: a user shall never read a traceback unasked
        if os.environ.get("PRIMACY_TRACEBACK"):
            raise
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return _complain(
            f"a fault of primacy itself, please report it: {what} (PRIMACY_TRACEBACK=1 shows where)", EXIT_OUR_FAULT
        )
    return result if isinstance(result, int) else 0


def _invoke(args: list[str]) -> Any:
    """click's own `main` without its ends: it answers a reader that left with 1, which here means a failed check."""
    if "_PRIMACY_COMPLETE" in os.environ:  # the shell asks for completions
        return cli.main(args, prog_name="primacy")
    with cli.make_context("primacy", list(args)) as ctx:
        return cli.invoke(ctx)


def _without_hidden(error: click.UsageError) -> click.UsageError:
    """An option that was removed still says what to use instead; it is not proposed for one that is misspelt."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None or not error.possibilities:
        return error
    known = [param for param in error.ctx.command.params if isinstance(param, click.Option) and param.hidden]
    hidden = {spelt for param in known for spelt in (*param.opts, *param.secondary_opts)}
    offered = [spelt for spelt in error.possibilities if spelt not in hidden]
    return click.NoSuchOption(error.option_name, possibilities=offered, ctx=error.ctx)


def _complain(sentence: str, exit_code: int) -> int:
    return _show(f"primacy: {sentence}", exit_code)


def _show(text: str, exit_code: int) -> int:
    try:
        click.echo(text, err=True)
    except OSError:  # nobody reads it, or the disk is full: what happened is in the exit code
        _forget_output()
    return exit_code


def _forget_output() -> None:
    """Whoever read our output has left: let the interpreter's own flush at exit meet nobody."""
    if sys.stdout is None:
        return
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, sys.stdout.fileno())
    os.close(quiet)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


if __name__ == "__main__":
    main()
