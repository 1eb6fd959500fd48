"""The agent: one node assembled from one `Settings`, with its workload.

`assemble.py` builds the node, `chosen.py` its strategy; `run.py` waits for its turn, `lifecycle.py` is the whole from
start to end, on `status.py` (what it shows) and `events.py` (what it says).
"""
