"""Computes the combinations of the values in the matrix of a task, and fills the values into placeholders."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

Values = Mapping[str, str]
"""The variables of one job of a task: a dict from name to text."""

RESERVED = ("index", "run", "task")
"""Variables that Corral sets for the jobs of a task: the number of the job in the task (index), the name of
the task (task) and, in a task with `count`, the number of the repetition of the combination (run).
"""
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def text_of(value: Any) -> str:
    """Return a value of a file as text. Booleans become true and false, as in TOML, YAML and JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def combinations(
    matrix: Mapping[str, Sequence[Any]],
    include: Sequence[Mapping[str, Any]],
    exclude: Sequence[Mapping[str, Any]],
) -> list[dict[str, str]]:
    """Return the combinations of a matrix.

    1. Compute all combinations of the values. The last variable changes fastest.
    2. Leave out combinations that match an entry of `exclude`.
    3. Append the entries of `include`.
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
    """Return the mistakes in a matrix, each as (the key of the task with the mistake, a sentence)."""
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
    """Return the text with each placeholder, such as {lr}, replaced by the value of its variable. {{lr}}
    becomes {lr}, and ${LR} is not changed. Raise ValueError for a placeholder without a variable.
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


def pairs(jobs: Sequence[Values], others: Sequence[Values]) -> tuple[tuple[int, ...], ...]:
    """Return, for each job in `jobs`, the indices of the matching jobs in `others`. Two jobs match if all
    their common variables (apart from index and task) have the same values. Return an empty tuple if there
    are no common variables.
    """
    ours = [name for name in (jobs[0] if jobs else {}) if name not in RESERVED or name == "run"]
    common = [name for name in ours if others and name in others[0]]
    if not common:
        return ()
    places: dict[tuple[str, ...], list[int]] = {}
    for number, other in enumerate(others):
        places.setdefault(tuple(other[name] for name in common), []).append(number)
    return tuple(tuple(places.get(tuple(job[name] for name in common), ())) for job in jobs)
