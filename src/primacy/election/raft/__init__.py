"""Raft's election without its log. Read `strategy.py` first: the theory, the one way in, what it shows of itself.

Below it, each on the next: `memory.py` (starting, meeting others, the end of muteness), `vote.py` (following, voting),
`lead.py` (leading), `state.py` (what a node knows, and every change of its role), `roles.py` (what each role keeps).
`quorum.py` and `progress.py`: who is a majority, and what it has acked. `recovery.py`: when a node that forgot may
speak.
"""
