"""Scenes in plain text: `transcript.py` has the language, `scenario.py` does it, `text.py` tells what happens."""
