"""Joins pictures of screens to one SVG that shows them one after the other."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from html import escape

from tests.tui.svg_to_png import size_of

CAPTION, WIDEST = 74, 104
STYLE = "font: 20px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def animated(frames: Sequence[tuple[str, str]], seconds: float) -> str:
    """Each of the frames (caption, SVG) for this number of seconds, again and again."""
    width, height = size_of(frames[0][1])
    share = 100 / len(frames)
    style = (
        f".frame {{ visibility: hidden; animation: shown {seconds * len(frames):g}s step-end infinite }}\n"
        f"@keyframes shown {{ 0% {{ visibility: visible }} {share:.4f}% {{ visibility: hidden }} }}"
    )
    parts = [
        f'<svg viewBox="0 0 {width} {height + CAPTION}" xmlns="http://www.w3.org/2000/svg">',
        f"<style>{style}</style>",
        f'<rect width="{width}" height="{height + CAPTION}" rx="8" fill="#1d2126"/>',
    ]
    for number, (caption, svg) in enumerate(frames):
        inner = re.sub(r"^.*?<svg[^>]*>", "", svg, count=1, flags=re.DOTALL).rpartition("</svg>")[0]
        delay = f"animation-delay: {seconds * number:g}s"
        text = "".join(
            f'<text x="16" y="{30 + 28 * at}" fill="#e6b673" style="{STYLE}">{escape(line)}</text>'
            for at, line in enumerate(textwrap.wrap(caption, WIDEST)[:2])
        )
        parts.append(
            f'<g class="frame" style="{delay}">{text}<g transform="translate(0 {CAPTION})">{inner}</g></g>'
        )
    return "\n".join([*parts, "</svg>\n"])
