"""The simulator: the real machines in a world that loses, repeats, delays and reorders messages, drifts clocks, pauses
nodes and crashes them between any two effects. It imports machines and settings only; checkers stand outside and see
facts.
"""
