"""The command line's front door, and the one place where exceptions become sentences and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from cli import exits
from cli.commands import SETTINGS, Front, examples
from cli.messages import refusal, say
from cli.reading import lighten
from wire import VERSION

app = typer.Typer(
    cls=Front,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"corral {VERSION}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "corral demo                                   a cluster at work, in a minute",
        "corral submit --gpus 1 -- python train.py     queue a job",
        "corral queue                                  what waits and runs",
        "corral job logs -f last                       follow the newest job",
    )
)
def front(
    url: Annotated[
        str,
        typer.Option("--url", metavar="URL", help="unix:///path or http://host:port (with CORRAL_TOKEN)."),
    ] = "",
    version: Annotated[  # noqa: ARG001 - its callback has answered
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Corral schedules jobs on GPU hosts."""
    if url:
        # Also for what this process starts: completion, the terminal UI.
        os.environ["CORRAL_URL"] = url


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    _open_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except OSError as error:
        # Nobody reads our output, or there is no room for it. At exit Python would try and complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.BROKEN_PIPE if isinstance(error, BrokenPipeError) else _explain(error)


def _open_streams() -> None:
    # Started with `>&-` there is none; and what a terminal cannot show must not end the program.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def _run(words: list[str]) -> int:
    command = lighten(get_command(app))
    if "_CORRAL_COMPLETE" in os.environ:
        command.main(words, prog_name="corral")
    try:
        with command.make_context("corral", words or ["--help"]) as context:
            return command.invoke(context) or 0
    except typer.Exit as asked:
        return asked.exit_code
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        if os.environ.get("CORRAL_DEBUG"):
            raise
        return _explain(error)


def _explain(error: Exception) -> int:
    """Say what went wrong, why, and what to do; return the exit code."""
    from wire.transport import Refused, Unreachable

    if isinstance(error, typer.TyperException):
        return _usage(error)
    if isinstance(error, exits.Mistake):
        return say(error.message, error.hint, error.code)
    if isinstance(error, Refused):
        return refusal(error.problem)
    if isinstance(error, Unreachable):
        return say(str(error), error.hint, exits.UNREACHABLE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return say(f"{where}{error.strerror or error}", "", exits.FAILED)
    return say(
        f"this is a bug in corral: {type(error).__name__}: {error}",
        "Please report it; CORRAL_DEBUG=1 in the environment shows where it happened.",
        exits.FAILED,
    )


def _usage(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "corral"
    return say(error.format_message(), f"Try '{path} --help'.", exits.USAGE)
