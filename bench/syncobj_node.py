"""One node of PySyncObj: `python -m bench.syncobj_node [--lock] OWN OTHER OTHER`.

Says `leads` when it does, and `ready` when it is in. With `--lock` it wants a lock, as its own page shows it (an unlock
after 75 s without news of the holder), and says `holds` when it has it.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from pysyncobj import SyncObj, SyncObjConf, SyncObjException
from pysyncobj.batteries import ReplLockManager

LEADER = 2
UNLOCK_S = 75
AGAIN_S = 0.1


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def _acquired(locks: ReplLockManager) -> bool:
    """Without a leader, or just after one is lost, there is no answer in time."""
    try:
        return bool(locks.tryAcquire("bench", sync=True, timeout=1.0))
    except SyncObjException:
        return False


def main(*words: str) -> None:
    def changed(_: int, state: int) -> None:
        if state == LEADER:
            say("leads")

    own, *others = (word for word in words if word != "--lock")
    conf = SyncObjConf(onStateChanged=changed, onReady=lambda: say("ready"), dynamicMembershipChange=False)
    if "--lock" not in words:
        node = SyncObj(own, others, conf=conf)
        threading.Event().wait()
        node.destroy()
    locks = ReplLockManager(autoUnlockTime=UNLOCK_S)
    SyncObj(own, others, conf=conf, consumers=[locks])
    while not _acquired(locks):
        time.sleep(AGAIN_S)
    say("holds")
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
