"""The weekly notice of each user: the resources that the user's jobs requested and used in the last week."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from controller.core.model.rows import NoteRow
from controller.notify.messages import Notice
from controller.store.usage import UsageSum
from wire.text import counted, printable

WORD = "efficiency"
WEEK_S = 7 * 86_400.0
WEEKLY_NOTE = "notify-weekly"
"""The `kind` column of the database row with the time of the last weekly notices."""
NAMED_JOBS = 3
"""The most jobs that a weekly notice names."""

WeekOf = Callable[[float, float, str], Awaitable[Sequence[UsageSum]]]
"""A function of (begin, end, user). It returns the usage of each user between two times. If a user is named,
it returns the usage of each job of this user instead, only of the jobs with the most usage.
"""


class WeeklyEfficiency:
    """Decides when the weekly notices are made: on Mondays at `digest_at`, or later if the controller did not
    run at that time. The time of the last notices is stored together with the notices, so a restart of the
    controller repeats no notice.
    """

    def __init__(self, week_of: WeekOf) -> None:
        self._week_of = week_of
        self._last: float | None = None
        """The Monday (a time) of the last weekly notices; None before the first notices."""

    def load(self, notes: Iterable[NoteRow]) -> None:
        """Read the time of the last weekly notices from its database row."""
        self._last = next(
            (float(each.body) for each in notes if each.kind == WEEKLY_NOTE and each.body), None
        )

    def is_due(self, monday: float) -> bool:
        """Return whether the weekly notices of the time `monday` (the last Monday at `digest_at`) are still
        to be made.
        """
        return self._last is None or self._last < monday

    async def notices(self, monday: float, now: float) -> list[Notice]:
        """Return the notices of all users with jobs in the week before `monday`. Return none if weekly
        notices were never sent before, because a new cluster has no complete week.
        """
        if self._last is None:
            return []
        since = monday - WEEK_S
        return [
            weekly_notice(user, await self._week_of(since, monday, user.name), now)
            for user in await self._week_of(since, monday, "")
            if user.gpu_s or user.cpu_held_s
        ]

    @staticmethod
    def row_of(monday: float) -> NoteRow:
        """Return the database row to write with the notices of this Monday."""
        return NoteRow(WEEKLY_NOTE, "last", repr(monday))

    def sent(self, monday: float) -> None:
        """Record that the notices of this Monday are in the database."""
        self._last = monday


def weekly_notice(user: UsageSum, jobs: Iterable[UsageSum], now: float) -> Notice:
    """Return the weekly notice of one user. The notice names the jobs with the most idle GPU-hours."""
    idle = sorted((job for job in jobs if _idle_h(job) >= 0.1), key=_idle_h, reverse=True)[:NAMED_JOBS]
    step = f"corral job stats {printable(idle[0].name)}" if idle else "corral job stats JOB"
    return Notice(
        WORD,
        now,
        "your jobs of the last week: what they used",
        " ".join(_sentences(user, idle)),
        f"See what a job requested and used, and which options fit it better: {step}",
        user=user.name,
    )


def _sentences(user: UsageSum, idle: Sequence[UsageSum]) -> Iterator[str]:
    if user.gpu_s:
        yield f"In the last 7 days {counted(user.jobs, 'job')} of yours held {_hours(user.gpu_s)} GPU-hours."
        if user.measured_s:
            busy = 100 * user.busy_s / user.measured_s
            idle_h = f"{_idle_h(user):,.1f}"
            yield f"The GPUs were busy for {busy:.0f} % of the measured time; {idle_h} GPU-hours were idle."
    else:
        yield f"In the last 7 days {counted(user.jobs, 'job')} of yours ran without GPUs."
    if user.cpu_held_s:
        yield (
            f"They used {_hours(user.cpu_s)} of {_hours(user.cpu_held_s)} allocated CPU-hours "
            f"({100 * user.cpu_s / user.cpu_held_s:.0f} %)."
        )
    if idle:
        named = ", ".join(f"{printable(job.name)} ({_idle_h(job):,.1f})" for job in idle)
        yield f"Jobs with the most idle GPU-hours: {named}."


def _idle_h(each: UsageSum) -> float:
    return (each.measured_s - each.busy_s) / 3_600


def _hours(seconds: float) -> str:
    return f"{seconds / 3_600:,.1f}"
