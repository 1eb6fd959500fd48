"""The library: `Election`, `Lock`, `singleton` and `once`, for programs that elect by a lease without an agent.

`election.py` (asyncio; the sync face is `primacy.blocking`) and `recipes.py` stand on `leadership.py` and `hold.py`
(what the user's code holds, until when), `candidacy.py` (one process in one election), `renewer.py` (the thread that
renews), `tokens.py` and `deadman.py`.
"""
