"""Several workers and four slots: a lock that times out, a counter, a limit, and news for all.

    primacy slots serve --config examples/slots.yaml
    python examples/slots_worker.py [HOST:PORT ...]

Start two: one works, the other waits until the first has ended or stood still for 5 s. Slots start empty under a new
leader, so that the lock is asked for anew whenever `leaderships` has grown: for work that must never run twice use
`primacy run`, or a fence at the resource.
"""

import asyncio
import os
import sys

from primacy.errors import SlotRefused, Unsure
from primacy.slots import Client

LOCK, NUMBER, LIMIT, NEWS = "001", "002", "003", "014"
JOBS = 5


async def locked(slots: Client, name: str) -> bool:
    """Takes the lock, or renews it: it belongs to the connection that wrote last."""
    try:
        await slots.set(LOCK, name)
    except SlotRefused:
        return False
    except Unsure:  # the connection broke, and with it whatever it owned
        return False
    return True


async def work(slots: Client, name: str) -> None:
    while not await locked(slots, name):
        await asyncio.sleep(0.2)
    met = slots.leaderships
    for _ in range(JOBS):
        while await slots.get(LIMIT) == b"0":
            await asyncio.sleep(0.05)
        number = int(await slots.get(NUMBER))
        await slots.set(NEWS, f"{name} does job {number}"[:36])
        if slots.leaderships != met or not await locked(slots, name):
            print(f"{name} lost the lock")
            return
    print(f"{name} did {JOBS} jobs")


async def main() -> None:
    addresses = sys.argv[1:] or ["localhost:25873"]
    name = f"worker-{os.getpid()}"
    async with Client(*addresses) as slots, Client(*addresses) as ears, ears.watch(NEWS) as news:
        working = asyncio.create_task(work(slots, name))
        while not working.done():
            heard = asyncio.create_task(anext(news))
            await asyncio.wait([heard, working], return_when=asyncio.FIRST_COMPLETED)
            if heard.done():
                print((await heard).decode())
            else:
                heard.cancel()
        await working


if __name__ == "__main__":
    asyncio.run(main())
