"""What goes wrong in a trial: `classes.py` draws, each class stands in the file of what it befalls, `acts.py` does
it.
"""
