"""Reads the usage of attempts for reports: from the store, and of the attempts that run now."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from controller.core.model.rows import UsageRow
from controller.core.state.state import State
from controller.core.state.usage_records import usage_rows
from controller.daemon.agent_links import AgentLinks
from controller.daemon.store_threads import StoreThreads
from controller.store.store import Store
from controller.store.usage import UsageSum

MOST_USERS = 10_000
"""The most users that get a weekly notice about their jobs."""
LARGEST_JOBS = 200
"""For the weekly notice of a user, this many of the user's jobs are examined for idle GPUs: those with the
most GPU time.
"""


class UsageReports:
    """The usage of ended and running attempts. A running attempt counts as if it ended now."""

    def __init__(
        self,
        store: Store,
        threads: StoreThreads,
        state: Callable[[], State],
        agents: AgentLinks,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._threads = threads
        self._state = state
        self._agents = agents
        self._now = now

    async def of_week(self, since: float, until: float, user: str) -> list[UsageSum]:
        """Return the usage of each user from `since` to `until`. If `user` is given, return the usage of each
        job of this user instead, for at most LARGEST_JOBS jobs.
        """
        by, most = ("job", LARGEST_JOBS) if user else ("user", MOST_USERS)
        running = self.running_rows(self._now())
        ask = partial(self._store.usage, by, since, until, most, running, {"user": user} if user else {})
        return (await self._threads.report(ask))[0]

    def running_rows(self, now: float) -> list[UsageRow]:
        """Return usage records of the running attempts, as if the attempts ended at `now`. For a report, the
        store counts only the usage inside the time window of the report.
        """
        state, use = self._state(), self._agents.running_usage
        jobs = (state.jobs[number] for _, number in state.releases)
        return [row for job in jobs for row in usage_rows(job, now, use.of(job))]
