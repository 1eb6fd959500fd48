"""Executes a command as a user for whom containment is weak: no namespace, and nothing may be traced.

    python -I tests/support/weak_containment.py COMMAND [ARGUMENT ...]

For root: CAP_SYS_ADMIN is taken away for ever, and a filter refuses ptrace(2), as in a container with little trust.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

PR_CAPBSET_DROP, PR_SET_SECCOMP = 24, 22
CAP_SYS_ADMIN, MODE_FILTER = 21, 2
PTRACE = 101 if os.uname().machine == "x86_64" else 117
FILTER = ((0x20, 0, 0, 0), (0x15, 0, 1, PTRACE), (0x06, 0, 0, 0x00050000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000))

libc = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in FILTER))
program = struct.pack("HxxxxxxP", len(FILTER), ctypes.addressof(code))
if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, program, 0, 0) or libc.prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0):
    sys.exit(f"cannot be weak: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
