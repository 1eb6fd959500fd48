"""A process that writes to a cache folder until it is killed, and says after each batch that it is committed.

    python -m tests.support.cache_writer FOLDER SEED

Each batch rewrites a few of `KEYS` keys; the value tells its round, so that whoever looks afterwards knows which rounds
were lost. Prints the number of each round once `apply` has returned.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping

from primacy.cache.effects import StoreCeiling, StoreEntry, StoreFloor
from primacy.cache.lmdb_storage import LmdbStorage
from primacy.cache.model import Ballot, Floor, Meta

KEYS = 60
BOUND_BYTES = 256 << 20


def key_of(number: int) -> bytes:
    return b"key %d" % number if number % 3 else b"long %d " % number + b"x" * 600


def value_of(number: int, turn: int) -> bytes:
    """Between nothing and 30 kB, and different in every round."""
    return random.Random(f"{number} {turn}").randbytes((number * 7_919 + turn) % 30_000) + b"%d" % turn


def keys_of(turn: int, seed: int) -> list[int]:
    return random.Random(f"{seed} {turn}").sample(range(KEYS), 5)


def batch_of(turn: int, seed: int) -> list[StoreEntry | StoreCeiling | StoreFloor]:
    epoch = Ballot(turn, "tcp://127.0.0.1:1", seed)
    entries = [
        StoreEntry(key_of(n), Meta(turn, turn, epoch, len(value_of(n, turn)), 0), value_of(n, turn))
        for n in keys_of(turn, seed)
    ]
    return [*entries, StoreCeiling(turn), StoreFloor(Floor(b"nobody's", False, turn))]


def newest(turns: int, seed: int) -> Mapping[int, int]:
    """The last of the first `turns` rounds in which each key was written."""
    return {n: turn for turn in range(1, turns + 1) for n in keys_of(turn, seed)}


def main() -> None:
    storage, seed = LmdbStorage(sys.argv[1], BOUND_BYTES), int(sys.argv[2])
    turn = storage.load().ceiling or 0
    while True:
        turn += 1
        storage.apply(batch_of(turn, seed))
        os.write(1, b"%d\n" % turn)


if __name__ == "__main__":
    main()
