"""The weekly notice of each user: what the user's jobs requested in the last week, and what they used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from controller.core.model.rows import NoteRow
from controller.notify.messages import Notice
from controller.store.usage import UsageSum
from wire.text import counted, printable

WORD = "efficiency"
WEEK_S = 7 * 86_400.0
WEEKLY_NOTE = "notify-weekly"
"""The kind of the database row with the time of the last weekly notices."""
NAMED_JOBS = 3
"""The number of jobs that a notice names."""

WeekOf = Callable[[float, float, str], Awaitable[Sequence[UsageSum]]]
"""Returns the usage between two times by user; with the name of a user, that of the user's largest jobs."""


class WeeklyEfficiency:
    """Decides when the weekly notices are made: on Mondays at `digest_at`, or later if the controller did not
    run then. The time of the last ones is written with them, so a restart repeats none.
    """

    def __init__(self, week_of: WeekOf) -> None:
        self._week_of = week_of
        self._last: float | None = None
        """The Monday of the last notices; None before the first ones."""

    def load(self, notes: Iterable[NoteRow]) -> None:
        """Read the time of the last notices from its row."""
        self._last = next(
            (float(each.body) for each in notes if each.kind == WEEKLY_NOTE and each.body), None
        )

    def is_due(self, monday: float) -> bool:
        """Return whether notices are due. `monday` is the time of the last Monday at `digest_at`."""
        return self._last is None or self._last < monday

    async def notices(self, monday: float, now: float) -> list[Notice]:
        """Return the notices of all users with jobs in the last week. The first time there is none, because
        the week of a new cluster is not over.
        """
        if self._last is None:
            return []
        since = monday - WEEK_S
        return [
            weekly_notice(user, await self._week_of(since, monday, user.name), now)
            for user in await self._week_of(since, monday, "")
            if user.gpu_s or user.cpu_held_s
        ]

    def sent(self, monday: float) -> NoteRow:
        """Remember that the notices of this Monday are sent, and return the row to write with them."""
        self._last = monday
        return NoteRow(WEEKLY_NOTE, "last", repr(monday))


def weekly_notice(user: UsageSum, jobs: Iterable[UsageSum], now: float) -> Notice:
    """Return the notice of one user. It names the jobs with the most idle GPU-hours."""
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
