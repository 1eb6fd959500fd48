"""Records what the machines and the surfaces of one version do, and compares another version with it.

`python -m tests.behaviour record FOLDER` runs at the old version, `python -m tests.behaviour replay FOLDER` at the new
one. `names.toml` says what was renamed in between. docs/behaviour.md tells how to use it.
"""
