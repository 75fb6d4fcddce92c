"""Host lists in the notation of Slurm: `gpu[01-16,20],login1` names 18 hosts."""

from __future__ import annotations

import re
from itertools import product

MOST = 100_000
"""The most names that one host list may have."""
_WORD = r"(?:[^,\[\]\s]|\[[^\[\]\s]*\])+"
_LIST = re.compile(rf"{_WORD}(?:[,\s]+{_WORD})*")
_WORDS = re.compile(_WORD)
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def expand_hostlist(text: str) -> list[str]:
    """Return the names in a host list, in the order of the list. Raise ValueError with a sentence if the text
    is not a host list, or if it has more than MOST names.

    A number in brackets keeps its leading zeros. Several pairs of brackets in a name give all combinations.

    Example: `r[1-2]n[01-02],login` gives r1n01, r1n02, r2n01, r2n02 and login.
    """
    if not _LIST.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a list of hosts; write gpu[01-16] or gpu01,gpu02")
    names: list[str] = []
    for word in _WORDS.findall(text):
        pieces = [[plain] if plain else _numbers(inside, text) for inside, plain in _PIECE.findall(word)]
        count = 1
        for piece in pieces:
            count *= len(piece)
        if len(names) + count > MOST:
            raise ValueError(f"{text[:80]!r} has more than {MOST} hosts")
        names += map("".join, product(*pieces))
    return names


def _numbers(inside: str, text: str) -> list[str]:
    """Return the texts that the inside of a pair of brackets stands for: `01-03,7` gives 01, 02, 03 and 7."""
    found: list[str] = []
    for part in inside.split(","):
        bounds = _RANGE.fullmatch(part)
        if bounds is None:
            if not part or "-" in part:
                raise ValueError(f"cannot read [{inside}] in {text!r}; write [01-16] or [1,3,5-8]")
            found.append(part)
            continue
        low, high = int(bounds[1]), int(bounds[2])
        if high < low or high - low >= MOST:
            raise ValueError(f"[{inside}] in {text!r} is not a range from a lower to a higher number")
        found += [str(number).zfill(len(bounds[1])) for number in range(low, high + 1)]
    return found
