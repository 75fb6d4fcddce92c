"""What a change to a job sends: the fields that were named, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cli.asked import BY_FLAG, WISHES, Asked, from_flags
from cli.commands import nearest
from cli.conditions import AFTER
from cli.exits import Mistake
from cli.jobs import FLAGS, flag_of, spec_from
from wire.api.problem import Problem
from wire.codec import encode

_SHARED = {"different": "topology", "apart": "company", "over": "company"}
"""Options that set a field together with another."""


def changes_of(asked: Asked, clear: str) -> dict[str, Any]:
    """The fields to change, as JSON has them; None for those that are to be as if left out."""
    given = from_flags(asked)
    told = encode(spec_from(("true",), "", given, {}))
    changes: dict[str, Any] = {field: told[field] for name in given for field in _fields(name)}
    for word in filter(None, (part.strip() for part in clear.split(","))):
        flag = "--" + word.removeprefix("--")
        if flag not in BY_FLAG:
            raise Mistake(f"--clear: {word!r} is not an option of a job.{nearest(flag, BY_FLAG)}")
        changes.update(dict.fromkeys(_fields(BY_FLAG[flag].name)))
    if not changes:
        raise Mistake("there is nothing to change", "Say what: corral job set 7 --priority high")
    return changes


def as_options(problem: Problem) -> Problem:
    """The complaint with the option that it is about, not the field of the API."""
    return replace(problem, where=flag_of(problem.where))


def _fields(wish: str) -> Iterator[str]:
    """The fields of the spec that an option sets."""
    flag = WISHES[wish].flag
    if wish in AFTER:
        yield "after"
    elif wish == "gpus_per_node":
        yield from ("gpus", "nodes")
    elif wish in ("restart", "restart_delay", "restart_codes"):
        yield "restart"
    else:
        field = _SHARED.get(wish) or next((field for field, named in FLAGS.items() if named == flag), wish)
        yield field.partition(".")[0]
