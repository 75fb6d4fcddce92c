"""Tables of sacct, sacctmgr and similar commands, with columns of fixed width or with separators between
values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cli.slurm.arguments import Arguments
from cli.slurm.formats.output_formats import safe, width_of
from cli.slurm.programs import SlurmError

Row = Mapping[str, Any]

_FIELD = re.compile(r"(\w[\w /-]*?)(?:%(-?)(\d+))?", re.ASCII)


class Column(NamedTuple):
    """A column: its heading (`name`), its width, the columns of the job table that `value` reads (`needs`),
    and the function that returns the text for a row. With a negative width, the text is aligned to the left.
    """

    name: str
    width: int
    needs: tuple[str, ...]
    value: Callable[[Row], str]


class Shape(NamedTuple):
    """The form in which a table is printed. With a `separator`, values are neither padded with spaces nor
    cut.
    """

    header: bool = True
    separator: str = ""
    last: bool = False
    """Whether the separator is also printed after the last value of a line."""


def shape_of(arguments: Arguments) -> Shape:
    """Return the shape that the options -n, -p, -P and --delimiter select."""
    parsable, parsable2 = arguments.has("parsable"), arguments.has("parsable2")
    separator = (arguments.last("delimiter") or "|") if parsable or parsable2 else ""
    return Shape(not arguments.has("noheader"), separator, parsable and not parsable2)


def choose(text: str, known: Sequence[Column]) -> tuple[list[Column], list[str]]:
    """Return the columns in a list such as `jobid,state%20`, and the words that name no column. A name may be
    in upper or lower case, and its beginning is enough; `all` means all columns. A number after % is the
    width of the column; after %- the text is aligned to the left.
    """
    found: list[Column] = []
    unknown: list[str] = []
    for word in text.split(","):
        match = _FIELD.fullmatch(word.strip())
        name = match[1].lower() if match else ""
        if name == "all":
            found += known
            continue
        same = [each for each in known if name and each.name.lower() == name]
        begins = same or [each for each in known if name and each.name.lower().startswith(name)]
        if not begins or match is None:
            unknown += [word.strip()] if word.strip() else []
            continue
        size = width_of(match[3] or "")
        found.append(begins[0]._replace(width=-size if match[2] else size) if match[3] else begins[0])
    return found, unknown


def columns_of(text: str, known: Sequence[Column]) -> list[Column]:
    """Return the columns in a list such as `jobid,state%20`. Raise SlurmError for a word that names no
    column.
    """
    found, unknown = choose(text, known)
    if unknown:
        raise SlurmError(f'Invalid field requested: "{unknown[0]}"')
    return found


def lines(columns: Sequence[Column], rows: Iterable[Row], shape: Shape) -> list[str]:
    """Return the lines of a table. Without a separator, a value that is longer than its column is cut and
    ends with a plus sign.
    """
    found = []
    if shape.separator:
        end = shape.separator if shape.last else ""
        if shape.header:
            found.append(shape.separator.join(each.name for each in columns) + end)
        return found + [
            shape.separator.join([safe(each.value(row)) for each in columns]) + end for row in rows
        ]
    if shape.header:
        found.append("".join(_sized(each.name[: abs(each.width)], each.width) for each in columns))
        found.append("".join("-" * abs(each.width) + " " for each in columns))
    return found + ["".join([_sized(safe(each.value(row)), each.width) for each in columns]) for row in rows]


def _sized(text: str, width: int) -> str:
    size = abs(width)
    if len(text) > size:
        text = text[: size - 1] + "+"
    return (text.ljust(size) if width < 0 else text.rjust(size)) + " "
