"""Who belongs to a cluster that grows by joining, and Ghoti's HTTP, through which its nodes speak.

`manager.py` is the port. `members.py` (the list), `pace.py` (how late others answer): pure. `join.py`, `send.py`,
`storms.py` (what real Ghoti nodes echo); `http_wire.py` (bodies), `http_handlers.py`, `http_gossip.py`,
`http_server.py`, `http_client.py`: the wire. Nothing here knows a strategy.
"""
