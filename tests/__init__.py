"""The tests: README.md says which folder holds what."""
