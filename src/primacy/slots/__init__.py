"""Seed 000's slots: small values, locks, limits, counters and signals on the node that leads."""
