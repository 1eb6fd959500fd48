"""What runs a leader's work: pure machines that decide, the guard process that holds the command, and the link to it.

`machine.py`, `gate.py` and `health.py` decide; `process_workload.py` performs it for a command, whose process tree the
guard holds (`guard/`, started by `containment.py`). `workload.py` is the port to any work.
"""
