"""The filter language of all lists: `word`, `!word`, `field:value` and `gpus:>=4`, joined by spaces."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")
Value = str | float | None
Fields = Mapping[str, Callable[[Row], Value]]
Test = Callable[[Row], bool]

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "": operator.eq,
}
_NUMBER = re.compile(r"(>=|<=|>|<|=|)(\d+(?:\.\d+)?)$")
_FIELD = re.compile(r"([a-z]+):(.*)$", re.DOTALL)
_LEADING = re.compile(r"\d+")


class FilterError(ValueError):
    """Raised if a text is not a valid filter, for example because the user is still typing. The message is
    shown on the line in which the user types.
    """


@dataclass(frozen=True)
class RowFilter(Generic[Row]):
    """A parsed filter. A row passes the filter if it matches every term of the filter text. All rows pass an
    empty filter.
    """

    text: str = ""
    tests: tuple[Test[Row], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tests)

    def __call__(self, row: Row) -> bool:
        return all(test(row) for test in self.tests)


def parse(text: str, fields: Fields[Row], haystack: Callable[[Row], str]) -> RowFilter[Row]:
    """Parse a filter text. `fields` has a function for each field name that returns the value of a row. A
    term without a field name is a regular expression, which is searched in the text that `haystack` returns
    for a row.
    """
    return RowFilter(text, tuple(_term(word, fields, haystack) for word in text.split()))


def exact_filter(*names: str) -> str:
    """Return a filter text that matches the rows with one of these names and no other rows. The text contains
    no spaces, because spaces separate the terms of a filter.
    """
    escaped = (re.escape(name).replace(r"\ ", r"\s") for name in names)
    return f"^({'|'.join(escaped)})$"


def _term(word: str, fields: Fields[Row], haystack: Callable[[Row], str]) -> Test[Row]:
    inverse, body = word.startswith("!"), word.removeprefix("!")
    named = _FIELD.match(body)
    test = _field(named[1], named[2], fields) if named else _anywhere(body, haystack)
    return (lambda row: not test(row)) if inverse else test


def _anywhere(pattern: str, haystack: Callable[[Row], str]) -> Test[Row]:
    search = _regex(pattern).search
    return lambda row: search(haystack(row)) is not None


def _field(name: str, wanted: str, fields: Fields[Row]) -> Test[Row]:
    value = fields.get(name) or fields.get(_nearest(name, fields))
    if value is None:
        near = difflib.get_close_matches(name, fields, n=1)
        known = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(fields)}"
        raise FilterError(f"no field {name}; {known}")
    search, number = _regex(wanted).search, _NUMBER.match(wanted)
    compare, bound = (_COMPARE[number[1]], float(number[2])) if number else (operator.eq, 0.0)

    def test(row: Row) -> bool:
        is_ = value(row)
        if number and number[1] and isinstance(is_, str) and (leading := _LEADING.match(is_)):
            # If the value is a text with a number at its beginning, compare this number. For a display id
            # such as 29_299, it is the id of the array.
            is_ = float(leading[0])
        if isinstance(is_, str) or is_ is None:
            return search(is_ or "") is not None
        # Match all rows if the user has not typed the number yet, as in `gpus:>`.
        return not number or compare(is_, bound)

    return test


def _nearest(name: str, fields: Mapping[str, object]) -> str:
    """Return the only field whose name starts with `name`, such as `priority` for `prio`. Return an empty
    text if several fields or none have such a name.
    """
    begun = [field for field in fields if field.startswith(name)]
    return begun[0] if len(begun) == 1 else ""


def _regex(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise FilterError(f"not a valid regex yet: {error}") from None
