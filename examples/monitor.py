"""A monitor for primacy: runs a check every so often and tells the node of this machine whether it is well.

    python3 monitor.py FOLDER EVERY_MS COMMAND [ARGUMENT ...]

FOLDER is that of the election (/var/lib/primacy/primacy/main): it has the node's address and its control key. A check
that does not end with 0 makes the node step down and keeps it from leading; so does a monitor that falls silent, for it
promises to speak again within three times EVERY_MS. The standard library is all that it needs.
"""

import http.client
import json
import pathlib
import subprocess
import sys
import time

folder, every_ms, command = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]


def check() -> str:
    """What is wrong, or nothing."""
    try:
        code = subprocess.run(command, timeout=every_ms / 1000, check=False).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {type(error).__name__}"
    return f"{command[0]} ended with {code}" if code else ""


while True:
    wrong = check()
    said = {"ok": not wrong, "detail": wrong, "monitor": "monitor.py", "within_ms": 3 * every_ms}
    try:
        where = json.loads((folder / "control.json").read_text())
        headers = {"X-Primacy": "1", "X-Primacy-Key": (folder / "control.key").read_text().strip()}
        node = http.client.HTTPConnection(where["host"], where["port"], timeout=5)
        node.request("POST", "/v1/health", json.dumps(said), headers)
        print(node.getresponse().status, wrong or "well", flush=True)
    except (OSError, ValueError, http.client.HTTPException) as error:
        print("the node does not answer:", error, flush=True)  # it is down, or not up yet
    time.sleep(every_ms / 1000)
