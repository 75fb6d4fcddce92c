"""Reads a TOML, YAML or JSON file, and finds the line of each of its keys for error messages."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from cli.exit_codes import NOT_FOUND, CommandError

Path = tuple[str | int, ...]
"""The place of a value in a document: the keys of tables and the indices of lists that lead to the value."""

MOST_BYTES = 1 << 22
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\-\"' ]+?)\s*=")
_PARTS = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,\n]|[^\s{}\[\]:,"]+')


@dataclass(frozen=True)
class Document:
    """A parsed file: its name, its contents as dicts and lists, and the line number of each place."""

    name: str
    data: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """Return the line number of the value at this place. If it is not known, return the line number of
        the table that contains the value, or 1.
        """
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read(path: str) -> Document:
    """Read and parse the file. Raise CommandError if this fails, or if the name of the file does not end with
    .toml, .yaml, .yml or .json.
    """
    file = FilePath(path)
    kind = file.suffix.lower()
    if kind not in _READERS:
        raise CommandError(
            f"{path}: the name of a workload file must end with {', '.join(_READERS)}", "Rename the file."
        )
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise CommandError(f"there is no file {path!r}", "Name a workload file.", NOT_FOUND) from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", "Name a file that you may read.") from None
    if len(raw) > MOST_BYTES:
        raise CommandError(f"{path} has {len(raw):,} bytes; a workload file may have {MOST_BYTES:,}")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    data, lines = _READERS[kind](path, text)
    if not isinstance(data, dict):
        raise CommandError(f"{path} line 1: a workload file must be a table with the key 'tasks'")
    return Document(file.name, data, lines)


def _toml(path: str, text: str) -> tuple[Any, dict[Path, int]]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{path}: {error}", "The file is not valid TOML.") from None
    return data, _toml_lines(text)


def _toml_lines(text: str) -> dict[Path, int]:
    """Return a dict from the place of each table and key of a valid TOML text to its line number. Keys in
    inline tables are left out.
    """
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    quoted = ""
    for number, line in enumerate(text.split("\n"), 1):
        inside, quoted = bool(quoted), _open_quote(line, quoted)
        if inside:
            continue
        header, key = _HEADER.match(line), _KEY.match(line)
        if header is not None:
            table = _resolved(_parts(header[2]), counts)
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            found.setdefault(table, number)
        elif key is not None:
            found.setdefault((*table, *_parts(key[1])), number)
    return found


def _open_quote(line: str, quoted: str) -> str:
    """Return the quotation marks of the multi-line string that is open after this line; empty if none is
    open. `quoted` are those of the string that is open before this line.
    """
    for mark in re.findall(r"\"\"\"|'''", line):
        if not quoted:
            quoted = mark
        elif mark == quoted:
            quoted = ""
    return quoted


def _parts(dotted: str) -> Path:
    return tuple("".join(part) for part in _PARTS.findall(dotted))


def _resolved(parts: Path, counts: dict[Path, int]) -> Path:
    """Return the place of the table whose header has these parts. If a part names a list of tables, the
    header means the newest table of this list. `counts` has the index of the newest table of each list.
    """
    place: Path = ()
    for part in parts:
        if place in counts:
            place = (*place, counts[place])
        place = (*place, part)
    return place


def _json(path: str, text: str) -> tuple[Any, dict[Path, int]]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise CommandError(
            f"{path} line {error.lineno}: {error.msg}", "The file is not valid JSON."
        ) from None
    return data, _json_lines(text)


def _json_lines(text: str) -> dict[Path, int]:
    """Return a dict from the place of each key and of each object or list of a valid JSON text to its line
    number.
    """
    found: dict[Path, int] = {}
    stack: list[str | int] = []
    closers: list[str] = []
    number, expects_key = 1, False
    for word in _JSON_TOKEN.findall(text):
        if word == "\n":
            number += 1
        elif word in "{[":
            found.setdefault(tuple(stack), number)
            closers.append(word)
            stack.append("" if word == "{" else 0)
            expects_key = word == "{"
        elif word in "}]":
            closers.pop()
            stack.pop()
        elif word == ",":
            expects_key = closers[-1] == "{"
            if isinstance(stack[-1], int):
                stack[-1] += 1
        elif word != ":" and expects_key:
            stack[-1], expects_key = json.loads(word), False
            found.setdefault(tuple(stack), number)
    return found


def _yaml(path: str, text: str) -> tuple[Any, dict[Path, int]]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise CommandError(
            f"{path}: the YAML library is not installed here",
            "Install it: pip install 'corral[yaml]'. Or write the workload as TOML or JSON.",
        ) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CommandError(f"{path}: {' '.join(str(error).split())}", "The file is not valid YAML.") from None
    found: dict[Path, int] = {}
    pending: list[tuple[Path, Any]] = [((), node)]
    while pending:
        place, each = pending.pop()
        if each is None:
            continue
        found.setdefault(place, each.start_mark.line + 1)
        if isinstance(each, yaml.MappingNode):
            for key, value in each.value:
                found[(*place, key.value)] = key.start_mark.line + 1
                pending.append(((*place, key.value), value))
        elif isinstance(each, yaml.SequenceNode):
            pending += [((*place, index), value) for index, value in enumerate(each.value)]
    return data, found


_READERS = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml, ".json": _json}
