"""Histograms of waits. The bounds of the bins grow by a constant factor, so that quantiles need little
memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

SHORTEST_S = 1.0
"""All shorter waits are counted in bin 0, for which `quantile` returns 0. Unit: seconds."""
FACTOR = 1.25
"""The upper bound of a bin divided by its lower bound. A quantile is wrong by at most 12 %."""

_LOG_FACTOR = math.log(FACTOR)

Waits = Counter[int]
"""The number of waits in each bin. Bin n > 0 has the waits of FACTOR ** (n - 1) to FACTOR ** n seconds."""


def bin_of(wait_s: float) -> int:
    """Return the number of the bin that counts a wait of this many seconds."""
    return 0 if wait_s < SHORTEST_S else 1 + int(math.log(wait_s) / _LOG_FACTOR)


def quantile(waits: Mapping[int, int], part: float) -> float | None:
    """Return the wait in seconds that a fraction `part` (0 to 1) of the waits do not exceed; None if there
    are no waits. The result is the middle of a bin.

    Example: `part` 0.5 returns the median.
    """
    wanted = part * sum(waits.values())
    counted = 0
    for number, count in sorted(waits.items()):
        counted += count
        if counted >= wanted:
            return 0.0 if number == 0 else FACTOR ** (number - 0.5)
    return None
