"""Prints the line below a table of quotas or shares that names the tables [hours.NAME] in force."""

from __future__ import annotations

from cli.output.formats import Format
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from wire.api.policy.shares import HoursInForce
from wire.text import printable


def print_hours(hours: HoursInForce | None, output: Format, otherwise: str) -> None:
    """Print the names of the tables [hours.NAME] that are in force now and after the next change. Print
    nothing if scheduler.toml has no such table. `otherwise` is the table, such as [quota], that is in force
    while no table [hours.NAME] is.
    """
    if hours is not None and output in (Format.TABLE, Format.WIDE):
        print_note(hours_text(hours, otherwise))


def hours_text(hours: HoursInForce, otherwise: str) -> str:
    """Return the line of `print_hours`, such as `[hours.night] is in force until Fri 08:00, then [quota]`."""
    present = _names(hours.tables) or otherwise
    verb = "are" if len(hours.tables) > 1 else "is"
    if hours.until is None:
        return f"{present} {verb} in force"
    return f"{present} {verb} in force until {clock(hours.until)}, then {_names(hours.then) or otherwise}"


def _names(tables: tuple[str, ...]) -> str:
    return " and ".join(f"[hours.{printable(name)}]" for name in tables)
