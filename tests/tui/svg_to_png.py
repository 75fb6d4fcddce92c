"""Turns the SVG pictures of screens into small PNG files, with a Chromium without a window."""

from __future__ import annotations

import re
import struct
import zlib
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from tests.browser import Tab

Pixels = NDArray[np.uint8]


def size_of(svg: str) -> tuple[int, int]:
    """The width and height of the view box."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found
    return round(float(found[1])), round(float(found[2]))


async def draw(tab: Tab, svg: str, scale: float) -> bytes:
    """The picture as PNG with 256 colours, `scale` times as large."""
    width, height = size_of(svg)
    page = f"<body style='margin:0'>{svg}"
    await tab.ask(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=scale,
        mobile=False,
    )
    await tab.go(f"data:text/html;charset=utf-8,{quote(page)}")
    await tab.run(
        "new Promise(done => { if (document.readyState == 'complete') done(); else onload = done; })"
    )
    await tab.run("document.fonts.ready.then(() => 1)")
    return small(await tab.picture())


def small(png: bytes) -> bytes:
    """The same picture with at most 256 colours: a screen of text needs a third of the bytes.

    1. Read the rows of the PNG, and undo their filters.
    2. Round each colour to a step that leaves at most 256 different colours.
    3. Write one byte for each pixel, the number of its colour.
    """
    pixels = _read(png)
    flat = pixels.reshape(-1, 3)
    for step in (1, 2, 4, 8, 16, 32, 64):
        rounded = np.minimum((flat.astype(np.int32) + step // 2) // step * step, 255)
        keys = rounded[:, 0] << 16 | rounded[:, 1] << 8 | rounded[:, 2]
        colours, numbers = np.unique(keys, return_inverse=True)
        if len(colours) <= 256:
            break
    height, width, _ = pixels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)
    rows[:, 1:] = numbers.reshape(height, width)
    palette = b"".join(int(colour).to_bytes(3, "big") for colour in colours)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _read(png: bytes) -> Pixels:
    """The pixels of a PNG with 8 bits for each of three or four channels."""
    at, packed = 8, b""
    width = height = channels = 0
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += length + 12
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", body)
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
    data = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    made = np.zeros((height, width, channels), dtype=np.uint8)
    above = np.zeros((width, channels), dtype=np.uint8)
    for row in range(height):
        above = made[row] = _unfiltered(int(data[row, 0]), data[row, 1:].reshape(width, channels), above)
    return made[:, :, :3]


def _unfiltered(kind: int, line: Pixels, above: Pixels) -> Pixels:
    """One row of pixels without the filter of the PNG format, from the row above it."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0, dtype=np.uint8)
    if kind == 2:
        return line + above
    made = np.zeros_like(line)
    left = [0] * line.shape[1]
    corner = list(left)
    for x, (values, tops) in enumerate(zip(line.tolist(), above.tolist(), strict=True)):
        left = [
            value + ((a + b) // 2 if kind == 3 else _paeth(a, b, c)) & 255
            for value, a, b, c in zip(values, left, tops, corner, strict=True)
        ]
        corner = tops
        made[x] = left
    return made


def _paeth(left: int, above: int, corner: int) -> int:
    """The neighbour that is nearest to left + above - corner."""
    guess = left + above - corner
    return min(
        (abs(guess - left), 0, left), (abs(guess - above), 1, above), (abs(guess - corner), 2, corner)
    )[2]
