"""A driver whose ballots are saved beside the loop: the order of effects is the same, and only this driver waits."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from primacy.election.events import Code
from primacy.election.inputs import PersistFailed, Received, Resume, Shutdown, Started
from primacy.election.messages import Origin, Query
from primacy.election.model import Ballot
from primacy.node import driver as driving
from primacy.node.driver import Driver
from tests.rules.test_driver import EVERYTHING, scripted

REST = [("send", "b"), ("start", 1), ("extend", 1), ("release", 1), Code.ELECTED]


class Disk:
    """Saves when it is told to."""

    def __init__(self, driver: Driver, did: list[Any]) -> None:
        self.did = did
        self.told: list[Callable[[OSError | None], None]] = []
        driver.saver = self.save

    def save(self, ballot: Ballot, told: Callable[[OSError | None], None]) -> None:
        self.did.append("saving")
        self.told.append(told)

    def done(self, error: OSError | None = None) -> None:
        self.did.append("saved" if error is None else "failed")
        self.told.pop(0)(error)


def test_nothing_behind_a_ballot_is_done_before_it_is_durable() -> None:
    async def scene() -> None:
        driver, did, _, _ = scripted({Started: EVERYTHING})
        disk = Disk(driver, did)
        driver.give(Started())
        driver.give(Resume())
        driver.hear(Query(Origin("b"), True))
        assert did == [Started(), ("stop", 1, True), "saving"]
        disk.done()
        waiting = [Resume(), Received(Query(Origin("b"), True))]
        assert did == [Started(), ("stop", 1, True), "saving", "saved", *REST, *waiting]

    asyncio.run(scene())


def test_a_ballot_that_could_not_be_saved_drops_the_rest_and_is_told_before_what_waits() -> None:
    async def scene() -> None:
        driver, did, _, _ = scripted({Started: EVERYTHING})
        disk = Disk(driver, did)
        driver.give(Started())
        driver.give(Resume())
        disk.done(OSError(errno.ENOSPC, "No space left on device"))
        told = [PersistFailed("No space left on device"), Resume()]
        assert did == [Started(), ("stop", 1, True), "saving", "failed", *told]

    asyncio.run(scene())


def test_two_ballots_in_one_step_are_saved_one_after_the_other() -> None:
    async def scene() -> None:
        driver, did, _, _ = scripted({Started: [*EVERYTHING, *EVERYTHING]})
        disk = Disk(driver, did)
        driver.give(Started())
        disk.done()
        assert did[-2:] == [("stop", 1, True), "saving"]
        assert len(disk.told) == 1
        disk.done()
        assert did[-len(REST) :] == REST

    asyncio.run(scene())


def test_a_deadline_that_passes_meanwhile_is_looked_at_when_it_is_saved() -> None:
    async def scene() -> None:
        driver, did, _, script = scripted({Started: EVERYTHING})
        disk = Disk(driver, did)
        script.deadline_ms = 0
        driver.give(Started())
        await asyncio.sleep(0.02)
        assert did == [Started(), ("stop", 1, True), "saving"]
        driver._wake()
        assert did[-1] == "saving"
        disk.done()
        assert driver._armed_ms == 0
        driver.close()

    asyncio.run(scene())


def test_what_waits_for_a_disk_that_hangs_is_bounded_and_only_messages_are_lost() -> None:
    async def scene() -> None:
        driver, did, _, _ = scripted({Started: EVERYTHING})
        disk = Disk(driver, did)
        driver.give(Started())
        for _ in range(3 * driving.WAITING_MAX):
            driver.hear(Query(Origin("b"), True))
        driver.give(Shutdown())
        disk.done()
        assert sum(isinstance(each, Received) for each in did) == driving.WAITING_MAX
        assert did[-1] == Shutdown()

    asyncio.run(scene())


def test_a_driver_that_is_closed_waits_for_its_disk_and_does_nothing_more() -> None:
    async def scene() -> None:
        driver, did, _, _ = scripted({Started: EVERYTHING})
        disk = Disk(driver, did)
        driver.give(Started())
        driver.close()
        settled = asyncio.get_running_loop().create_task(driver.settled())
        await asyncio.sleep(0)
        assert not settled.done()
        disk.done()
        await asyncio.wait_for(settled, 10)
        assert did == [Started(), ("stop", 1, True), "saving", "saved"]

    asyncio.run(scene())
