"""Makes a screenshot small: at most 256 colours, which for a page of flat colours nobody sees.

The colours that cover most of the picture are kept; every other one becomes the nearest of them. Reads what Chromium
writes (8 bits, RGB or RGBA, not interlaced) and needs nothing but the standard library.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from pathlib import Path

HEAD = b"\x89PNG\r\n\x1a\n"
COLOURS_MAX = 256


def shrink(file: Path) -> int:
    """Rewrites the file; returns its size in bytes."""
    width, rows = _read(file.read_bytes())
    count: Counter[bytes] = Counter()
    for row in rows:
        count.update(row)
    kept = [colour for colour, _ in count.most_common(COLOURS_MAX)]
    at = {colour: number for number, colour in enumerate(kept)}
    for colour in count:
        at.setdefault(colour, min(range(len(kept)), key=lambda number: _far(kept[number], colour)))
    lines = b"".join(b"\0" + bytes(at[colour] for colour in row) for row in rows)
    head = struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0)
    data = HEAD + _chunk(b"IHDR", head) + _chunk(b"PLTE", b"".join(kept)) + _chunk(b"IDAT", zlib.compress(lines, 9))
    file.write_bytes(data + _chunk(b"IEND", b""))
    return file.stat().st_size


def _far(one: bytes, other: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _read(data: bytes) -> tuple[int, list[list[bytes]]]:
    """Width, and rows of colours."""
    assert data.startswith(HEAD), "no PNG"
    at, packed, head = len(HEAD), b"", b""
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        head = body if name == b"IHDR" else head
        packed += body if name == b"IDAT" else b""
        at += 12 + length
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    assert (depth, interlaced) == (8, 0)
    assert kind in (2, 6), "neither RGB nor RGBA"
    step = 3 if kind == 2 else 4
    raw, stride = zlib.decompress(packed), width * step
    rows, before = [], bytes(stride)
    for number in range(height):
        start = number * (stride + 1)
        before = _unfiltered(raw[start], raw[start + 1 : start + 1 + stride], before, step)
        rows.append([before[x : x + 3] for x in range(0, stride, step)])
    return width, rows


def _unfiltered(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    """A line of the PNG specification, section 9."""
    if kind == 0:
        return line
    if kind == 2:
        return bytes((a + b) & 255 for a, b in zip(line, above, strict=True))
    found = bytearray(line)
    for x in range(len(found)):
        left = found[x - step] if x >= step else 0
        corner = above[x - step] if x >= step else 0
        guess = left if kind == 1 else (left + above[x]) // 2 if kind == 3 else _paeth(left, above[x], corner)
        found[x] = (found[x] + guess) & 255
    return bytes(found)


def _paeth(left: int, above: int, corner: int) -> int:
    sum_ = left + above - corner
    far_left, far_above, far_corner = abs(sum_ - left), abs(sum_ - above), abs(sum_ - corner)
    if far_left <= far_above and far_left <= far_corner:
        return left
    return above if far_above <= far_corner else corner
