"""Drives one machine for real: the loop, the clock, the ballot file and the locks. It decides nothing.

Everything that the driver touches is handed in as a port, so that the same driver runs in a test with a clock, a disk
and work of its own making.
"""
