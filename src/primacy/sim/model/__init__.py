"""Every order of events in a bounded model, small enough to be known whole. `exhaustive.py` is the search."""
