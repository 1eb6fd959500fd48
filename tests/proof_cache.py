"""What a release must show of the cache: kills of a writer, many keys, ends of calls over and over, real peers."""

from __future__ import annotations

import os
import subprocess
import sys

ROUNDS = 5


def main() -> int:
    pytest = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    steps = [
        [*pytest, "tests/test_cache_lmdb.py"],
        *([[*pytest, "tests/test_cache_source_process.py"]] * ROUNDS),
    ]
    environment = {**os.environ, "PRIMACY_SIZE": "proof"}
    steps.append([sys.executable, "-m", "tests.proof_cache_peer"])
    code = 0
    for step in steps:
        code = code or subprocess.run(step, env=environment, check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
