"""The EASY reservation of the first waiting job of one scheduler profile. It is computed in each cycle
that tries all lanes, and kept until the next such cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from controller.core.backfill.easy.easy_reservation import EasyReservation, earliest_reservation
from controller.core.framework.interfaces import Reserves
from controller.core.model.events.queued import StartEstimated
from controller.core.model.job import NEVER
from controller.core.model.start_estimates import PROMISE

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle


class FirstReservation:
    """Computes the EASY reservation of the first waiting job (`Cycle.head`), and the latest start of this
    job.

    A scheduler profile that shares nodes with other profiles has no EASY reservation: see SharedReservations.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._easy: EasyReservation | None = None
        self._known = False
        """True if `_easy` has been computed for the present first waiting job. `_easy` may then still be
        None.
        """
        self._latest = (0, NEVER)
        """The id of the first waiting job, and the latest start that is guaranteed to this job. The latest
        start includes `max_delay_s`.
        """

    def renew(self, now: float) -> None:
        """Compute the reservation again, because another job may now be the first waiting job, or the
        reserved start may have changed. Each cycle that tries all lanes calls this method.

        The reservation is computed by this method, and not on first use, because the time of the first use
        depends on caches. Engines with other caches would then record other starts for the same inputs.
        """
        self._easy, self._known = None, False
        self.use(now)

    def reservation(self, now: float) -> EasyReservation | None:
        """Return the EASY reservation of the first waiting job, computed on first use.

        Return None if no job waits, if the backfill plugin makes no reservation, or if other scheduler
        profiles use the same nodes.
        """
        cycle = self._cycle
        if cycle.shared is not None or cycle.head is None:
            return None
        number = cycle.head[1]
        if not self._known and number in cycle.queue:
            self._known = True
            if cycle.backfill.reserves is not Reserves.NO_JOB:
                ask = cycle.state.jobs[number].ask
                self._easy = earliest_reservation(cycle.state, cycle.placer, ask, number, now)
        return self._easy

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Allow a query to compute the EASY reservation within a `with` block. Restore the earlier result at
        the end of the block, because the next cycle must compute the reservation for its own time.
        """
        before = self._easy, self._known
        try:
            yield
        finally:
            self._easy, self._known = before

    def use(self, now: float) -> float:
        """Return the time by which a backfilled job must end in order to use nodes that the first waiting job
        needs.

        Backfilled jobs may delay the first waiting job by at most `max_delay_s` seconds in total. Therefore
        the first call for a waiting job fixes the latest start of this job, and later cycles do not move the
        latest start.
        """
        easy = self.reservation(now)
        ends_by = self.backfill_ends_by(easy)
        if easy is not None and self._latest[0] != easy.job:
            self._latest = easy.job, ends_by
        return ends_by

    def backfill_ends_by(self, easy: EasyReservation | None) -> float:
        """Return the time by which a backfilled job must end in order to use nodes that `easy` needs.

        `easy` is the reservation of the first waiting job. Return NEVER if there is no reservation.
        """
        if easy is None:
            return NEVER
        max_delay_s = self._cycle.backfill.max_delay_s
        if max_delay_s is None:
            return easy.starts_at
        job, latest = self._latest
        return max(easy.starts_at, latest if job == easy.job else easy.starts_at + max_delay_s)

    def record(self, now: float, apply: Callable[[StartEstimated], None]) -> None:
        """Record the start that is guaranteed to the first waiting job as a StartEstimated event, once for
        each job.
        """
        easy, state = self._easy, self._cycle.state
        if easy is None or easy.starts_at == NEVER or easy.job not in state.queue:
            return
        if any(each.kind == PROMISE for each in state.jobs[easy.job].foreseen):
            return
        # Do not record a start that depends on the end of a job without a time limit, because that end is
        # only assumed.
        if not state.assumes_ends(easy.starts_at):
            apply(StartEstimated(easy.job, now, PROMISE, easy.starts_at))

    def resume(self, other: FirstReservation) -> None:
        """Copy the latest start from `other`, which belongs to another copy of the cluster state."""
        self._latest = other._latest
