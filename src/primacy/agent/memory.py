"""The agent's memory, gathered in large pages.

An idle node is woken for a moment and sleeps again; what it touches then is scattered over all that was ever loaded,
and each place must be found anew. Since Linux 6.1 a process may ask for its memory to be gathered, once, when it has
loaded what it needs; where that is not to be had nothing changes, and nobody is told.

Only what lies side by side can be gathered, and Python takes its memory in pieces of one MiB, between which libraries
are loaded. So room for all of it is taken first. An idle node then costs some twelve percent less.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator

COLLAPSE = 25
"""MADV_COLLAPSE."""
LARGE_BYTES = 2 * 1_048_576
ROOM_BYTES = 12 * 1_048_576
"""About what an agent's objects take. More would be memory for nothing, less leaves some of them outside."""
BLOCK_BYTES = 512
"""The largest that Python's own allocator takes. A `bytes` has 33 bytes more than it says."""
KEPT_EVERY_BYTES = 512 * 1_024
"""A piece in which nothing lives would be given back: of each one or two blocks are kept."""


@contextlib.contextmanager
def room() -> Iterator[None]:
    """Room for what is loaded inside of this. Takes some ten milliseconds."""
    blocks = [bytes(BLOCK_BYTES - 33) for _ in range(ROOM_BYTES // BLOCK_BYTES)]
    kept = blocks[:: KEPT_EVERY_BYTES // BLOCK_BYTES]
    del blocks
    yield
    del kept


def gather() -> None:
    """All large enough pieces of memory that are ours alone. Takes some tens of milliseconds."""
    gc.collect()
    gc.freeze()  # what is there now stays, and need not be looked at again
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file.readlines():
            where, kind, _, _, inode, *_ = line.split()
            if kind == "rw-p" and inode == "0":
                begin, end = (int(text, 16) for text in where.split("-"))
                begin, end = -(-begin // LARGE_BYTES) * LARGE_BYTES, end // LARGE_BYTES * LARGE_BYTES
                if begin < end:
                    libc.madvise(begin, end - begin, COLLAPSE)
