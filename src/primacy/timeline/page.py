"""A timeline as one file that opens from a disk: the drawing module, its style and the data, nothing from outside.

Its Content-Security-Policy allows this one script and this one style, by their hashes, and nothing else: whatever a
name or a text says, it cannot run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

from primacy.timeline.schema import Timeline


def static(name: str) -> str:
    """A file of the drawing."""
    return (files("primacy.timeline") / "static" / name).read_text(encoding="utf-8")


def page(timeline: Timeline) -> str:
    """The whole HTML file."""
    script = f"\n{static('timeline.js')}\n{static('file.js')}"
    style = f"\n{static('timeline.css')}\n{static('file.css')}"
    return whole(static("file.html"), timeline.title, style, script, timeline.document())


def whole(template: str, title: str, style: str, script: str, document: dict[str, Any]) -> str:
    """A file with one style, one script and one document, in the places that the template has for them."""
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
    parts = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'",
        "style": style,
        # In a script element only "</" and "<!--" could end the data; no "<" is left at all.
        "data": data.replace("<", "\\u003c"),
        "script": script,
    }
    before, *rest = template.split("{{")
    return before + "".join(parts[name] + after for name, _, after in (part.partition("}}") for part in rest))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
