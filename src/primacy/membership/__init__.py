"""Who belongs to a cluster that grows by joining, and Ghoti's HTTP, through which its nodes speak.

`machine.py` decides, and is pure; `manager.py` performs, on `http_server.py` and `http_client.py`. Nothing here knows a
strategy.
"""
