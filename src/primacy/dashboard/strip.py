"""The strip on top of every page: who holds, whether one more failure is survived, what changed last. Pure.

Its level is the state of the whole page: the colour of the strip, the title and the icon of the tab.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primacy.dashboard.known import Known, Model
from primacy.dashboard.quorum import Quorum

GRAVE = ("ok", "unknown", "warn", "bad")
"""From good to bad."""
TWO = {"overlap": "two", "islands": "parts"}
"""States of the job in which two act at once: nothing on any page is green. In parts it is what the strategy promises,
and who is cut off from whom must still be seen: only the leaders are red."""


def strip(known: Known, job: Mapping[str, Any], votes: Quorum, change: Mapping[str, Any] | None) -> Model:
    """All that the strip says; how long ago is counted in the page."""
    doubles = known.chain.double_signatures if known.chain is not None else 0
    alert = "two" if doubles else TWO.get(str(job["state"]), "")
    levels = ["bad"] if alert else [str(job["level"]), "ok" if votes.level == "unknown" else votes.level]
    return {
        "level": max(levels, key=GRAVE.index),
        "alert": alert,
        "holder": {"level": "bad" if alert else job["level"], **_holder(job, doubles)},
        "margin": _margin(job, votes),
        "change": _changed(known, change),
        "title": _title(job, doubles),
    }


def _margin(job: Mapping[str, Any], votes: Quorum) -> Model:
    """Of a network in parts only the count is said: how many more may fail differs from part to part."""
    if job["state"] == "islands":
        return {"level": "unknown", "text": votes.text.partition(", ")[0]}
    return {"level": votes.level, "text": votes.margin}


def _holder(job: Mapping[str, Any], doubles: int) -> Model:
    if doubles:
        many = "" if doubles == 1 else f", {doubles:,} times"
        return {"text": f"Two nodes signed at once{many}", "node": "", "since_unix_ms": 0}
    if job["level"] == "ok":
        what = "One leader" if job.get("kind") == "none" else "One holder"
        return {"text": what, "node": job["node"], "since_unix_ms": job.get("since_unix_ms", 0)}
    return {"text": job["text"], "node": "", "since_unix_ms": 0}


def _title(job: Mapping[str, Any], doubles: int) -> str:
    if doubles:
        return "two signed at once"
    words = {
        "running": f"{job['node']} runs",
        "leading": f"{job['node']} leads",
        "starting": f"{job['node']} starts",
        "stopping": f"{job['node']} stops",
        "stuck": f"stuck on {job['node']}",
        "waiting": f"{job['node']} waits",
        "overlap": "two at once",
        "islands": "divided",
        "unknown": "not known",
        "all-stopped": "all stopped",
    }
    return words.get(str(job["state"]), "nobody runs")


def _changed(known: Known, change: Mapping[str, Any] | None) -> Model | None:
    if change is None:
        return None
    text = change["because"] if change["because"] and not change["person"] else change["text"]
    if text in ("nobody led before", "not known here"):
        text = change["text"]
    text = text.partition(" (term ")[0]  # the whole sentence is on the pages; here the gap must fit as well
    return {"text": text, "gap": gap_text(known, change["gap_ms"]), "at_unix_ms": change["at_unix_ms"]}


def gap_text(known: Known, gap_ms: int | None) -> str:
    """That two never were is said where a chain has counted; elsewhere only that none were seen."""
    if gap_ms is None:
        return ""
    said = f"nobody ran for {gap_ms:,} ms"
    if not known.at_most_one or known.overlapping:
        return said
    if known.chain is not None:
        return said if known.chain.double_signatures else f"{said}; never two"
    return f"{said}; two were not seen"
