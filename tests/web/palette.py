"""Pictures of a third of the size: PNG files with 256 colours instead of sixteen million, which pages do not need."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_HEAD = b"\x89PNG\r\n\x1a\n"
_RGB = 2
Colour = bytes  # three of them


def reduce_colours(file: Path) -> None:
    """Write a picture anew with its 256 most frequent colours; each other one becomes the nearest of these."""
    lines = list(_lines(file.read_bytes()))
    pixels = [[line[at : at + 3] for at in range(0, len(line), 3)] for line in lines]
    counted = Counter(pixel for line in pixels for pixel in line)
    palette = [colour for colour, _ in counted.most_common(256)]
    places = {colour: place for place, colour in enumerate(palette)}
    for colour in counted:
        if colour not in places:
            places[colour] = min(range(len(palette)), key=lambda place: _distance(palette[place], colour))
    head = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 3, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(places[pixel] for pixel in line) for line in pixels)
    parts = ((b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    file.write_bytes(_HEAD + b"".join(_chunk(kind, content) for kind, content in parts))


def _distance(one: Colour, other: Colour) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_HEAD)
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += length + 12


def _lines(data: bytes) -> Iterator[bytes]:
    """Return the lines of a picture as Chromium writes it: three bytes per pixel, filtered by the five ways of PNG."""
    chunks = list(_chunks(data))
    width, _, depth, kind = struct.unpack(">IIBB", dict(chunks)[b"IHDR"][:10])
    if (depth, kind) != (8, _RGB):
        raise ValueError(f"expected 8 bits of each colour, and no transparency; got {depth} bits, kind {kind}")
    raw = zlib.decompress(b"".join(content for name, content in chunks if name == b"IDAT"))
    above = bytes(3 * width)
    for at in range(0, len(raw), 3 * width + 1):
        above = _unfiltered(raw[at], bytearray(raw[at + 1 : at + 1 + 3 * width]), above)
        yield above


def _unfiltered(way: int, line: bytearray, above: bytes) -> bytes:
    if way == 2:
        return bytes((value + up) & 255 for value, up in zip(line, above, strict=True))
    if way:
        guess = (lambda left, up, corner: left, _average, _paeth)[(1, 3, 4).index(way)]
        for at, value in enumerate(line):
            left, corner = (line[at - 3], above[at - 3]) if at >= 3 else (0, 0)
            line[at] = (value + guess(left, above[at], corner)) & 255
    return bytes(line)


def _average(left: int, up: int, _: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if to_left <= to_up and to_left <= to_corner:
        return left
    return up if to_up <= to_corner else corner
