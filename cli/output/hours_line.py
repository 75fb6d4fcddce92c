"""Prints the line below a table of quotas or shares that names the tables [hours.NAME] in force."""

from __future__ import annotations

from cli.output.formats import Format
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from wire.api.policy.shares import HoursInForce
from wire.text import printable


def print_hours(hours: HoursInForce | None, output: Format, otherwise: str) -> None:
    """Print the names of the tables [hours.NAME] in force, and of the tables that follow. Print nothing if
    scheduler.toml has no table [hours.NAME]. `otherwise` is the table that is in force at all other times,
    such as [quota].
    """
    if hours is not None and output in (Format.TABLE, Format.WIDE):
        print_note(hours_text(hours, otherwise))


def hours_text(hours: HoursInForce, otherwise: str) -> str:
    """Return a text with the tables in force now and after the next change, such as `[hours.night] is in
    force until Fri 08:00, then [quota]`.
    """
    present = _names(hours.tables) or otherwise
    verb = "are" if len(hours.tables) > 1 else "is"
    if hours.until is None:
        return f"{present} {verb} in force"
    return f"{present} {verb} in force until {clock(hours.until)}, then {_names(hours.then) or otherwise}"


def _names(tables: tuple[str, ...]) -> str:
    return " and ".join(f"[hours.{printable(name)}]" for name in tables)
