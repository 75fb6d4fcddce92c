"""Reads job scripts: the text of the script, and its #CORRAL and #SBATCH lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from cli.exit_codes import NOT_FOUND, CommandError
from cli.output.stderr import print_note
from cli.spec.option_sources import Layer, OptionText, merged
from cli.spec.sbatch import option_translation as sbatch_directives
from cli.spec.sbatch import resources as sbatch_resources
from cli.spec.submit_options.table import BY_FLAG, OPTIONS
from wire.dataclass import dataclass

MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""The most bytes, without the final NUL, that Linux accepts in one argument of a program."""

_DIRECTIVE = re.compile(r"#(CORRAL|SBATCH)(?:(?:\s+|(?=-))(.*))?")
"""A line with options. As in Slurm, the first option may follow without a space: `#SBATCH--time=5`."""
_HASH = "\0"
"""The character that replaces a '#' inside a word while a line is split into words. Scripts cannot contain
this character.
"""

_SHELLS = {"sh", "bash", "dash", "ksh", "mksh", "zsh"}
_PYTHON = re.compile(r"python[\d.]*")
_KEEP_BASH = "\n#"
"""The end of the text of a script for bash. Without a comment after the last command, bash would replace
itself by this command. With the comment, bash reports if a signal has ended the command, and exits with 128
and the number of the signal, as for a script in a file.
"""
MAX_SCRIPT_BYTES = MAX_ARGUMENT_BYTES - len(_KEEP_BASH)
"""The most bytes of a script, because its text is an argument of its interpreter."""


@dataclass(frozen=True)
class Script:
    """A job script after parsing. `command` contains the text of the script, so that nodes need no shared
    file system. `options` has the options of the #CORRAL and #SBATCH lines.
    """

    command: tuple[str, ...]
    options: Layer
    name: str
    wait: bool = False
    """True if the script has a line #SBATCH --wait."""


class OtherInterpreter(CommandError):
    """Raised if a script is not for a shell or Python. `interpreter` has the words of its #! line."""

    def __init__(self, path: str, program: str, interpreter: list[str]) -> None:
        super().__init__(
            f"{path} line 1: a script for {program!r} cannot be sent as text, only shell and Python can",
            "Put it on a shared file system, and submit the command: corral submit -- /shared/path/script",
        )
        self.interpreter = interpreter


@dataclass
class Directives:
    """The #CORRAL options and the #SBATCH options of a script, and the option lines that have no effect
    because they follow the first command.
    """

    corral: dict[str, list[OptionText]] = field(default_factory=dict)
    sbatch: list[sbatch_resources.Option] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


def read(path: str, arguments: list[str]) -> Script:
    """Read the script at `path`, which the job runs with these arguments. Raise CommandError with the line
    number if a line is invalid.
    """
    text = _text(path)
    name = Path(path).name
    command = command_of(text, path, name, arguments)
    found = directives(text, path)
    for where in found.late:
        print_note(f"corral: {where}")
    options, wait = _with_sbatch(found.corral, found.sbatch, path)
    return Script(command, options, name, wait)


def command_of(text: str, path: str, name: str, arguments: list[str]) -> tuple[str, ...]:
    """Return the command that runs a script. The command contains the text of the script. `path` is used in
    error messages, and `name` is $0 of a shell script. Raise OtherInterpreter if the script is not for a
    shell or Python.
    """
    interpreter = _interpreter(text, path)
    program = _program(interpreter)
    if program == "bash":
        text += _KEEP_BASH
    if program in _SHELLS:
        return (*interpreter, "-c", text, name, *arguments)
    if _PYTHON.fullmatch(program):
        return (*interpreter, "-c", text, *arguments)
    raise OtherInterpreter(path, program, interpreter)


def script_of(command: Sequence[str]) -> str:
    """Return the script in a command of `command_of`, as the user wrote it; empty if there is none."""
    text = next((word for word in command if word.startswith("#!")), "")
    return text.removesuffix(_KEEP_BASH)


def _text(path: str) -> str:
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise CommandError(
            f"there is no script {path!r}",
            f"To run a command instead of a script, write it behind '--': corral submit -- {path} …",
            NOT_FOUND,
        ) from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", "Name a script that you may read.") from None
    if len(data) > MAX_SCRIPT_BYTES:
        raise CommandError(
            f"{path} has {len(data):,} bytes; a script may have at most {MAX_SCRIPT_BYTES:,}",
            "Put the large part on a shared file system, and call it from a short script.",
        )
    if not data.strip():
        raise CommandError(f"{path} is empty", "Write the commands to run into it.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise CommandError(
            f"{path} is a program or data, not a text script",
            f"To run it as a command, write it behind '--': corral submit -- {path}",
        )
    if "\r\n" in text:
        raise CommandError(f"{path} has DOS line ends", f"Convert it: sed -i 's/\\r$//' {shlex.quote(path)}")
    return text


def _interpreter(text: str, path: str) -> list[str]:
    first = text.split("\n", 1)[0]
    if not first.startswith("#!"):
        return ["/bin/bash"]
    words = first[2:].split()
    if not words or not words[0].startswith("/"):
        raise CommandError(f"{path} line 1: {first!r} names no interpreter", "Write #!/bin/bash.")
    return words


def _program(interpreter: list[str]) -> str:
    """Return the name of the interpreter in a #! line: bash for /bin/bash -l and for /usr/bin/env -S bash
    -l.
    """
    names = [Path(word).name for word in interpreter if not word.startswith("-") and "=" not in word]
    return names[1] if names[0] == "env" and len(names) > 1 else names[0]


def directives(text: str, path: str) -> Directives:
    """Return the options in the #CORRAL and #SBATCH lines of a script up to its first command."""
    found = Directives()
    body = False
    for number, line in enumerate(text.split("\n"), 1):
        match = _DIRECTIVE.fullmatch(line.rstrip())
        if match is None:
            body = body or bool(line.strip() and not line.lstrip().startswith("#"))
            continue
        kind, rest = match.groups()
        where = f"{path} line {number}"
        if body:
            found.late.append(f"{where}: ignored, because it comes after the first command: {line.strip()}")
            continue
        words = _words(rest or "", where)
        if kind == "SBATCH":
            found.sbatch += sbatch_directives.options(words, where)
        else:
            add_options(found.corral, _corral_options(words, where))
    return found


def _with_sbatch(
    found: dict[str, list[OptionText]], sbatch: list[sbatch_resources.Option], path: str
) -> tuple[Layer, bool]:
    """Return the combined options of #CORRAL and #SBATCH lines, and whether the script has #SBATCH --wait. If
    both kinds of lines set an option, the #CORRAL line counts; an option with `adds_up` gets the values of
    both.

    Raise CommandError that names all invalid #SBATCH lines.
    """
    translated = sbatch_directives.translate(sbatch)
    if translated.problems:
        several = len(translated.problems) > 1
        message = "\n  ".join(
            [f"{path}: {len(translated.problems)} #SBATCH lines cannot be used:"] * several
            + translated.problems
        )
        raise CommandError(
            message, "Remove or change them; #CORRAL lines take the options of 'corral submit'."
        )
    for warning in translated.warnings:
        print_note(f"corral: {warning}")
    weaker: dict[str, list[OptionText]] = {}
    add_options(weaker, translated.pairs)
    return merged(found, weaker), translated.wait


def add_options(found: dict[str, list[OptionText]], pairs: list[tuple[str, OptionText]]) -> None:
    """Add the options in `pairs` to `found`. If an option that cannot be repeated occurs twice, keep its last
    text.
    """
    for name, text in pairs:
        found[name] = [*found.get(name, []), text] if OPTIONS[name].repeats else [text]


def _words(text: str, where: str) -> list[str]:
    """Split a line of a script into words. '#' begins a comment only at the start of a word, because names of
    images may contain '#', as in host#name. `where` is the place of the line, for error messages.
    """
    kept = re.sub(r"(?<=[\w.])#(?=\w)", _HASH, text)
    try:
        return [word.replace(_HASH, "#") for word in shlex.split(kept, comments=True)]
    except ValueError as error:
        raise CommandError(f"{where}: {str(error).lower()}", "Close the quotation marks.") from None


def _corral_options(words: list[str], where: str) -> list[tuple[str, OptionText]]:
    found = []
    left = list(words)
    while left:
        flag, equals, value = left.pop(0).partition("=")
        option = BY_FLAG.get(flag)
        if option is None:
            # Import cli.registry only here, because it imports typer, which takes 20 ms and which sbatch does
            # not need.
            from cli.registry import nearest

            raise CommandError(
                f"{where}: {flag!r} is not an option of a job.{nearest(flag, list(BY_FLAG))}",
                "'corral submit --help' lists the options.",
            )
        if option.is_switch:
            if equals:
                raise CommandError(f"{where}: {flag} takes no value", f"Write #CORRAL {flag}.")
            value = "true"
        elif not equals:
            if not left:
                raise CommandError(f"{where}: {flag} needs a value", f"Write #CORRAL {flag} …")
            value = left.pop(0)
        found.append((option.name, OptionText(value, f"{where}: {flag}")))
    return found
