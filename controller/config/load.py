"""Reads scheduler.toml and the environment variables. The result is a Config, or a list of all mistakes."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from controller.config.config import Config
from controller.config.errors import ConfigProblem, ConfigRefused, names_beside, nearest
from controller.config.key_positions import DELIMITER, PREFIX, Key, Source, locate
from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

MAX_SIZE = 1 << 20
MAX_LINE = 1 << 14
"""The longest line in characters. tomllib needs time proportional to n² for a key with n dots, so longer
lines are refused."""
MAX_DEPTH = 16

_TYPES = {
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list in [ ]",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "missing": "is missing",
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}


def load_with_problems(
    path: Path | None, text: str | None = None
) -> tuple[Config, tuple[ConfigProblem, ...]]:
    """Return the configuration and its mistakes. Values with a mistake are replaced by their defaults. If
    environment variables have mistakes, all values are defaults.

    With `text`, read `text` instead of the file. Raise ConfigRefused if the file cannot be read or is not
    TOML.
    """
    if text is not None:
        name = "scheduler.toml" if path is None else str(path)
        source, data = _parsed(text.encode("utf-8", "surrogatepass"), name)
    else:
        source, data = (Source(), {}) if path is None else _read(path)
    try:
        return _understood(source, data), ()
    except ConfigRefused as refused:
        return _salvaged(source, data, refused), refused.problems


def _salvaged(source: Source, data: dict[str, Any], refused: ConfigRefused) -> Config:
    """Return the configuration that the file gives without its mistakes; all defaults if mistakes remain, for
    example in environment variables.

    First leave out only the keys with mistakes. While the rest is still invalid, also leave out the tables
    that contain these keys, from the innermost to the outermost.
    """
    wrong = [problem.path for problem in refused.problems]
    for depth in range(MAX_DEPTH, 0, -1):
        for key in wrong:
            _leave_out(data, key[:depth])
        try:
            return _understood(source, data)
        except ConfigRefused as again:
            wrong += [problem.path for problem in again.problems]
    config = Config.model_construct()
    config._source = source
    return config


def _leave_out(data: Any, key: Key) -> None:
    for part in key[:-1]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return
    if key and isinstance(data, dict):
        data.pop(key[-1], None)


def load(path: Path | None) -> Config:
    """Return the configuration from the environment variables and the file `path` (None: no file). Raise
    ConfigRefused with all mistakes.
    """
    return _understood(*((Source(), {}) if path is None else _read(path)))


def load_text(text: str, name: str) -> Config:
    """Return the configuration from the text of a scheduler.toml and the environment variables.

    `name` is the name of the file in messages. Raise ConfigRefused with all mistakes.
    """
    return _understood(*_parsed(text.encode("utf-8", "surrogatepass"), name))


def _understood(source: Source, data: dict[str, Any]) -> Config:
    found = [*_strange_tables(data, source), *_strange_variables()]
    try:
        config = Config(**{name: data[name] for name in data if name in Config.model_fields})
    except ValidationError as error:
        found += [
            problem_of(source, (), each, names_beside(Config, each["loc"]))
            for each in error.errors(include_url=False)
        ]
    if found:
        first = {(each.key, each.origin): each for each in reversed(found)}
        raise ConfigRefused(list(first.values()))
    config._source = source
    return config


def render(config: Config) -> str:
    """Return the configuration as TOML text that includes the default values. Loading the text gives the same
    configuration.
    """
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _read(path: Path) -> tuple[Source, dict[str, Any]]:
    name = str(path)

    def refuse(message: str, hint: str) -> ConfigRefused:
        return ConfigRefused([ConfigProblem(message, origin=name, hint=hint)])

    try:
        if os.geteuid() == 0:
            # Check the owner and mode of the configuration file and of its directories, because the file
            # names programs and plugins that root will run.
            trusted_paths.check_file(str(path))
        with path.open("rb") as file:
            raw = file.read(MAX_SIZE + 1)
    except UntrustedPath as error:
        raise refuse(f"is not used: {error}", "") from None
    except FileNotFoundError:
        raise refuse(
            "there is no such file", "Check the path given with --config or CORRAL_CONFIG."
        ) from None
    except IsADirectoryError:
        raise refuse(
            "this is a directory, not a file", f"Name the file, such as {path / 'scheduler.toml'}"
        ) from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}", "Check owner and mode of the file.") from None
    return _parsed(raw, name)


def _parsed(raw: bytes, name: str) -> tuple[Source, dict[str, Any]]:
    def refuse(message: str, hint: str = "", line: int | None = None) -> ConfigRefused:
        origin = name if line is None else f"{name}:{line}"
        return ConfigRefused([ConfigProblem(message, origin=origin, hint=hint, line=line)])

    if len(raw) > MAX_SIZE:
        raise refuse(f"is larger than {MAX_SIZE >> 20} MiB", "Is it the right file?")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise refuse("is not UTF-8 text", "Save the file as UTF-8.", line) from None
    text = text.replace("\r\n", "\n")
    for number, line_text in enumerate(text.split("\n"), 1):
        if len(line_text) > MAX_LINE:
            raise refuse(f"this line is longer than {MAX_LINE} characters", line=number)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse(f"is not TOML: {error}", line=_line_in(str(error), text)) from None
    except RecursionError:
        raise refuse("is nested too deeply", f"{MAX_DEPTH} levels are allowed.") from None
    except ValueError:
        raise refuse("holds a number with more digits than can be read") from None
    if _deeper_than(data, MAX_DEPTH):
        raise refuse("is nested too deeply", f"{MAX_DEPTH} levels are allowed.")
    source = Source(name, locate(text), raw.decode())
    strange = _strange_numbers(data, source)
    if strange:
        raise ConfigRefused(strange)
    return source, data


def _line_in(message: str, text: str) -> int | None:
    """Return the line number in an error message of tomllib, such as `(at line 3, column 9)`. For `(at end of
    document)`, return the number of the last line. Return None if the message names no line.
    """
    _, _, place = message.rpartition("(at line ")
    digits = place.partition(",")[0]
    if digits.isdigit():
        return int(digits)
    return text.count("\n") + 1 if message.endswith("(at end of document)") else None


def _deeper_than(data: Any, limit: int) -> bool:
    level = [data]
    for _ in range(limit):
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, dict | list)
        ]
    return bool(level)


def _strange_tables(data: dict[str, Any], source: Source) -> list[ConfigProblem]:
    return [
        problem_at(source, (name,), "there is no such table", nearest(name, Config.model_fields))
        for name in data
        if name not in Config.model_fields
    ]


def _strange_variables() -> list[ConfigProblem]:
    """Return a mistake for each environment variable of the form CORRAL_TABLE__KEY with an unknown table.
    pydantic ignores such variables.
    """
    found = []
    for variable in os.environ:
        prefix, name = variable[: len(PREFIX)].upper(), variable[len(PREFIX) :].lower()
        table, delimiter, _ = name.partition(DELIMITER)
        if prefix == PREFIX and delimiter and table not in Config.model_fields:
            hint = nearest(table, Config.model_fields)
            found.append(ConfigProblem(f"there is no table {table!r}", origin=variable, hint=hint))
    return found


def _strange_numbers(data: dict[str, Any], source: Source) -> list[ConfigProblem]:
    """Return a mistake for each value that is NaN or infinite, including the options of plugins."""
    found = []
    waiting: list[tuple[Key, Any]] = [((), data)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*key, name), part) for name, part in value.items()]
        elif isinstance(value, list):
            waiting += [((*key, index), part) for index, part in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            found.append(problem_at(source, key, "must be a finite number"))
    return found


def problem_at(source: Source, key: Key, message: str, hint: str = "") -> ConfigProblem:
    """Return a mistake in the value of `key`, with the file and line, or the environment variable, that sets
    the value."""
    return ConfigProblem(message, dotted(key), source.origin(key), hint, source.line(key), key)


def problem_of(source: Source, above: Key, error: ErrorDetails, known: Iterable[str]) -> ConfigProblem:
    """Convert an error of pydantic to a mistake in the configuration.

    `above` is the key of the table that pydantic checked. `known` contains the valid names, for a hint if the
    error is an unknown key.
    """
    key = (*above, *(part for part in error["loc"] if part != "[key]"))
    kind = error["type"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return problem_at(
            source, key, "there is no such key", nearest(str(key[-1]), known) or "It has no options."
        )
    if kind == "value_error":
        return problem_at(source, key, str(error["ctx"]["error"]))
    message = _TYPES.get(kind) or error["msg"].replace("Input should", "must", 1)
    return problem_at(source, key, message)


def dotted(key: Key) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{_quoted(part)}" for part in key)[1:]


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else json.dumps(name, ensure_ascii=False)
