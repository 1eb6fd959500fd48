"""Leadership by rank: `bully.py` and `ring.py`, one round of each.

Below both `strategy.py` (the one way in), `follow.py` (finding and watching a leader), `lead.py` (leading, leaving in
order), `ranking.py` (who is there), `rank.py` (the order).
"""
