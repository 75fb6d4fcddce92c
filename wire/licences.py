"""Licences: counted things of which a cluster has so many, wherever its jobs run."""

from __future__ import annotations

import re
from typing import Iterator, Mapping

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
MOST = 1_000_000
MOST_NAMES = 32


def licence_of(text: str) -> tuple[str, int]:
    """`matlab:2`, or `matlab` for one."""
    name, colon, number = text.partition(":")
    count = int(number) if number.isascii() and number.isdigit() and len(number) <= 9 else 0
    if not NAME.fullmatch(name) or (colon and not count):
        raise ValueError(f"cannot read {text!r}; write matlab:2, or matlab for one")
    return name, count if colon else 1


def licence_problems(licences: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """What is wrong with what a job asks for, as (field, sentence)."""
    if len(licences) > MOST_NAMES:
        yield "licences", f"must be at most {MOST_NAMES} kinds"
        return
    for name, count in licences.items():
        if not NAME.fullmatch(name):
            yield "licences", "must be named with letters, digits, '.', '_', '@' and '-'"
        elif not 1 <= count <= MOST:
            yield f"licences.{name}", f"must be between 1 and {MOST:,}"
