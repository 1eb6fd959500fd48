"""The placement machines of a cluster in a world of lost and late gossip, nodes that come and go, and operators."""
