"""The simulator of the cache: its machines in a world of their own, with faults, facts and checkers of their own."""
