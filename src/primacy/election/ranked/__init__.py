"""Leadership by rank: `bully.py` and `ring.py` tell the algorithms.

They are made of `State` (phases, timers), `Watch` (a leader's heartbeats), `Lifecycle` (what an operator and the agent
ask), `Fitness` (whether it could lead), `Ranking` (who is there) and the order of `rank.py`.
"""
