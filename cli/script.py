"""Job scripts: what their #CORRAL and #SBATCH lines ask for, and how their text travels."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from cli import slurm
from cli.asked import BY_FLAG, Given, Layer
from cli.commands import nearest
from cli.exits import NOT_FOUND, Mistake
from cli.messages import note

LARGEST = 128 * 1024 - 1
"""Bytes of one argument that Linux can hand to a program, its closing NUL not counted."""

_DIRECTIVE = re.compile(r"#(CORRAL|SBATCH)(?:\s+(.*))?")
_SHELLS = {"sh", "bash", "dash", "ksh", "mksh", "zsh"}
_PYTHON = re.compile(r"python[\d.]*")


@dataclass(frozen=True)
class Script:
    """A script as a command that needs no shared file system, and what it asks for."""

    command: tuple[str, ...]
    asked: Layer
    name: str


def read(path: str, arguments: list[str]) -> Script:
    """Read a script; every line that cannot be honoured is an error that names it."""
    text = _text(path)
    name = Path(path).name
    interpreter = _interpreter(text, path)
    program = _program(interpreter)
    if program in _SHELLS:
        command = (*interpreter, "-c", text, name, *arguments)
    elif _PYTHON.fullmatch(program):
        command = (*interpreter, "-c", text, *arguments)
    else:
        raise Mistake(
            f"{path} line 1: a script for {program!r} cannot be sent as text, only shell and Python can",
            "Put it where the nodes see it, and submit the command: corral submit -- /shared/path/script",
        )
    return Script(command, _directives(text, path), name)


def _text(path: str) -> str:
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise Mistake(
            f"there is no script {path!r}",
            f"To run a command instead of a script, write it behind '--': corral submit -- {path} …",
            NOT_FOUND,
        ) from None
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}", "Give a script that you may read.") from None
    if len(data) > LARGEST:
        raise Mistake(
            f"{path} has {len(data):,} bytes; a script is sent as text and may have {LARGEST:,}",
            "Put the large part where the nodes see it, and call it from a short script.",
        )
    if not data.strip():
        raise Mistake(f"{path} is empty", "Write the commands to run into it.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise Mistake(
            f"{path} is a program or data, not a text script",
            f"To run it as a command, write it behind '--': corral submit -- {path}",
        )
    if "\r\n" in text:
        raise Mistake(f"{path} has DOS line ends", f"Convert it: sed -i 's/\\r$//' {shlex.quote(path)}")
    return text


def _interpreter(text: str, path: str) -> list[str]:
    first = text.split("\n", 1)[0]
    if not first.startswith("#!"):
        return ["/bin/bash"]
    words = first[2:].split()
    if not words or not words[0].startswith("/"):
        raise Mistake(f"{path} line 1: {first!r} names no interpreter", "Write #!/bin/bash.")
    return words


def _program(interpreter: list[str]) -> str:
    """What runs in the end: bash, for /bin/bash -l as for /usr/bin/env -S bash -l."""
    names = [Path(word).name for word in interpreter if not word.startswith("-") and "=" not in word]
    return names[1] if names[0] == "env" and len(names) > 1 else names[0]


def _directives(text: str, path: str) -> Layer:
    found: dict[str, list[Given]] = {}
    body = False
    for number, line in enumerate(text.split("\n"), 1):
        match = _DIRECTIVE.fullmatch(line.rstrip())
        if match is None:
            body = body or bool(line.strip() and not line.lstrip().startswith("#"))
            continue
        kind, rest = match.groups()
        where = f"{path} line {number}"
        if body:
            note(f"corral: {where}: not read, because it comes after the first command: {line.strip()}")
            continue
        words = _words(rest or "", where)
        parse = slurm.directive if kind == "SBATCH" else _own
        for name, given in parse(words, where):
            repeats = BY_FLAG["--" + name.replace("_", "-")].repeats
            found[name] = [*found.get(name, []), given] if repeats else [given]
    return found


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise Mistake(f"{where}: {str(error).lower()}", "Close the quotation marks.") from None


def _own(words: list[str], where: str) -> list[tuple[str, Given]]:
    """The options of one #CORRAL line."""
    found = []
    left = list(words)
    while left:
        flag, equals, value = left.pop(0).partition("=")
        wish = BY_FLAG.get(flag)
        if wish is None:
            raise Mistake(
                f"{where}: {flag!r} is not an option of a job.{nearest(flag, list(BY_FLAG))}",
                "'corral submit --help' lists the options.",
            )
        if wish.is_flag:
            if equals:
                raise Mistake(f"{where}: {flag} takes no value", f"Write #CORRAL {flag}.")
            value = "true"
        elif not equals:
            if not left:
                raise Mistake(f"{where}: {flag} needs a value", f"Write #CORRAL {flag} …")
            value = left.pop(0)
        found.append((wish.name, Given(value, f"{where}: {flag}")))
    return found
