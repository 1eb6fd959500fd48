"""The report of a drill as one file that opens from a disk, on the one drawing module of timelines."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from primacy.timeline.page import static, whole


def page(report: dict[str, Any]) -> str:
    """The whole HTML file, from the document of `report.py`."""
    own = files("primacy.drill") / "static"
    read = {name: (own / name).read_text(encoding="utf-8") for name in ("drill.html", "drill.css", "drill.js")}
    style = f"\n{static('timeline.css')}\n{static('file.css')}\n{read['drill.css']}"
    script = f"\n{static('timeline.js')}\n{static('file.js')}\n{read['drill.js']}"
    drawn = report["timeline"]
    said = {name: value for name, value in report.items() if name != "timeline"}
    return whole(read["drill.html"], drawn["title"], style, script, {**drawn, "drill": said})
