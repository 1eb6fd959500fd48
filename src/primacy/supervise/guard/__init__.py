"""The guard: files that a process of its own loads by themselves, without this package.

Their folder alone is on its path, so they import each other by their bare names, and nothing of ours.
"""
