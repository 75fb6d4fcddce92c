"""Runs one command. This is the only module that turns exceptions into error messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from cli import exit_codes
from cli.flag_values import use_fast_readers
from cli.flags import option
from cli.output.stderr import print_error, print_refusal
from cli.registry import SETTINGS, RootGroup, examples
from wire import VERSION

app = typer.Typer(
    cls=RootGroup,
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
        "corral demo                                   run a simulated cluster for a minute",
        "corral submit --gpus 1 -- python train.py     queue a job",
        "corral queue                                  list waiting and running jobs",
        "corral job logs -f last                       follow the newest job",
    )
)
def front(
    url: Annotated[
        str,
        option(
            "--url",
            "URL",
            "URL of the controller: unix:///path, ssh://[user@]host, https://host or http://host:port.",
        ),
    ] = "",
    context: Annotated[
        str,
        option(
            "--context", "NAME", "Use the controller that was saved under this name with 'corral config add'."
        ),
    ] = "",
    version: Annotated[  # noqa: ARG001 - its callback has answered
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Corral schedules jobs on GPU hosts."""
    if url:
        # Put the controller's address (--url) into the environment, because child processes of this command
        # need the address, too.
        os.environ["CORRAL_URL"] = url
    elif context:
        os.environ.pop("CORRAL_URL", None)
        os.environ["CORRAL_CONTEXT"] = context


def main(
    arguments: Sequence[str] | None = None, application: typer.Typer = app, program: str = "corral"
) -> int:
    """Run one command of `application` and return its exit code. Without `arguments`, the words come from the
    command line of this process. `program` is the name that messages show.
    """
    _open_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words or (["--help"] if application is app else []), application, program)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except OSError as error:
        if os.environ.get("CORRAL_DEBUG") and not isinstance(error, BrokenPipeError):
            raise
        # A write to stdout has failed: the program that reads stdout has closed the pipe, or the disk is
        # full. Replace stdout by /dev/null, because Python flushes stdout at exit, and a failed write would
        # fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE if isinstance(error, BrokenPipeError) else _explain(error)


def _open_streams() -> None:
    # stdout is None if the process was started with `>&-`.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    # Replace characters that the encoding of the terminal cannot represent, because printing them would raise
    # an error.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def _run(words: list[str], application: typer.Typer, program: str) -> int:
    command = use_fast_readers(get_command(application))
    if "_CORRAL_COMPLETE" in os.environ:
        command.main(words, prog_name=program)
    try:
        with command.make_context(program, words) as context:
            return command.invoke(context) or 0
    except typer.Exit as request:
        return request.exit_code
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        if os.environ.get("CORRAL_DEBUG"):
            raise
        return _explain(error)


def _explain(error: Exception) -> int:
    """Print the error and what the user can do. Return the exit code."""
    from wire.http.transport import Refused, Unreachable

    if isinstance(error, typer.TyperException):
        return _usage(error)
    if isinstance(error, exit_codes.CommandError):
        return print_error(error.message, error.hint, error.code)
    if isinstance(error, Refused):
        return print_refusal(error.problem)
    if isinstance(error, Unreachable):
        return print_error(str(error), error.hint, exit_codes.UNREACHABLE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return print_error(f"{where}{error.strerror or error}", "", exit_codes.FAILED)
    return print_error(
        f"this is a bug in corral: {type(error).__name__}: {error}",
        "Please report it; CORRAL_DEBUG=1 in the environment shows where it happened.",
        exit_codes.FAILED,
    )


def _usage(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "corral"
    return print_error(error.format_message(), f"Try '{path} --help'.", exit_codes.USAGE)
