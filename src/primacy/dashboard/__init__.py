"""The dashboard: one page that shows a cluster live, and in the lab lets a person break and mend it.

    nodes' /v1/cluster, /v1/events ──► source ──► view (pure) ──► hub: frames ──► browsers (static/, plain ES modules)
    lab, chain                     ──►

Everything that is shown is decided by pure functions here, in Python, so that it is tested without a browser; the page
draws it. A page is one module in `static/pages/` with a line in `static/pages.js`.

The dashboard is a reader like any other. It holds no part of an election, and a cluster does not notice that it ends.
"""

from __future__ import annotations

PATH = "/dashboard"
"""All of it lives below this path, so that its cookie is seen by nothing else on the same host."""
EVENTS_MAX = 3_000
"""Kept here and in the page: an hour of a bad cluster, and a quarter of a minute of a flood of 200 a second."""
NODES_MAX = 64
"""No list of voters is longer; whatever else a document lists is not shown."""
