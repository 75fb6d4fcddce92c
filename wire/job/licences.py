"""Licences: resources that are counted for the whole cluster and do not belong to a node."""

from __future__ import annotations

import re
from typing import Iterator, Mapping

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
MAX_PER_LICENCE = 1_000_000
MAX_LICENCES = 32


def parse_licence(text: str) -> tuple[str, int]:
    """Return the name of a licence and the requested number, from a text such as `matlab:2` or `matlab`
    (number 1). Raise ValueError for any other text.
    """
    name, colon, number = text.partition(":")
    count = int(number) if number.isascii() and number.isdigit() and len(number) <= 9 else 0
    if not NAME.fullmatch(name) or (colon and not count):
        raise ValueError(f"cannot read {text!r}; write matlab:2, or matlab for one")
    return name, count if colon else 1


def licence_problems(licences: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Validate the licences of a JobSpec. Yield each mistake as (field name, sentence for users)."""
    if len(licences) > MAX_LICENCES:
        yield "licences", f"must be at most {MAX_LICENCES} kinds"
        return
    for name, count in licences.items():
        if not NAME.fullmatch(name):
            yield "licences", "must be named with letters, digits, '.', '_', '@' and '-'"
        elif not 1 <= count <= MAX_PER_LICENCE:
            yield f"licences.{name}", f"must be between 1 and {MAX_PER_LICENCE:,}"
