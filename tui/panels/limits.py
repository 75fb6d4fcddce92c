"""Lists the quotas whose usage is nearest to a hard limit, with a bar for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tui.look.styled_lines import Piece, bar, fit, heading
from wire.api.policy.quotas import QuotaView
from wire.cluster.quota import AMOUNTS, ANY_NAME, UNLIMITED
from wire.text import printable

NAME: Final = 26
NEAR: Final = 0.9
"""A usage of more than this fraction of the limit is amber."""


def limit_lines(quotas: Iterable[QuotaView], width: int, height: int) -> list[list[Piece]]:
    """Return a panel with one line for each hard limit, the fullest first, at most `height` lines; no lines
    if there is no hard limit.
    """
    found = []
    for quota in quotas:
        for amount in AMOUNTS:
            hard = getattr(quota.quota.hard, amount.field)
            if quota.name != ANY_NAME and hard not in (None, UNLIMITED):
                part = quota.counted(amount.field) / hard if hard else 1.0
                found.append((part, f"{quota.scope} {quota.name}", amount.word, quota.use_text(amount)))
    if not found or height < 3:
        return []
    found.sort(key=lambda each: (-each[0], each[1:]))
    lines: list[list[Piece]] = [[], heading([("nearest to their limits", "strong")], width)]
    room = max(10, min(60, width - NAME - 34))
    for part, name, word, use in found[: height - 2]:
        style = "bad" if part >= 1 else "warn" if part > NEAR else "running"
        lines.append(
            [
                (f" {fit(printable(name), NAME)} ", "text"),
                (f"{word:<10} ", "muted"),
                *bar(part, room, style),
                (f" {part:>4.0%}  {use}", style if part > NEAR else "muted"),
            ]
        )
    return lines
