"""The agent: one node assembled from one `Settings`, with its workload.

`assemble.py` builds the node, `process_workload.py` is the workload of `primacy run`, `guard_link.py` the pipe to the
guard process, `child.py` what the command is started with, `lease_file.py` what it can read about its hold, `log.py`
the lines on standard error, `run.py` the wait for its turn, and `lifecycle.py` the whole from start to end.
"""
