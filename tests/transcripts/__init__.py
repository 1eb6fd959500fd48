"""Scenes in plain text, and what plays them."""
