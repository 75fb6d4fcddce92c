"""Writes answers of the controller to stdout: as tables that fit the terminal, JSON, YAML, CSV, names, or the
values that a JSONPath selects.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from cli import completion
from cli.exit_codes import CommandError
from cli.flags import option
from cli.output import csv_rows
from cli.output.stderr import coloured, print_note
from cli.output.yaml_lines import yaml_lines
from wire import API_VERSION
from wire.codec import encode
from wire.text import printable

# Import these modules only for type checks, because they would slow down each command.
if TYPE_CHECKING:
    from cli.output.jsonpath import JsonPath
    from cli.output.listing import RowChoice

Row = TypeVar("Row")
GAP = "  "


@dataclass(frozen=True)
class Format:
    """A format in which a command writes its answer to stdout. Two formats are equal if they have the same
    `word`, such as json.
    """

    TABLE: ClassVar[Format]
    WIDE: ClassVar[Format]
    JSON: ClassVar[Format]
    YAML: ClassVar[Format]
    CSV: ClassVar[Format]
    NAME: ClassVar[Format]

    word: str
    path: JsonPath | None = field(default=None, compare=False)
    """The template of -o jsonpath=TEMPLATE."""
    choice: RowChoice | None = field(default=None, compare=False)
    """The values of --sort and --columns; None if the user has written neither."""

    @property
    def is_data(self) -> bool:
        """Return True for JSON, YAML and JSONPath, which have the whole answer of the API."""
        return self.word in ("json", "yaml", JSONPATH)


JSONPATH = "jsonpath"
WORDS = ("table", "wide", "json", "yaml", "csv", "name")
for _word in WORDS:
    setattr(Format, _word.upper(), Format(_word))


def read_format(text: str | Format) -> Format:
    """Return the format for the value of -o, such as json. Raise ValueError for any other text."""
    if isinstance(text, Format):
        return text  # Typer also passes the default value, which is a Format.
    word, equals, template = text.partition("=")
    if word == JSONPATH and equals:
        from cli.output.jsonpath import JsonPath

        return Format(JSONPATH, JsonPath(template))
    if text not in WORDS:
        raise ValueError(f"{text!r} is none of {', '.join(WORDS)}, {JSONPATH}=TEMPLATE")
    return Format(text)


_HELP = (
    "Format of what the command prints: table, wide, json, yaml, csv, name or jsonpath=TEMPLATE (e.g. "
    "jsonpath={.nodes[*].name}). Default: table."
)
Output = Annotated[
    Format,
    option("-o --output", "FORMAT", _HELP, parser=read_format, autocompletion=completion.words(*WORDS)),
]

JobFormat = Annotated[
    Format,
    option("-o --format", "FORMAT", _HELP, parser=read_format, autocompletion=completion.words(*WORDS)),
]
"""The option -o with the long name --format, for commands whose option --output names the file for the job's
output.
"""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table. If the terminal is too narrow, the column with the highest `rank` is left out
    first; a column with `rank` 0 is always shown. A `wide` column is shown only with -o wide.

    The column is as wide as its longest text, and at least `min_width` cells. If the terminal is too narrow,
    the column shrinks to no less than `narrow` cells; 0 means that the column does not shrink.
    """

    title: str
    text: Callable[[Row], str]
    rank: int = 0
    narrow: int = 0
    min_width: int = 0
    right: bool = False
    wide: bool = False
    colour: Callable[[Row], str] | None = None


@dataclass(frozen=True)
class Table(Generic[Row]):
    """A table: its columns, and the function that returns the name of a row for -o name."""

    columns: Sequence[Column[Row]]
    name: Callable[[Row], str]
    kind: type[Row] | None = None
    """The class of a row. Its fields are the columns of -o csv. If this is None, CSV has the columns of the
    table.
    """

    def only(self, titles: Sequence[str]) -> Table[Row]:
        """Return this table with only the columns with these titles, in this order. Raise ValueError with the
        first unknown title. `wide` columns are included.
        """
        known = {column.title.upper(): replace(column, wide=False, rank=0) for column in self.columns}
        unknown = next((title for title in titles if title.upper() not in known), None)
        if unknown is not None:
            raise ValueError(unknown)
        return replace(self, columns=[known[title.upper()] for title in titles], kind=None)

    def show(self, form: Format, rows: Sequence[Row], body: Any = None, *, heading: bool = True) -> None:
        """Write the rows in the format `form`. In JSON, YAML and JSONPath, write `body`, the API's answer
        with these rows; without `body`, write the rows. Without `heading`, write no heading, for example
        because the command wrote the heading with earlier events.
        """
        if form.choice is not None:
            rows, body = form.choice.rows(self, rows, body)
            form.choice.table(self).show(replace(form, choice=None), rows, body, heading=heading)
        elif form.is_data:
            write_data(form, list(rows) if body is None else body)
        elif form == Format.NAME:
            write("".join(f"{printable(self.name(row))}\n" for row in rows))
        elif form == Format.CSV:
            out = csv.writer(sys.stdout, lineterminator="\n")
            kind = self.kind
            if kind is None:
                titles = [column.title.lower() for column in self.columns]
                lines = [[printable(column.text(row), 4_096) for column in self.columns] for row in rows]
            else:
                titles, lines = csv_rows.headings(kind), [csv_rows.values(kind, row) for row in rows]
            out.writerows([titles, *lines] if heading else lines)
        else:
            shown = self.lines(rows, terminal_width(), wide=form == Format.WIDE, colour=coloured(sys.stdout))
            write("".join(line + "\n" for line in islice(shown, 0 if heading else 1, None)))

    def show_changed(self, form: Format, row: Row, sentence: str) -> None:
        """Write `row`, the object that a command has changed. If the format is a table, write `sentence` to
        stderr instead.
        """
        if form == Format.TABLE:
            print_note(sentence)
        else:
            self.show(form, [row], row)

    def lines(
        self, rows: Sequence[Row], width: int | None, *, wide: bool = False, colour: bool = False
    ) -> Iterable[str]:
        """Yield the table as lines of at most `width` cells; without a limit if `width` is None. With `wide`,
        the columns of -o wide are included.
        """
        columns = [column for column in self.columns if wide or not column.wide]
        cells = [[column.title for column in columns]]
        cells += [[printable(column.text(row)) for column in columns] for row in rows]
        widths = [
            max(column.min_width, *map(cell_width, texts))
            for column, texts in zip(columns, zip(*cells, strict=True), strict=True)
        ]
        shown = _fit(columns, widths, width)
        for number, line in enumerate(cells):
            parts = []
            for place, room in shown:
                column = columns[place]
                text = fit(line[place], room, right=column.right)
                if colour and number and column.colour:
                    text = _paint(text, column.colour(rows[number - 1]))
                parts.append(text)
            yield GAP.join(parts).rstrip()


def write(text: str) -> None:
    sys.stdout.write(text)


def write_data(form: Format, body: Any, *, indented: bool = True) -> None:
    """Write a YAML or JSON document of printable ASCII characters, or the text of a JSONPath template.

    Each object begins with the field `api_version`; in a list of objects, each object of the list does. JSON
    is indented if stdout is a terminal and `indented` is true. In all other cases JSON is on one line.
    """
    data = _versioned(_data(body))
    if form.path is not None:
        try:
            text = form.path.text(data)
        except ValueError as error:
            raise CommandError(f"-o jsonpath: {error}", "-o json shows all fields.") from None
        write(text if text.endswith("\n") else f"{text}\n")
        return
    if form == Format.YAML:
        write("".join(f"{line}\n" for line in ("---", *yaml_lines(data))))
        return
    indent = 2 if indented and sys.stdout.isatty() else None
    separators = None if indent else (",", ":")
    write(json.dumps(data, indent=indent, separators=separators) + "\n")


def _versioned(data: Any) -> Any:
    """Return the data with the version of its fields in front of each object of the highest level."""
    if isinstance(data, list):
        return [_versioned(each) for each in data]
    return {"api_version": API_VERSION, **data} if isinstance(data, dict) else data


def _data(body: Any) -> Any:
    """Convert an object of the API to dicts, lists and simple values for JSON."""
    if isinstance(body, list | tuple):
        return [_data(part) for part in body]
    if isinstance(body, Mapping):
        return {str(name): _data(part) for name, part in body.items()}
    return encode(body)


def show_one(form: Format, body: Any, facts: Iterable[tuple[str, str]], name: str) -> None:
    """Write one object, such as a job or a node: `facts` as a table, `name` for -o name, and `body`, the
    API's answer, in all other formats.
    """
    if form.is_data:
        write_data(form, body)
    elif form == Format.NAME:
        write(f"{printable(name)}\n")
    elif form == Format.CSV:
        Table((), lambda _: name, kind=type(body)).show(form, [body])
    else:
        write_facts(facts)


def write_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Write headings and values, one pair on each line. Further lines of a value are indented."""
    known = [(name, value) for name, value in facts if value]
    room = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        first, *more = value.split("\n")
        write(f"{name:<{room}}  {printable(first, 2_000)}\n")
        write("".join(f"{'':<{room}}  {printable(line, 2_000)}\n" for line in more))


def terminal_width() -> int | None:
    """Return the width of the terminal in cells; None if stdout is not a terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def cell_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(mark) else 2 if unicodedata.east_asian_width(mark) in "WF" else 1
        for mark in text
    )


def fit(text: str, room: int, *, right: bool = False) -> str:
    """Return the text in exactly `room` cells. A shorter text is padded with spaces, on its left if `right`
    is true. A longer text is cut and ends with an ellipsis.
    """
    taken = cell_width(text)
    if taken > room:
        while taken > max(room - 1, 0):
            taken -= cell_width(text[-1])
            text = text[:-1]
        text, taken = text + "…", taken + 1
    padding = " " * (room - taken)
    return padding + text if right else text + padding


def _fit(columns: Sequence[Column[Any]], widths: list[int], width: int | None) -> list[tuple[int, int]]:
    """Choose the columns that fit into `width` cells. Return the index and the width of each chosen column.
    If all columns together are too wide, first shrink the widest columns that may shrink, and then leave out
    columns.
    """
    shown = list(range(len(columns)))
    while True:
        rooms = {place: widths[place] for place in shown}
        over = sum(rooms.values()) + len(GAP) * (len(shown) - 1) - (width or sys.maxsize)
        while over > 0 and (elastic := [p for p in shown if 0 < columns[p].narrow < rooms[p]]):
            rooms[max(elastic, key=rooms.__getitem__)] -= 1
            over -= 1
        expendable = max(shown, key=lambda place: columns[place].rank)
        if over <= 0 or columns[expendable].rank == 0:
            return list(rooms.items())
        shown.remove(expendable)


def _paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code else text
