"""Trials, exhaustive walks, checkers and planted defects."""
