"""The controller's clock. It shows seconds since 1970 and never goes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from wire.text import duration

WARNING_S = 1.0
"""A warning is logged if the clock is more than this many seconds behind the time of the newest journal
entry.
"""

log = logging.getLogger("corral.daemon")


class WallClock:
    """A clock that shows seconds since 1970 and never goes back, not even after a restart.

    1. While the clock `source` goes forward, `now()` is this clock. It is the system clock, or the clock of
       the database server if the cluster can have several controllers. A new leader therefore continues with
       the clock of the former leader, whatever the system clocks of the two hosts show.
    2. After this clock was set back, `now()` runs at half speed until the clock has caught up.
       `now()` does not stop, because otherwise no requeue delay would end and no reservation would begin.
    3. After a restart, `now()` is never before the time of the newest journal entry, even if the system clock
       is. On a host without a clock battery, the system clock may start in 1970.

    Example: the clock is set back from 12:00 to 11:00. Two hours later both clocks show 13:00.
    """

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source
        self._latest = 0.0
        self._measured_at = time.monotonic()

    def now(self) -> float:
        """Return the current time in seconds since 1970; never less than an earlier call returned."""
        measured_at = time.monotonic()
        self._latest = max(self._source(), self._latest + (measured_at - self._measured_at) / 2)
        self._measured_at = measured_at
        return self._latest

    def continue_from(self, at: float) -> None:
        """Make now() return `at` or a later time. `at` is the time of the newest journal entry. Log a warning
        if the clock is more than WARNING_S seconds behind `at`.
        """
        self._latest = max(self._latest, at)
        behind = self._latest - self._source()
        if behind > WARNING_S:
            log.warning(
                "the clock is %s behind the journal: until it has caught up, time runs at half speed",
                duration(behind),
            )
