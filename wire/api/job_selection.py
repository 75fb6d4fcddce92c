"""Parses job selections, the words with which users select jobs: 7, 7_3, 7_[0-9], 1-3, user:ada,
name:sweep-*, last, all.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Union

from wire.dataclass import dataclass
from wire.job.arrays import array_indices

_ID = re.compile(r"\d{1,18}", re.ASCII)
_ELEMENT = re.compile(r"\d{1,18}_\d{1,9}", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_ELEMENTS = re.compile(r"(\d{1,18})_\[([\d,:\- ]+)\]", re.ASCII)
_JOBS_OF = re.compile(r"(user|project|name):(.+)")
LAST, ALL = "last", "all"


@dataclass(frozen=True)
class JobLabel:
    """Selects one job by its internal id or its display id (17 or 12_3). The id of an array selects all its
    elements, in commands that accept several jobs.
    """

    text: str

    @property
    def is_id(self) -> bool:
        """Return True for an id such as 7, and False for the display id of an array element such as 7_3."""
        return "_" not in self.text


@dataclass(frozen=True)
class ArrayElements:
    """Selects elements of one array by their indices."""

    array: int
    indices: tuple[int, ...]


@dataclass(frozen=True)
class JobRange:
    """Selects the jobs with ids from `low` to `high` that have not ended."""

    low: int
    high: int


@dataclass(frozen=True)
class AllJobs:
    """Selects all jobs that have not ended."""


@dataclass(frozen=True)
class JobsOf:
    """Selects jobs that have not ended: all jobs of a user or a project, or all jobs whose name matches a
    pattern.

    `field` is user, project or name. In a pattern, `*` stands for any characters and `?` for one.
    """

    field: str
    value: str

    def matches(self, user: str, project: str, name: str) -> bool:
        """Return whether a job with this user, project and name is selected."""
        if self.field == "name":
            return fnmatchcase(name, self.value)
        return self.value == (user if self.field == "user" else project)


@dataclass(frozen=True)
class NewestJob:
    """Selects the job that the user submitted last."""


Selection = Union[JobLabel, ArrayElements, JobRange, AllJobs, JobsOf, NewestJob]


class InvalidSelection(ValueError):
    """Raised for a word that is not a job selection. `hint` shows valid job selections."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def parse_selection(word: str) -> Selection:
    """Return the job selection that a user wrote as `word`. Raise InvalidSelection if `word` is not a job
    selection.
    """
    if word == ALL:
        return AllJobs()
    if word == LAST:
        return NewestJob()
    if _ID.fullmatch(word) or _ELEMENT.fullmatch(word):
        return JobLabel(word)
    of = _JOBS_OF.fullmatch(word)
    if of is not None:
        return JobsOf(of[1], of[2])
    span, elements = _RANGE.fullmatch(word), _ELEMENTS.fullmatch(word)
    if span is not None:
        low, high = int(span[1]), int(span[2])
        if high < low:
            raise InvalidSelection(f"the range {low}-{high} counts backwards", f"Write {high}-{low}.")
        return JobRange(low, high)
    if elements is not None:
        try:
            return ArrayElements(int(elements[1]), tuple(array_indices(elements[2])))
        except ValueError as error:
            raise InvalidSelection(f"{word}: {error}", "Write 7_[0-9] or 7_[1,3].") from None
    raise InvalidSelection(
        f"{word!r} is not a job",
        "Write an id (7), an element of an array (7_3), user:NAME, name:NAME, or last.",
    )
