"""The HA cache: peers over ZeroMQ that fetch each entry once for the whole cluster.

Peers answer clients at once with what they have, elect one peer per key to fetch what is missing or stale, and go on
while a majority sees each other. `machine.py` decides (pure); `peer.py` performs it on real sockets.
"""
