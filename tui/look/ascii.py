"""Translates the screen to ASCII for terminals that show no other characters."""

from __future__ import annotations

import locale
from collections.abc import Mapping

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from tui.look.glyphs import ASCII
from tui.look.styled_lines import span


class AsciiOnly(LineFilter):
    """Translates each line of the screen to ASCII. A character without an ASCII form becomes one question
    mark for each terminal cell of its width.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        return [
            segment
            if segment.text.isascii()
            else Segment(_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


def _ascii(text: str) -> str:
    known = text.translate(ASCII)
    if known.isascii():
        return known
    return "".join(letter if letter.isascii() else "?" * span(letter) for letter in known)


def ascii_only(environment: Mapping[str, str]) -> bool:
    """Return True if the terminal UI must show only ASCII: the user has set CORRAL_ASCII, the locale does not
    use UTF-8, or the terminal is the Linux console.
    """
    if environment.get("CORRAL_ASCII", "") not in ("", "0"):
        return True
    return "utf" not in locale.getpreferredencoding(False).lower() or environment.get("TERM") == "linux"
