"""Builds HTML and SVG. Every string that is not Markup is escaped."""

from __future__ import annotations

import html
import json
from typing import Any

from wire.text import printable

VOID = frozenset({"meta", "input", "br"})


class Markup(str):
    """A string of HTML or SVG, which is not escaped again."""

    __slots__ = ()


def el(tag: str, /, *inside: str | int | None, **attributes: str | float | None) -> Markup:
    """Return an HTML or SVG element with the tag `tag`.

    The arguments `class_` and `aria_label` become the attributes class and aria-label. An attribute with the
    value None is left out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{joined(*inside)}</{tag}>")


def joined(*parts: str | int | None) -> Markup:
    """Join the parts to one string of HTML or SVG. Parts that are not Markup are escaped."""
    return Markup(
        "".join(part if isinstance(part, Markup) else _text(part) for part in parts if part is not None)
    )


def data(name: str, value: Any) -> Markup:
    """Return a script element with the value as JSON. The JSON is escaped, so that no text in the value can
    end the element."""
    text = json.dumps(value, separators=(",", ":"))
    inert = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(f'<script type="application/json" id="{name}">{inert}</script>')


def _text(part: str | int) -> str:
    text = str(part)
    return html.escape(printable(text, len(text)))


def _value(value: str | float) -> str:
    # Write only one decimal, because a smaller difference than a tenth of a pixel is not visible.
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else _text(str(value))
