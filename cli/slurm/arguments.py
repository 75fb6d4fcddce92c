"""Splits the words of a Slurm command into options and operands, by the rules of getopt_long."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import field

from wire.dataclass import dataclass

VERSION = "slurm-wlm 22.05.8"
"""The text of --version of each command: the release of Slurm whose options and formats Corral follows."""


class Value(enum.Enum):
    """Whether an option has a value."""

    NONE = "none"
    REQUIRED = "required"
    OPTIONAL = "optional"
    """The option may have a value, but only in the same word, as in --nice=100."""


@dataclass(frozen=True)
class Option:
    """One option: its long name without dashes, its letter, and whether the option has a value. An option
    with an empty name has only a letter.
    """

    name: str
    letter: str = ""
    value: Value = Value.REQUIRED
    help: str = ""
    """The text about the option in --help. An option without this text is not listed."""

    @property
    def key(self) -> str:
        """Return the name of the option in `Arguments.options`: the long name, or the letter if there is no
        long name.
        """
        return self.name or self.letter


def switch(name: str, letter: str = "", help_text: str = "") -> Option:
    """Return an option without a value."""
    return Option(name, letter, Value.NONE, help_text)


COMMON = (
    switch("help", "h", "Show this help and exit."),
    switch("usage", "", "Show the usage line and exit."),
    switch("version", "V", "Show the version of Slurm whose commands these are, and exit."),
)
"""Options of every command. In squeue, sinfo and sprio, -h means --noheader, and --help has no letter."""


def help_text(usage: str, options: Iterable[Option]) -> str:
    """Return the text of --help: the usage line, and one line for each option with a help text."""
    lines = [f"Usage: {usage}", ""]
    for option in options:
        if option.help:
            names = f"-{option.letter}, " if option.letter else "    "
            names += f"--{option.name}" if option.name else ""
            names += {Value.REQUIRED: "=VALUE", Value.OPTIONAL: "[=VALUE]", Value.NONE: ""}[option.value]
            lines.append(f"  {names:<30}  {option.help}")
    return "\n".join(lines)


@dataclass
class Arguments:
    """The options of a command line in the order in which the user wrote them, and the other words."""

    options: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of the option's `key` and its value. The value is empty if the option has none."""
    words: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Words that are no valid option, if `parse` was called with `go_on`."""

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self.options)

    def last(self, name: str, default: str = "") -> str:
        """Return the value of an option, or `default` if the user has not written the option. If the option
        was written several times, the last value counts.
        """
        return next((value for key, value in reversed(self.options) if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.options if key == name]


class UsageError(Exception):
    """Raised if an option is unknown, or if its value is missing or not allowed. The message is that of
    getopt_long, without the name of the program.
    """


def prints_only_help(arguments: Arguments, usage: str, options: Iterable[Option]) -> bool:
    """Print the text for --help, --usage or --version. Return False if the command line has none of these
    options.
    """
    if arguments.has("help") or arguments.has("usage"):
        print(help_text(usage, options if arguments.has("help") else ()))
    elif arguments.has("version"):
        print(VERSION)
    else:
        return False
    return True


def parse(
    options: Iterable[Option], words: Sequence[str], *, intersperse: bool = True, go_on: bool = False
) -> Arguments:
    """Return the options and operands in `words`. Raise UsageError if an option is unknown, or if its value
    is missing or not allowed. With `go_on`, add the word with the option to `Arguments.wrong` instead of
    raising this error.

    1. `--name=value`, `--name value` and every unique beginning of a long name are accepted.
    2. Several letters may be written in one word (`-hr`). The value of a letter follows in the same word or
       is the next word.
    3. `--` ends the options. Without `intersperse`, the first operand also ends the options, because the
       words after the script of sbatch belong to the script.
    """
    known = list(options)
    found = Arguments()
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.words += left
            break
        if word.startswith("-") and word != "-":
            try:
                read = _long if word.startswith("--") else _letters
                found.options += read(word, left, known)
            except UsageError:
                if not go_on:
                    raise
                found.wrong.append(word)
        else:
            found.words.append(word)
            if not intersperse:
                found.words += left
                break
    return found


def _long(word: str, left: list[str], known: list[Option]) -> list[tuple[str, str]]:
    written, equals, value = word[2:].partition("=")
    option = _named(written, known)
    if option.value is Value.NONE and equals:
        raise UsageError(f"option '--{option.name}' doesn't allow an argument")
    if option.value is Value.REQUIRED and not equals:
        if not left:
            raise UsageError(f"option '--{option.name}' requires an argument")
        value = left.pop(0)
    return [(option.key, value)]


def _named(written: str, known: list[Option]) -> Option:
    """Return the option with the long name `written`. Without such an option, return the only option whose
    long name begins with `written`. Raise UsageError if there is none, or several.
    """
    begin = [option for option in known if option.name and option.name.startswith(written)]
    exact = [option for option in begin if option.name == written]
    if exact or len(begin) == 1:
        return (exact or begin)[0]
    if begin:
        possible = " ".join(f"'--{option.name}'" for option in begin)
        raise UsageError(f"option '--{written}' is ambiguous; possibilities: {possible}")
    raise UsageError(f"unrecognized option '--{written}'")


def _letters(word: str, left: list[str], known: list[Option]) -> list[tuple[str, str]]:
    found = []
    rest = word[1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        option = next((each for each in known if each.letter == letter), None)
        if option is None:
            raise UsageError(f"invalid option -- '{letter}'")
        if option.value is Value.NONE:
            found.append((option.key, ""))
            continue
        if not rest and option.value is Value.REQUIRED:
            if not left:
                raise UsageError(f"option requires an argument -- '{letter}'")
            rest = left.pop(0)
        found.append((option.key, rest))
        break
    return found
