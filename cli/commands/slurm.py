"""corral slurm: runs the commands of Slurm (such as sbatch), and installs programs with their names."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.exit_codes import CommandError
from cli.flags import argument
from cli.registry import application, examples
from cli.slurm.programs import PROGRAMS, run
from wire.program_parts import is_frozen

app = application(
    "Commands of Slurm (sbatch, squeue and others), with Slurm's options, output and exit codes.",
    epilog=examples(
        "corral slurm install /usr/local/bin    install sbatch, squeue and the other commands",
        "corral slurm sbatch --gres=gpu:2 train.sh",
    ),
)

_WORDS_PASS = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


@app.command(epilog=examples("corral slurm install /usr/local/bin"))
def install(
    folder: Annotated[Path, argument("DIR", "The directory that gets the commands, such as /usr/local/bin.")],
) -> int:
    """Write small programs with the names of Slurm's commands to a directory. If the directory has other
    programs with these names, the command fails and writes nothing.

    A login shell resets PATH, so choose a directory that is always in PATH.
    """
    foreign = [name for name in PROGRAMS if _is_foreign(folder / name)]
    if foreign:
        raise CommandError(
            f"{folder} has other programs with these names: {', '.join(foreign)}",
            "Choose another directory, or remove these programs first.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        new = folder / f".{name}.new"
        new.write_text(_program(name), encoding="utf-8")
        new.chmod(0o755)
        os.replace(new, folder / name)
    print(f"{folder}: {' '.join(PROGRAMS)}")
    return 0


_MARK = "# Written by 'corral slurm install'."


def _is_foreign(file: Path) -> bool:
    return os.path.lexists(file) and _MARK.encode() not in file.read_bytes()[:200]


def _program(name: str) -> str:
    """Return the text of the program for this Slurm command. Python runs with -I, because PYTHONPATH and
    similar variables of the user could otherwise change which modules are imported.
    """
    code = f'from cli.slurm.programs import run_and_exit; run_and_exit("{name}")'
    words = [sys.argv[0], "slurm", name] if is_frozen() else [sys.executable, "-I", "-c", code]
    return f'#!/bin/sh\n{_MARK}\nexec {shlex.join(words)} "$@"\n'


def _add(name: str, summary: str) -> None:
    @app.command(name, help=summary, context_settings=_WORDS_PASS, add_help_option=False)
    def program(context: typer.Context) -> Any:
        return run(name, context.args)


for _name, (_, _summary) in PROGRAMS.items():
    _add(_name, _summary)
