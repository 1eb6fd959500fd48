"""Trials: `trial.py` is one, from one seed; the rest runs many, repeats one that was written down, makes one small."""
