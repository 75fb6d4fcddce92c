"""The options --sort, --columns, --watch and --interval of all commands that print a list."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import inspect
import io
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TextIO

import typer

from cli.exit_codes import CommandError
from cli.flags import option, parameter, switch
from cli.output import csv_rows
from cli.output.formats import Format, Table, write
from wire.http.transport import Unreachable

CLEAR = "\x1b[H\x1b[2J"
Sort = Annotated[
    str,
    option(
        "--sort",
        "KEY",
        "Sort the rows by this column of -o csv (e.g. name). A '-' before the column reverses the order "
        "(e.g. -name). Default: the order of the controller.",
    ),
]
Columns = Annotated[
    str,
    option(
        "--columns",
        "NAMES",
        "In tables and csv, show only these columns of -o wide, separated by commas (e.g. job,gpus).",
    ),
]
Watch = Annotated[bool, switch("--watch", "Print the list again every --interval seconds, until Ctrl-C.")]
Interval = Annotated[
    float,
    option("--interval", "SECONDS", "Seconds between two lists with --watch. Default: 2.", min=0.1),
]
_OPTIONS = (
    ("sort", Sort, ""),
    ("columns", Columns, ""),
    ("watch", Watch, False),
    ("interval", Interval, 2.0),
)


@dataclass(frozen=True)
class RowChoice:
    """The values of --sort and --columns: the order of the rows, and the names of the shown columns."""

    sort: str = ""
    columns: str = ""

    def table(self, table: Table[Any]) -> Table[Any]:
        """Return the table with the chosen columns. Raise CommandError for a column that the table does not
        have.
        """
        if not self.columns:
            return table
        try:
            return table.only([title.strip() for title in self.columns.split(",")])
        except ValueError as unknown:
            titles = ", ".join(column.title.lower() for column in table.columns if column.title)
            raise CommandError(
                f"--columns: there is no column {str(unknown)!r}", f"Columns are {titles}."
            ) from None

    def rows(self, table: Table[Any], rows: Sequence[Any], body: Any) -> tuple[Sequence[Any], Any]:
        """Return the rows in the chosen order, and the answer of the API with the rows in this order."""
        if not self.sort:
            return rows, body
        keys = _keys(table)
        word = self.sort.removeprefix("-").lower().replace("-", "_")
        if word not in keys:
            raise CommandError(f"--sort: {self.sort!r} is not a key", f"Keys are {', '.join(keys)}.")
        get = keys[word]
        known = sorted((row for row in rows if get(row) is not None), key=get, reverse=self.sort[0] == "-")
        # Put rows without a value last, in ascending and in descending order.
        ordered = (*known, *(row for row in rows if get(row) is None))
        return ordered, _with_rows(body, rows, ordered)


def list_command(command: Callable[..., int] | None = None, *, sort: bool = True) -> Callable[..., Any]:
    """Add --sort, --columns, --watch and --interval to a command with the parameter `output` that prints a
    list. With `sort` false, the command has an option --sort of its own.

    1. The order and the columns become part of `output`; `Table.show` uses them.
    2. With --watch, run the command again and again. Collect its output, and print all of it when the command
       has ended. If the controller does not answer, print the reason and try again; in the first run, raise
       the error.
    """
    if command is None:
        return lambda each: list_command(each, sort=sort)
    assert command is not None
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    added = [parameter(*each) for each in _OPTIONS if sort or each[0] != "sort"]
    # Put --output behind the added options, because the help of all commands shows --output last.
    order = [*own[:-1], *added, own[-1]]

    def wrapper(**arguments: Any) -> int:
        watch, interval = arguments.pop("watch", False), arguments.pop("interval", 2.0)
        choice = RowChoice(arguments.pop("sort", "") if sort else "", arguments.pop("columns", ""))
        output: Format = arguments.get("output", Format.TABLE)
        if choice != RowChoice():
            output = replace(output, choice=choice)
        context = arguments.get("context")
        below = isinstance(context, typer.Context) and context.invoked_subcommand is not None
        if below or not watch:
            return command(**{**arguments, "output": output})
        return _watch(lambda: command(**{**arguments, "output": output}), interval, output)

    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in order]
    )
    return wrapper


class _Page(io.StringIO):
    """Collects the output of a command. `isatty` and `fileno` return those of `stream`, so that the command
    formats its output for the terminal of `stream`.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def _watch(show: Callable[[], int], interval: float, output: Format) -> int:
    first = True
    tables = output in (Format.TABLE, Format.WIDE)
    while True:
        out, err = _Page(sys.stdout), _Page(sys.stderr)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                show()
        except Unreachable as error:
            if first:
                raise
            out.write(f"corral: {error}; trying again\n")
        if tables:
            clear = CLEAR if sys.stdout.isatty() else ""
            write(f"{clear}{time.strftime('%H:%M:%S')}  every {interval:g} s\n\n")
        write(out.getvalue())
        sys.stdout.flush()
        sys.stderr.write(err.getvalue())
        sys.stderr.flush()
        first = False
        time.sleep(interval)


def _keys(table: Table[Any]) -> dict[str, Callable[[Any], Any]]:
    """Return a dict from each key of --sort (the columns of -o csv) to the function that returns the value of
    a row for this key.
    """
    if table.kind is None:
        titles = {column.title.lower(): column.text for column in table.columns if column.title}
        return {title.replace("-", "_").replace(" ", "_"): text for title, text in titles.items()}
    return {name: _sortable(get) for name, get in csv_rows.getters(table.kind)}


def _sortable(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function like `get` whose values can be compared. In place of a list, it returns the length of
    the list.
    """

    def value(row: Any) -> Any:
        found = get(row)
        if isinstance(found, enum.Enum):
            return found.value
        if found is None or isinstance(found, str | int | float):
            return found
        return len(found) if hasattr(found, "__len__") else str(found)

    return value


def _with_rows(body: Any, rows: Sequence[Any], ordered: Sequence[Any]) -> Any:
    """Return the answer of the API with the rows in the new order. An answer that does not have these rows is
    returned unchanged.
    """
    if body is None or isinstance(body, list | tuple):
        return list(ordered)
    if not dataclasses.is_dataclass(body) or isinstance(body, type):
        return body
    for each in dataclasses.fields(body):
        held = getattr(body, each.name)
        if isinstance(held, list | tuple) and [*map(id, held)] == [*map(id, rows)]:
            return replace(body, **{each.name: tuple(ordered)})
    return body
