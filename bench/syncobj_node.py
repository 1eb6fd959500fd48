"""One node of PySyncObj: `python -m bench.syncobj_node OWN OTHER OTHER`. Says `leads` when it does, `ready` when in."""

from __future__ import annotations

import os
import sys
import threading

from pysyncobj import SyncObj, SyncObjConf

LEADER = 2


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def main(own: str, *others: str) -> None:
    def changed(_: int, state: int) -> None:
        if state == LEADER:
            say("leads")

    conf = SyncObjConf(onStateChanged=changed, onReady=lambda: say("ready"), dynamicMembershipChange=False)
    SyncObj(own, list(others), conf=conf)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
