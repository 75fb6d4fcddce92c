"""corral config migrate: moves keys of a configuration file from older places to their present places."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated

from cli.exit_codes import FAILED, USAGE, CommandError
from cli.flags import argument, switch
from cli.output.confirmation import confirmed
from cli.output.formats import Column, Format, Output, Table, write
from cli.output.stderr import coloured, print_error, print_note
from wire.http import addresses
from wire.text import counted, printable

File = Annotated[
    Path | None,
    argument("[FILE]", "File to change. Default: the file that the controller would read."),
]
_COLOURS = {"+": "32", "-": "31", "@": "36"}


def migrate(
    file: File = None,
    yes: Annotated[bool, switch("--yes -y", "Write the file without asking for confirmation.")] = False,
    dry_run: Annotated[bool, switch("--dry-run", "Change nothing. Only show the difference.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Move keys of a configuration file from older places to their present places.

    The controller still accepts the older places, and the meaning of the file does not change. The command
    shows the changed lines, asks for confirmation, and then writes the file. Comments and the order of the
    other lines do not change. Keys that you must move by hand are listed.
    """
    from controller.config import ConfigRefused
    from controller.config.applied_texts import replace_text
    from controller.config.migration import migrate as migrated

    path = addresses.find_config(str(file or ""))
    if path is None:
        raise CommandError("there is no scheduler.toml here", "Name the file: corral config migrate FILE")
    try:
        before = path.read_bytes().decode()
        found = migrated(before, str(path))
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not UTF-8 text", "Name a scheduler.toml.") from None
    except ConfigRefused as refused:
        for problem in refused.problems:
            print_error(str(problem))
        return USAGE
    difference = list(
        difflib.unified_diff(
            before.splitlines(), found.text.splitlines(), str(path), f"{path} (migrated)", lineterm=""
        )
    )
    if output not in (Format.TABLE, Format.WIDE):
        body = {
            "file": str(path),
            "moved": [*map(list, found.moved)],
            "by_hand": [*found.by_hand],
            "diff": difference,
        }
        _table().show(output, found.moved, body)
    else:
        write("".join(f"{_painted(printable(line, 2_000))}\n" for line in difference))
        sys.stdout.flush()
    for sentence in found.by_hand:
        print_note(f"corral: {sentence}")
    if not found.moved:
        print_note(
            f"{path}: no key is in an older place" if not found.by_hand else f"{path}: nothing was changed"
        )
        return 0
    if dry_run:
        return 0
    if not yes and not confirmed(f"Write {path}?"):
        return FAILED
    replace_text(path, found.text)
    print_note(
        f"{path}: {counted(len(found.moved), 'key')} moved. 'corral config diff' shows no change by the move."
    )
    return 0


def _painted(line: str) -> str:
    code = _COLOURS.get(line[:1], "") if coloured(sys.stdout) else ""
    return f"\x1b[{code}m{line}\x1b[0m" if code else line


def _table() -> Table[tuple[str, str]]:
    return Table(
        [Column("OLD", lambda each: each[0]), Column("NEW", lambda each: each[1])], lambda each: each[1]
    )
