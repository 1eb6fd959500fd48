"""The timeline of a cluster: one schema, drawn by one module.

    events of nodes (dashboard, `primacy why`) ──► fold ──► Timeline ──► static/timeline.js: the dashboard's page,
    the simulator's trace                      ───────────►               an incident file, a trace file

docs/timeline.md says what each field means. Nothing here asks a clock, a socket or a node; `page.py` reads the files
of its own folder, and nothing else does.
"""

from __future__ import annotations

SCHEMA = 1
"""Of the document. A reader that finds a larger number says so and draws nothing."""
