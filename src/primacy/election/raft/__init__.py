"""Raft's election without its log. Read `strategy.py` first: the theory, and the one way in.

`roles.py` and `state.py`: the roles, every change between them, and what binds a node in all of them. By role:
`follow.py` (acks and votes), `campaign.py`, `lead.py`, `memory.py` (starting and recovering) with `recovery.py` (when a
node that forgot may speak). In every role: `meet.py` (who is heard), `release.py`, `ballot.py` (what the disk has).
`quorum.py` and `progress.py`: who is a majority, and what it has acked. `view.py`: what it shows people.

The register of members: `register.py` (pure: its next steps), `tell.py` (who takes which), `change.py` (what a leader
does with a goal), `requests.py` (what may be asked for), `admit.py` (observers without memory).
"""
