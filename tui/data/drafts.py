"""Drafts: the texts of forms that the user has closed without sending them. Drafts are kept in memory only,
because fields such as environment variables can contain secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MOST: Final = 20
"""The number of kept drafts."""


@dataclass(frozen=True)
class Draft:
    """The texts of a form by field name, and the time at which the form was closed."""

    typed: Mapping[str, str]
    closed_at: float


class Drafts:
    """The last MOST drafts by the titles of their forms."""

    def __init__(self) -> None:
        self._drafts: dict[str, Draft] = {}

    def keep(self, title: str, typed: Mapping[str, str], defaults: Mapping[str, str], now: float) -> None:
        """Keep a draft of a form that was closed at the time `now`. If all texts are the defaults, there is
        nothing to keep, and an older draft remains.
        """
        if dict(typed) == dict(defaults):
            return
        self._drafts.pop(title, None)
        self._drafts[title] = Draft(dict(typed), now)
        while len(self._drafts) > MOST:
            del self._drafts[next(iter(self._drafts))]

    def get(self, title: str) -> Draft | None:
        return self._drafts.get(title)

    def drop(self, title: str) -> None:
        """Remove the draft of a form, because the form was sent."""
        self._drafts.pop(title, None)
