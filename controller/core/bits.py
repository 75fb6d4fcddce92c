"""Nodes as one number: row r is the bit 1 << r. What is asked of hundreds of nodes is one operation then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from controller.core.columns import Bools

Bits = int
NO_ROWS: Bits = 0


def bits_of(rows: Iterable[int]) -> Bits:
    """These rows."""
    found = NO_ROWS
    for row in rows:
        found |= 1 << row
    return found


def bits_where(mask: Bools) -> Bits:
    """The rows for which it is true."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def rows_in(bits: Bits) -> Iterator[int]:
    """One by one, in the order of names."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def first_of(bits: Bits, count: int) -> Bits:
    """So many of them, or all; the first by name."""
    low, high = count, bits.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (bits & ((1 << middle) - 1)).bit_count() >= count:
            high = middle
        else:
            low = middle + 1
    return bits & ((1 << low) - 1)
