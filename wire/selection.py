"""Which jobs a word means: 7, 7_3, 7_[0-9], 1-3, last, all."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wire.spec import array_indices

_ID = re.compile(r"\d{1,18}", re.ASCII)
_ELEMENT = re.compile(r"\d{1,18}_\d{1,9}", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_ELEMENTS = re.compile(r"(\d{1,18})_\[([\d,:\- ]+)\]", re.ASCII)
LAST, ALL = "last", "all"


@dataclass(frozen=True)
class Label:
    """A job by its id or label; an id that is an array's means the array where several may be meant."""

    text: str

    @property
    def is_id(self) -> bool:
        """And not an element of an array."""
        return "_" not in self.text


@dataclass(frozen=True)
class Elements:
    """Elements of an array."""

    array: int
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Span:
    """Ids from one to another, of jobs that live."""

    low: int
    high: int


@dataclass(frozen=True)
class Every:
    """All jobs that live."""


@dataclass(frozen=True)
class Newest:
    """The one that was submitted last."""


class Unreadable(ValueError):
    """A word that means no jobs; `hint` says what would."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def meaning(word: str) -> Label | Elements | Span | Every | Newest:
    """What the word means. Raises Unreadable."""
    if word == ALL:
        return Every()
    if word == LAST:
        return Newest()
    if _ID.fullmatch(word) or _ELEMENT.fullmatch(word):
        return Label(word)
    span, elements = _RANGE.fullmatch(word), _ELEMENTS.fullmatch(word)
    if span is not None:
        low, high = int(span[1]), int(span[2])
        if high < low:
            raise Unreadable(f"the range {low}-{high} counts backwards", f"Write {high}-{low}.")
        return Span(low, high)
    if elements is not None:
        try:
            return Elements(int(elements[1]), tuple(array_indices(elements[2])))
        except ValueError as error:
            raise Unreadable(f"{word}: {error}", "Write 7_[0-9] or 7_[1,3].") from None
    raise Unreadable(f"{word!r} is not a job", "Write an id (7), an element of an array (7_3), or last.")
