"""Leadership by a row in a store. Read `strategy.py` first: the theory, the port, the watcher.

Below it `hold.py` (the holder), `evidence.py` (what may be believed of a store that can forget), `state.py` (what a
node knows); `view.py`: what people are told.
"""
