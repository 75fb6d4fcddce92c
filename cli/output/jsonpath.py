"""Templates of -o jsonpath=TEMPLATE, a part of the JSONPath of kubectl.

A template is text with expressions in braces, such as `{range .nodes[*]}{.name} {.state}{"\\n"}{end}`. A
template without braces is one expression, such as `.nodes[*].name`.

| form | meaning |
|---|---|
| `.name`, `['name']` | a field of an object; a backslash before a dot belongs to the name |
| `[2]`, `[-1]`, `[0,2]`, `[1:3]` | elements of a list |
| `[*]`, `.*` | all elements of a list, or all values of an object |
| `..name` | all fields with this name, at any depth |
| `[?(@.gpus > 4)]` | the elements for which a comparison holds (==, !=, <, <=, >, >=) |
| `[?(@.jobs)]` | the elements that have the field |
| `{range PATH}…{end}` | the template between the two, once for each value of PATH |
| `$` | the whole answer; without `$`, a path in a range begins at the value of the range |
| `{"text"}` | text, with \\n for a new line and \\t for a tab |
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from wire.text import printable

_NAME = re.compile(r"(?:\\.|[^\\.\[\]{}()\s,=!<>'\"|&@?*:$])+")
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,3})?")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'')
_INDEX = re.compile(r"-?\d{1,9}")
_SLICE = re.compile(r"(-?\d{1,9})?:(-?\d{1,9})?(?::([1-9]\d{0,8}))?")
_SPACE = re.compile(r"\s*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_WORDS = {"true": True, "false": False, "null": None}
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<=": lambda left, right: bool(left <= right),
    ">=": lambda left, right: bool(left >= right),
    "<": lambda left, right: bool(left < right),
    ">": lambda left, right: bool(left > right),
}
MOST_NAMES = 12
"""The most names of fields that an error lists."""


class JsonPathError(ValueError):
    """A template that is not valid, or that names a field that the answer does not have."""


@dataclass(frozen=True)
class _Step:
    """A step of a path. `take` returns the values that the step selects from a list of values. `at` is the
    position in the template where the step ends.
    """

    take: Callable[[list[Any]], list[Any]]
    at: int


@dataclass(frozen=True)
class _Path:
    steps: tuple[_Step, ...]
    from_root: bool

    def values(self, root: Any, current: Any) -> list[Any]:
        found = [root if self.from_root else current]
        for step in self.steps:
            found = step.take(found)
        return found


@dataclass(frozen=True)
class _Range:
    path: _Path
    pieces: list[_Piece] = field(default_factory=list)


_Piece = str | _Path | _Range


class JsonPath:
    """A parsed template. `text` applies the template to JSON data. The constructor raises JsonPathError, with
    the position in the template, if the template is not valid.
    """

    def __init__(self, template: str) -> None:
        self._source = template
        self._at = 0
        self._pieces = self._read_template() if "{" in template else [self._only_path()]

    def text(self, data: Any) -> str:
        """Return the template as text, with the values from `data`. Values of one path are separated by
        spaces. Strings are without quotes, null is empty, and lists and objects are JSON. Raise JsonPathError
        if no value has a field that the template names.
        """
        return "".join(_texts(self._pieces, data, data))

    # --- parsing the template ---

    def _only_path(self) -> _Piece:
        path = self._read_path()
        if self._at < len(self._source):
            self._fail("expected the end of the expression")
        return path

    def _read_template(self) -> list[_Piece]:
        pieces: list[_Piece] = []
        open_ranges: list[tuple[list[_Piece], int]] = []
        while self._at < len(self._source):
            brace = self._source.find("{", self._at)
            if brace != self._at:
                end = len(self._source) if brace < 0 else brace
                pieces.append(self._source[self._at : end])
                self._at = end
                continue
            self._at += 1
            self._skip_space()
            if self._accept_word("range"):
                made = _Range(self._read_path())
                pieces.append(made)
                open_ranges.append((pieces, brace))
                pieces = made.pieces
            elif self._accept_word("end"):
                if not open_ranges:
                    self._fail("{end} without {range …}", brace)
                pieces, _ = open_ranges.pop()
            elif quoted := self._accept(_QUOTED):
                pieces.append(_unescaped(quoted))
            else:
                pieces.append(self._read_path())
            self._skip_space()
            self._expect("}")
        if open_ranges:
            self._fail("{range …} without {end}", open_ranges[-1][1])
        return pieces

    def _read_path(self) -> _Path:
        """Read a path such as `.nodes[*].name`. The dot before the first name may be missing."""
        self._skip_space()
        steps: list[_Step] = []
        from_root = self._accept_text("$")
        start = self._at
        if not from_root and not self._accept_text("@") and (first := self._accept(_NAME)):
            steps.append(self._named(first[0]))
        while self._at < len(self._source):
            if self._accept_text(".."):
                steps.append(self._deep(self._name("after '..'")))
            elif self._accept_text(".*"):
                steps.append(_Step(_everything, self._at))
            elif self._accept_text("."):
                # Add no step for a single dot, because `.` stands for the value itself.
                name = self._accept(_NAME)
                if name is not None:
                    steps.append(self._named(name[0]))
                elif self._at > start + 1:
                    self._fail("expected the name of a field after '.'")
            elif self._accept_text("["):
                steps.append(self._bracket())
            else:
                break
        if self._at == start and not from_root:
            self._fail("expected a path, such as .nodes[*].name")
        return _Path(tuple(steps), from_root)

    def _bracket(self) -> _Step:
        bracket = self._at
        self._skip_space()
        if self._accept_text("*"):
            take: Callable[[list[Any]], list[Any]] = _everything
        elif self._accept_text("?("):
            return self._filter()
        elif quoted := self._accept(_QUOTED):
            step = self._named(_unescaped(quoted))
            self._skip_space()
            self._expect("]")
            return step
        elif sliced := self._accept(_SLICE):
            part = slice(*(None if number is None else int(number) for number in sliced.groups()))
            take = self._of_lists(bracket, lambda each: each[part])
        elif first := self._accept(_INDEX):
            chosen = [int(first[0])]
            while self._accept_text(","):
                self._skip_space()
                more = self._accept(_INDEX) or self._fail("expected a number")
                chosen.append(int(more[0]))
            take = self._of_lists(
                bracket, lambda each: [each[n] for n in chosen if -len(each) <= n < len(each)]
            )
        else:
            self._fail("expected a number, a slice such as 0:3, *, 'name' or ?(…)")
        self._skip_space()
        self._expect("]")
        return _Step(take, self._at)

    def _filter(self) -> _Step:
        left = self._operand()
        self._skip_space()
        word = next((each for each in _COMPARE if self._accept_text(each)), "")
        right = self._operand() if word else None
        self._skip_space()
        self._expect(")")
        self._skip_space()
        self._expect("]")

        def take(values: list[Any]) -> list[Any]:
            items = _everything(values)
            if items:
                # Raise JsonPathError for a field that no item has, because a misspelled name would otherwise
                # select nothing.
                for operand in (left, right):
                    if isinstance(operand, _Path) and not operand.from_root:
                        _walk(operand, items)
            return [each for each in items if _holds(left, word, right, each)]

        return _Step(take, self._at)

    def _operand(self) -> Any:
        """Read one side of a comparison: a path of the item (@…), or a value."""
        self._skip_space()
        if self._source.startswith("@", self._at):
            return self._read_path()
        if quoted := self._accept(_QUOTED):
            return _unescaped(quoted)
        if number := self._accept(_NUMBER):
            return json.loads(number[0])
        if word := self._accept(_NAME):
            if word[0] in _WORDS:
                return _WORDS[word[0]]
            self._at -= len(word[0])
            self._fail(f"{word[0]!r} is no value: write @.{word[0]} for a field, or quotes around a text")
        return self._fail("expected a field such as @.name, a number or a text in quotes")

    # --- making the steps of a path ---

    def _named(self, text: str) -> _Step:
        name, before, at = re.sub(r"\\(.)", r"\1", text), self._at - len(text), self._at

        def take(values: list[Any]) -> list[Any]:
            found = [each[name] for each in values if isinstance(each, Mapping) and name in each]
            if not found and any(each is not None for each in values):
                raise JsonPathError(self._missing(name, values, before))
            return found

        return _Step(take, at)

    def _deep(self, name: str) -> _Step:
        return _Step(
            lambda values: [found for each in values for found in _at_any_depth(each, name)], self._at
        )

    def _of_lists(
        self, bracket: int, part: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> Callable[[list[Any]], list[Any]]:
        def take(values: list[Any]) -> list[Any]:
            if any(isinstance(each, Mapping) for each in values):
                raise JsonPathError(
                    f"at character {bracket}: [ ] with a number is for lists, and this is an object: write "
                    ".name or ['name']"
                )
            return [found for each in values if isinstance(each, list) for found in part(each)]

        return take

    def _missing(self, name: str, values: list[Any], before: int) -> str:
        where = f"at character {before + 1}"
        first = next(each for each in values if each is not None)
        if isinstance(first, list):
            return f"{where}: {name!r} is looked for in a list: write [*] or [0] before it"
        if not isinstance(first, Mapping):
            return f"{where}: {name!r} is looked for in {_text(first)!r}, which has no fields"
        names = [str(each) for each in first]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        shown = (
            f"the fields there are {', '.join(names[:MOST_NAMES])}{more}"
            if names
            else "the object there is empty"
        )
        return printable(f"{where}: there is no field {name!r}; {shown}", 1_000)

    # --- reading characters of the template ---

    def _skip_space(self) -> None:
        self._accept(_SPACE)

    def _accept(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._source, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _accept_text(self, text: str) -> bool:
        if not self._source.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _accept_word(self, word: str) -> bool:
        return self._accept(re.compile(rf"{word}(?=[\s}}])")) is not None

    def _name(self, where: str) -> str:
        match = self._accept(_NAME) or self._fail(f"expected the name of a field {where}")
        return re.sub(r"\\(.)", r"\1", match[0])

    def _expect(self, text: str) -> None:
        if not self._accept_text(text):
            self._fail(f"expected {text!r}")

    def _fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self._at if at is None else at
        found = repr(self._source[at : at + 10]) if at < len(self._source) else "the end"
        raise JsonPathError(f"at character {at + 1}: {message}, found {printable(found)}")


def _texts(pieces: Sequence[_Piece], root: Any, current: Any) -> Iterator[str]:
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        elif isinstance(piece, _Path):
            yield " ".join(_text(value) for value in piece.values(root, current))
        else:
            for value in piece.path.values(root, current):
                yield from _texts(piece.pieces, root, value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(value, len(value))
    return json.dumps(value, separators=(",", ":"))


def _everything(values: list[Any]) -> list[Any]:
    """Return all elements of the lists and all values of the objects in `values`."""
    found: list[Any] = []
    for each in values:
        if isinstance(each, Mapping):
            found += each.values()
        elif isinstance(each, list):
            found += each
    return found


def _at_any_depth(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, Mapping) and name in value:
        yield value[name]
    for part in _everything([value]):
        yield from _at_any_depth(part, name)


def _walk(path: _Path, values: list[Any]) -> None:
    """Raise JsonPathError if none of the values has the fields of the path."""
    for step in path.steps:
        values = step.take(values)


def _holds(left: Any, word: str, right: Any, item: Any) -> bool:
    """Return whether a filter accepts an item. If `word` is empty, the item must have the field `left`. If
    `word` is an operator such as `>`, the comparison must hold; it does not hold if the item lacks the field,
    or if the operator cannot compare values of these types.
    """
    try:
        sides = [side.values(item, item) if isinstance(side, _Path) else [side] for side in (left, right)]
    except JsonPathError:
        return False
    if not word:
        return bool(sides[0])
    try:
        return any(_COMPARE[word](one, other) for one in sides[0] for other in sides[1])
    except TypeError:
        return False


def _unescaped(quoted: re.Match[str]) -> str:
    text: str = quoted[1] if quoted[1] is not None else quoted[2]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
