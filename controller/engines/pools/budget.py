"""The money of a machine pool: what its machines cost today, and whether a further machine may be ordered."""

from __future__ import annotations

from controller.engines.contract import Offer
from controller.engines.pools.fleet import Fleet
from controller.engines.pools.machine_pool import PoolOptions

DAY_S, HOUR_S = 86_400.0, 3_600.0


class Budget:
    """The caps of one pool: the most money for a day (UTC), for the whole pool and for single projects.

    1. A machine costs its price per hour from its order to its end.
    2. A machine may be ordered if the money of the day, together with one further hour of all machines and of
       the new machine, is within the cap. The hour is less if the day ends earlier.
    3. When a cap is reached, the machines under the cap are drained, and end when their jobs have ended. No
       job is stopped, so the money of a day can exceed its cap.

    Example: with a cap of 50 and one machine for 3 an hour, 41 were spent. A second machine for 6 would need
    41 + 3 + 6 = 50, and may be ordered.
    """

    def __init__(self, options: PoolOptions, fleet: Fleet) -> None:
        self._options = options
        self._fleet = fleet

    def spent_today(self, now: float, project: str | None = None) -> float:
        """Return the money of this day, for all machines or for those of one project."""
        return self._fleet.spent(now - now % DAY_S, now, project)

    def refusal(self, offer: Offer, project: str, now: float) -> str:
        """Return why a machine may not be ordered for a job of this project; empty if it may."""
        for cap, whose in self._caps(project):
            hours = min(HOUR_S, DAY_S - now % DAY_S) / HOUR_S
            live = sum(
                each.record.price_per_hour
                for each in self._fleet.live
                if whose is None or each.record.project == whose
            )
            needed = self.spent_today(now, whose) + hours * (live + offer.price_per_hour)
            if offer.price_per_hour and needed > cap:
                return _sentence(whose, cap)
        return ""

    def exceeded(self, project: str, now: float) -> str:
        """Return a sentence that names the reached cap, that of the pool or that of this project; empty if
        neither is reached.
        """
        for cap, whose in self._caps(project):
            if self.spent_today(now, whose) >= cap > 0:
                return _sentence(whose, cap)
        return ""

    def _caps(self, project: str) -> list[tuple[float, str | None]]:
        caps: list[tuple[float, str | None]] = []
        if self._options.daily_cap is not None:
            caps.append((self._options.daily_cap, None))
        if project in self._options.project_caps:
            caps.append((self._options.project_caps[project], project))
        return caps


def _sentence(project: str | None, cap: float) -> str:
    whose = "the daily cap" if project is None else f"the daily cap of project {project}"
    return f"{whose} of {cap:g} is reached"
