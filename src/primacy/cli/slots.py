"""`primacy slots`: the slot server of seed 000, on the node that leads, and its client."""

from __future__ import annotations

import dataclasses
import os

import click

from primacy.cli.call import Call, config_option
from primacy.errors import UsageError
from primacy.settings.schema import Settings, wrong_listen

PROTOCOLS = ("standard", "telnet", "http")


@click.group()
def slots() -> None:
    """Small shared values (memories, buckets, counters, signals) on the node that leads."""


@slots.command()
@config_option
@click.option("--addr", metavar="HOST:PORT", help="Where clients connect; default: the file's slots.addr.")
@click.option("--protocol", type=click.Choice(PROTOCOLS), help="How they speak; default: the file's, else standard.")
@click.option("--node", metavar="ID", help="Which node of the file this is.")
@click.option("--state-dir", metavar="DIR", help="Where a node of a cluster keeps what it must not forget.")
@click.pass_obj
def serve(
    call: Call, *, config: str | None, addr: str | None, protocol: str | None, node: str | None, state_dir: str | None
) -> int:
    """Serve the slots of a file while this node leads.

    Without a `cluster` section it always leads. A file of Ghoti is a file of ours. Ends with Ctrl-C; clients are told.
    """
    from primacy.agent.log import Log, level_of
    from primacy.node.clock import SystemClock
    from primacy.settings import load
    from primacy.settings.checks import notes

    file = call.file(config)
    settings = _changed(load(file, node or call.node), addr, protocol, state_dir)
    clock = SystemClock()
    log = Log(clock, level_of(settings.log.level, call.verbose), settings.log.format)
    for note in [*unread(file), *notes(settings)]:
        log.warn(note)
    if alone(settings):
        from primacy.agent.slots_alone import serve_alone

        return serve_alone(settings, log, clock)
    from primacy.agent.assemble import refuse_slots
    from primacy.agent.run import Plan, run
    from primacy.agent.slots_duty import SlotsDuty

    refuse_slots(settings)
    return run(Plan(settings, None, log, clock, SlotsDuty(settings, clock, log.warn, log.info)))


def unread(file: str | None) -> list[str]:
    """What Ghoti would read, and is not."""
    from primacy.slots.ghoti import unread as found

    return found(os.environ, file is not None, os.path.isfile)


def alone(settings: Settings) -> bool:
    """Nothing in the file speaks of others."""
    manager = settings.cluster.manager
    return manager.type == "none" and not settings.election.store.url and settings.election.strategy == "raft"


def _changed(settings: Settings, addr: str | None, protocol: str | None, state_dir: str | None) -> Settings:
    if addr is not None and (wrong := wrong_listen(addr)):
        raise UsageError(f"--addr {addr}: {wrong}")
    was = settings.slots
    slots = dataclasses.replace(was, addr=addr or was.addr, protocol=protocol or was.protocol)
    folder = os.path.abspath(state_dir) if state_dir is not None else settings.state_dir
    return dataclasses.replace(settings, slots=slots, state_dir=folder)
