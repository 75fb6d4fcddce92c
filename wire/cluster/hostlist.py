"""Host lists in the notation of Slurm: `gpu[01-16,20],login1` names 18 hosts."""

from __future__ import annotations

import re
from itertools import product
from typing import Iterable

MOST = 100_000
"""The most names to which one host list may expand."""
_WORD = r"(?:[^,\[\]\s]|\[[^\[\]\s]*\])+"
_LIST = re.compile(rf"{_WORD}(?:[,\s]+{_WORD})*")
_WORDS = re.compile(_WORD)
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_LAST_NUMBER = re.compile(r"(.*?)(\d{1,9})(\D*)", re.DOTALL)
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def expand_hostlist(text: str) -> list[str]:
    """Return the names in a host list, in the order of the list. Raise ValueError with a sentence if the text
    is not a host list, or for more than MOST names.

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


def fold_hostlist(names: Iterable[str]) -> str:
    """Return host names in the short form: n1, n2 and n5 give n[1-2,5]. The order of the names is kept,
    because the place of a node in the list is its rank in the job: `expand_hostlist` returns the same names
    in the same order.

    1. Split each name at its last number: n01-ib is `n`, `01`, `-ib`.
    2. A name joins the group of the previous name under three conditions: the parts before and after the
       number are equal, the number is higher, and both numbers have equally many digits or no leading zeros.
    3. In a group, write consecutive numbers as a range.
    """
    groups: list[tuple[str, str, list[str]]] = []
    for name in names:
        match = _LAST_NUMBER.fullmatch(name)
        head, digits, tail = match.groups() if match is not None else (name, "", "")
        if groups and digits and groups[-1][:2] == (head, tail) and _follows(groups[-1][2][-1], digits):
            groups[-1][2].append(digits)
        else:
            groups.append((head, tail, [digits]))
    return ",".join(
        f"{head}{numbers[0] if len(numbers) == 1 else '[' + _ranges(numbers) + ']'}{tail}"
        for head, tail, numbers in groups
    )


def _follows(before: str, digits: str) -> bool:
    plain = not (before.startswith("0") or digits.startswith("0"))
    return bool(before) and int(digits) > int(before) and (plain or len(before) == len(digits))


def _ranges(numbers: list[str]) -> str:
    spans: list[tuple[str, str]] = []
    for number in numbers:
        if spans and int(number) == int(spans[-1][1]) + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return ",".join(low if low == high else f"{low}-{high}" for low, high in spans)


def _numbers(inside: str, text: str) -> list[str]:
    """Return the numbers, as texts, for which the text between two brackets stands: 01, 02, 03 and 7 for
    `01-03,7`.
    """
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
