"""Moves keys of scheduler.toml from older places to their present places, without changing anything else.

`MOVED` lists the moves. The controller accepts these keys also in their older places. The migration only
makes the file simpler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from controller.config.config import Config
from controller.config.key_positions import Key, locate
from controller.config.load import dotted, load_text


@dataclass(frozen=True)
class Move:
    """The older and the present place of a key. "*" stands for a name, such as a queue, which is the same in
    both places.
    """

    old: Key
    new: Key


MOVED = (Move(("access", "limits", "queues", "*", "priority"), ("queues", "*", "max_priority")),)


@dataclass(frozen=True)
class Migration:
    """The text of a migrated file, the moved keys as (old, new), and sentences about keys that must be moved
    by hand.
    """

    text: str
    moved: tuple[tuple[str, str], ...]
    by_hand: tuple[str, ...]


def migrate(text: str, name: str) -> Migration:
    """Return the text with all keys in their present places.

    1. Find each key in an older place that is on a line of its own, and whose present table has a heading in
       the file.
    2. Remove this line, and write the key with the same value as the first line below the heading. If the key
       is also set in its present place with the same value, only remove the line.
    3. Remove the heading of the old table if nothing is left below it.
    4. Parse the result. Undo the move if a value has changed.

    Comments and the order of all other lines do not change. Raise ConfigRefused if the text is not a valid
    configuration.

    Example: `[access.limits.queues.short]` with `priority = "HIGH"` becomes `max_priority = "HIGH"` below
    `[queues.short]`.
    """
    before = load_text(text, name)
    moved: list[tuple[str, str]] = []
    by_hand: list[str] = []
    for old, new in _found(before):
        changed = _moved(text, old, new)
        if changed is not None and _is_same(before, load_text(changed, name), old, new):
            text, before = changed, load_text(changed, name)
            moved.append((dotted(old), dotted(new)))
        else:
            line = locate(text).get(old)
            why = _why_not(text, before, old, new)
            by_hand.append(f"{name}:{line}: {dotted(old)} cannot be moved to {dotted(new)}: {why}")
    return Migration(text, tuple(moved), tuple(by_hand))


def _found(config: Config) -> list[tuple[Key, Key]]:
    """Return the keys in older places in the file, as pairs (older place, present place)."""
    pairs = []
    for key in config.source.lines:
        for move in MOVED:
            if len(key) == len(move.old) and all(
                wanted in ("*", part) for part, wanted in zip(key, move.old, strict=True)
            ):
                name = key[move.old.index("*")]
                pairs.append((key, tuple(name if part == "*" else part for part in move.new)))
    return pairs


def _why_not(text: str, config: Config, old: Key, new: Key) -> str:
    """Return why the key cannot be moved, and what to change by hand."""
    data = config.model_dump(mode="json")
    value, present = _taken(data, old), _taken(data, new)
    if new in config.source.lines and present != value:
        line = config.source.lines[new]
        return f"line {line} sets {dotted(new)} = {present!r}, which applies; delete the line that is wrong"
    if _heading(text.splitlines(), new[:-1]) is None:
        return f"there is no heading [{dotted(new[:-1])}] in the file"
    return "it is not on a line of its own"


def _moved(text: str, old: Key, new: Key) -> str | None:
    """Return the text with the key moved; None if the key is not on a line of its own, or if its present
    table has no heading.
    """
    lines, where = text.splitlines(keepends=True), locate(text)
    number = where[old] - 1
    match = re.match(r"\s*([\w\"'.-]+)\s*=\s*(.*)", lines[number], re.S)
    together = [key for key, line in where.items() if line == number + 1 and len(key) >= len(old)]
    if match is None or not match[1].endswith(str(old[-1])) or together != [old]:
        return None
    heading = _heading(lines, new[:-1])
    if heading is None:
        return None
    below = [] if new in where else [f"{new[-1]} = {match[2]}"]
    if below and not below[0].endswith("\n"):
        below = [f"{below[0]}\n"]
    kept = [*lines[: heading + 1], *below, *lines[heading + 1 :]]
    # The index of the old line is higher now if the new lines were inserted above the old line.
    del kept[number + (len(below) if number > heading else 0)]
    return _without_empty_table("".join(kept), old[:-1])


def _heading(lines: list[str], table: Key) -> int | None:
    """Return the index of the line with the heading of a table; None if there is none."""
    wanted = [f"[{dotted(table)}]", "[" + ".".join(f'"{part}"' for part in table) + "]"]
    for index, line in enumerate(lines):
        if re.sub(r"\s", "", line.partition("#")[0]) in wanted:
            return index
    return None


def _without_empty_table(text: str, table: Key) -> str:
    """Remove the heading of a table that has no key any more, with the empty lines below it. A table with
    comments is kept.
    """
    lines = text.splitlines(keepends=True)
    heading = _heading(lines, table)
    if heading is None or "#" in lines[heading]:
        return text
    end = heading + 1
    while end < len(lines) and not lines[end].strip():
        end += 1
    empty = end == len(lines) or lines[end].lstrip().startswith("[")
    return "".join([*lines[:heading], *lines[end:]]) if empty else text


def _is_same(before: Config, after: Config, old: Key, new: Key) -> bool:
    """Return whether the two configurations differ only in the place of the moved key."""
    one, other = before.model_dump(mode="json"), after.model_dump(mode="json")
    value = _taken(one, old)
    was, now = _taken(one, new), _taken(other, new)
    _taken(other, old)
    return value == now and was in (None, value) and _pruned(one) == _pruned(other)


def _taken(data: dict[str, object], key: Key) -> object:
    """Remove a key from nested tables, and return its value; None if it is not there."""
    for part in key[:-1]:
        found = data.get(str(part))
        if not isinstance(found, dict):
            return None
        data = found
    return data.pop(str(key[-1]), None)


def _pruned(value: object) -> object:
    """Return nested tables without null values and empty tables."""
    if not isinstance(value, dict):
        return value
    parts = {name: _pruned(each) for name, each in value.items()}
    return {name: each for name, each in parts.items() if each is not None and each != {}}
