"""The simulator: the real machines in a world that loses, repeats, delays and reorders messages, drifts clocks, pauses
nodes and crashes them between any two effects. It imports machines and settings only; checkers stand outside and see
facts.

`world/` is that world, `faults/` what goes wrong in it, `trials/` one trial and many, `transcripts/` scenes in plain
text, `model/` the search of a bounded model; `cache/` has all of this for the cache.
"""
