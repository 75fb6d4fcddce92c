"""Facts: the details of an object as pairs of heading and value."""

from __future__ import annotations

from collections.abc import Mapping

from wire.text import printable

Facts = list[tuple[str, str]]


SHOWN = 400
"""The most characters that are shown of a long text, such as a job's command. -o json shows the whole
text.
"""


def text_lines(*texts: object) -> str:
    return "\n".join(printable(text, SHOWN) for each in texts for text in str(each).splitlines() if text)


def pairs_text(pairs: Mapping[str, str]) -> str:
    # Replace newlines in values, because the next line would look like another variable or label.
    return "\n".join(f"{key}={value}".replace("\n", "\ufffd") for key, value in pairs.items())
