"""`primacy new` and `primacy keygen`: a starter file that is right, and a secret that nobody else can read."""

from __future__ import annotations

import os
import secrets
import string
from pathlib import Path

import click

from primacy.cli.call import FILE_NAME
from primacy.errors import InUse, UsageError

SECRET_NAME = "secret"
SECRET_BYTES = 32
"""256 bits: as much as the seals use, and more than anybody guesses."""
NODES_MOST = 25
FIRST_PORT = 7401


@click.command()
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, NODES_MOST), help="How many nodes.")
@click.option(
    "--dir", "folder", default=".", metavar="D", help="The folder to write to; made if missing. Default: here."
)
@click.option("--force", is_flag=True, help=f"Write over {FILE_NAME}. A secret is never written over.")
def new(nodes: int, folder: str, force: bool) -> None:
    """Write a starter file, primacy.yaml, and the cluster's secret next to it."""
    home = Path(folder)
    file, secret = home / FILE_NAME, home / SECRET_NAME
    if not force:
        for path in (file, secret):
            if path.exists():
                raise UsageError(f"{path} is there already; choose another --dir, or --force to write over {FILE_NAME}")
    try:
        home.mkdir(parents=True, exist_ok=True)
        kept = secret.exists()
        if not kept:
            write_secret(secret)
        file.write_text(starter(nodes), encoding="utf-8")
    except OSError as error:
        raise InUse(f"--dir {folder}: cannot write there: {error.strerror or error}") from None
    click.echo(f"wrote {file}")
    click.echo(f"kept {secret}" if kept else f"wrote {secret} (readable by you alone; the same file on every node)")
    click.echo(f"next: primacy check {file}")


@click.command()
@click.argument("file", default=SECRET_NAME, metavar="[FILE]")
def keygen(file: str) -> None:
    """Make the secret of a cluster: 32 random bytes, in a file that only you can read. Never writes over one."""
    try:
        write_secret(Path(file))
    except FileExistsError:
        raise UsageError(f"{file} is there already, and a secret is never written over; name another file") from None
    except OSError as error:
        raise InUse(f"{file}: cannot be written: {error.strerror or error}") from None
    click.echo(f"wrote {file}")


def write_secret(path: Path) -> None:
    """A new file with mode 0600 from its first moment on. `O_EXCL`: neither an old file nor a link is followed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(SECRET_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()  # half a secret, of a full disk, would be kept as one by the next try
        raise


def starter(nodes: int) -> str:
    """The text of the starter file. A test reads it with the real reader."""
    ids = string.ascii_lowercase[:nodes]
    listed = "\n".join(f'      {name}: {{addr: "127.0.0.1:{FIRST_PORT + n}"}}' for n, name in enumerate(ids))
    return STARTER.format(count=f"{nodes} node{'s' if nodes > 1 else ''}", listed=listed)


STARTER = """\
# A cluster of {count}: the same file on every node. `primacy check` reads it, `primacy docs config` explains it.

cluster:
  name: my-cluster          # part of every seal: nodes of another name are strangers
  secret_file: secret       # the same on every node; readable by you alone
  first_start: auto         # fresh nodes form the cluster by themselves, once all of them are up
  manager:
    type: static
    nodes:                  # put your machines here: what the others dial
{listed}

election:
  name: main                # the role to be filled
  strategy: raft            # raft | lease | bully | ring
  profile: lan              # lab | fast | lan | wan; `primacy contract` shows what the times promise

run:
  stop_ms: 3000             # how long a planned stop of the work may take
  # require_containment: any    # also where the kernel cannot kill the whole tree; several nodes want strong

log:
  level: info
"""
