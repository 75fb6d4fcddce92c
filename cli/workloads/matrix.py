"""The combinations of values of a task: its matrix, its count, and the placeholders in its texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

Values = Mapping[str, str]
"""The variables of one job of a task, as texts."""

RESERVED = ("index", "run", "task")
"""Variables that every task has: the number of the job in its task, the number of the repetition of its
combination, and the name of the task.
"""
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def text_of(value: Any) -> str:
    """Return a value of a file as text: true and false in small letters, as in TOML, YAML and JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def combinations(
    matrix: Mapping[str, Sequence[Any]],
    include: Sequence[Mapping[str, Any]],
    exclude: Sequence[Mapping[str, Any]],
) -> list[dict[str, str]]:
    """Return the combinations of a matrix: all combinations of the values, with the last variable changing
    first; without those that match an entry of `exclude`; then those of `include`.
    """
    names = list(matrix)
    found = [
        dict(zip(names, map(text_of, values), strict=True))
        for values in itertools.product(*matrix.values())
        if names
    ]
    left_out = [{name: text_of(value) for name, value in each.items()} for each in exclude]
    found = [each for each in found if not any(entry.items() <= each.items() for entry in left_out)]
    return found + [{name: text_of(value) for name, value in each.items()} for each in include]


def matrix_problems(
    matrix: Mapping[str, Sequence[Any]],
    include: Sequence[Mapping[str, Any]],
    exclude: Sequence[Mapping[str, Any]],
) -> list[tuple[str, str]]:
    """Return the errors in a matrix, each as (key of the task, sentence)."""
    found = []
    for name, values in matrix.items():
        if not _VARIABLE.fullmatch(name) or name in RESERVED:
            found.append(
                ("matrix", f"{name!r} cannot be the name of a variable; {', '.join(RESERVED)} are taken")
            )
        if not values:
            found.append(("matrix", f"{name} has no values"))
        elif len(set(map(text_of, values))) < len(values):
            found.append(("matrix", f"{name} has the same value twice"))
    if any(set(entry) != set(matrix) for entry in include):
        names = ", ".join(matrix) or "the matrix"
        found.append(("include", f"each entry must have a value for each of {names}"))
    for entry in exclude:
        strange = [name for name in entry if name not in matrix]
        if strange or not entry:
            found.append(("exclude", f"{strange[0] if strange else 'an empty entry'} is not in the matrix"))
    return found


def filled(text: str, values: Values) -> str:
    """Return the text with the value of each variable in place of its placeholder, such as {lr}. {{lr}}
    stands for {lr}, and ${LR} stays as it is. Raise ValueError for a placeholder without a variable.
    """

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return "{" + found[1] + "}"
        if not found[2]:
            return found[0]
        if found[2] not in values:
            raise ValueError(
                f"there is no variable {found[2]!r}; there are {', '.join(values)}. "
                f"For the text {found[0]} itself write {{{found[0]}}}"
            )
        return values[found[2]]

    return _PLACEHOLDER.sub(value, text)


def pairs(jobs: Sequence[Values], others: Sequence[Values]) -> tuple[tuple[int, ...], ...] | None:
    """Return for each job the numbers of the other jobs that have the same values of the variables that both
    have. None if they have no variable in common, or a job has no such other job.
    """
    ours = [name for name in (jobs[0] if jobs else {}) if name not in RESERVED or name == "run"]
    common = [name for name in ours if others and name in others[0]]
    if not common:
        return None
    places: dict[tuple[str, ...], list[int]] = {}
    for number, other in enumerate(others):
        places.setdefault(tuple(other[name] for name in common), []).append(number)
    found = tuple(tuple(places.get(tuple(job[name] for name in common), ())) for job in jobs)
    return found if all(found) else None
