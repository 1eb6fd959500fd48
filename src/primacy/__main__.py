"""The command's first file. It imports nothing: Ctrl-C while Python imports the rest shows no traceback."""

from __future__ import annotations

import os


def main() -> None:
    """Ends the process with an exit code."""
    try:
        if os.getpid() == 1:  # of a container
            from primacy.cli.first_process import stay_behind  # noqa: PLC0415

            stay_behind()
        from primacy.cli.main import main as begin  # noqa: PLC0415
    except KeyboardInterrupt:
        os.write(2, b"primacy: stopped.\n")
        os._exit(130)  # as a shell says it; nothing was begun that would have to be tidied up
    begin()


if __name__ == "__main__":
    main()
