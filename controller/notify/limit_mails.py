"""Finds when running jobs have used 50, 80 or 90 % of their time limits, for --mail-type=TIME_LIMIT_90."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller.core.model.events.attempts import AttemptStarted, JobEnded, MembersStarted
from controller.core.model.events.event import Event
from controller.core.model.events.queued import JobEdited
from controller.core.model.job import NEVER, Job
from controller.core.model.rows import NoteRow
from controller.core.state.state import State
from controller.notify.messages import Notice
from controller.notify.notices import job_notice
from wire.names import JobState
from wire.text import duration

LIMIT_NOTE = "notify-limit"
"""The `kind` column of the database rows that record the sent mails about time limits."""
PERCENT: Final[Mapping[str, int]] = {"TIME_LIMIT_90": 90, "TIME_LIMIT_80": 80, "TIME_LIMIT_50": 50}


class LimitMails:
    """Finds the jobs that have used 50, 80 or 90 % of their time limit, if they request mail about this
    percentage.

    1. When a job with such a request starts, or gets another time limit, push the time at which it reaches
       its next percentage on a heap.
    2. `due` yields the jobs that have reached a percentage, each with the highest percentage reached. A new
       attempt after a requeue begins with the lowest percentage again.
    3. The caller calls `told` before it asks `due` for the next job. `told` returns a database row that
       records the percentage. The row is written together with the message, and deleted after the end of the
       job. So a restart of the controller repeats no mail and loses none.

    An array without ARRAY_TASKS gets one mail for each percentage, when its first element reaches this
    percentage. Cost: O(log n) for each start, if n jobs with such a request run; nothing for other jobs.
    """

    def __init__(self) -> None:
        self._planned: list[tuple[float, int]] = []
        self._told: dict[int, tuple[int, int]] = {}
        """(attempt, percentage) of the last mail, by job id; for an array that gets one mail as a whole, by
        array id.
        """
        self._ended: dict[int, None] = {}
        self._loaded = False

    def load(self, notes: Iterable[NoteRow]) -> None:
        """Load the record of the sent mails from the database rows, and plan the mails of all running jobs
        again.
        """
        self._told.clear()
        self._ended.clear()
        for note in notes:
            if note.kind == LIMIT_NOTE and note.body is not None:
                attempt, percent = map(int, note.body.split())
                self._told[int(note.name)] = attempt, percent
        self.look_again()

    def look_again(self) -> None:
        """Let the next call of due() plan the mails of all running jobs again. This is needed if a new
        configuration may have switched mail on.
        """
        self._loaded = False

    def observe(self, events: Iterable[Event], state: State) -> list[NoteRow]:
        """Plan the mails of jobs that have started or were edited. Return deletions of the database rows of
        ended jobs.
        """
        for event in events:
            if isinstance(event, AttemptStarted | MembersStarted | JobEdited):
                self._plan(state.jobs[event.job])
            elif isinstance(event, JobEnded) and self._told:
                job = state.jobs[event.job]
                if _key(job) in self._told and not any(
                    _is_live(each, state) for each in _members(job, state)
                ):
                    self._ended[_key(job)] = None
        rows = [NoteRow(LIMIT_NOTE, str(key), None) for key in self._ended]
        for key in self._ended:
            self._told.pop(key, None)
        self._ended.clear()
        return rows

    def due(self, state: State, now: float) -> Iterator[tuple[Job, int]]:
        """Yield (job, percentage) for each job that has reached a percentage of its time limit and requests
        mail about this percentage.
        """
        if not self._loaded:
            self._loaded = True
            self._planned.clear()
            for job in state.live():
                self._plan(job)
            self._ended.update((key, None) for key in self._told if not _any_live(key, state))
        while self._planned and self._planned[0][0] <= now:
            found = state.jobs.get(heapq.heappop(self._planned)[1])
            if found is None:
                continue
            reached = [each for each in self._parts(found) if _at(found, each) <= now]
            if reached:
                yield found, max(reached)
            else:
                self._plan(found)

    def told(self, job: Job, percent: int) -> NoteRow:
        """Record that the mail about a percentage of the time limit is sent, and plan the mail about the next
        percentage. Return the database row to write together with the mail.
        """
        self._told[_key(job)] = job.attempt, percent
        self._plan(job)
        return NoteRow(LIMIT_NOTE, str(_key(job)), f"{job.attempt} {percent}")

    def not_told(self, job: Job) -> None:
        """Plan the mail of the last call of told() for this job again, because its database row could not be
        written.
        """
        self._told.pop(_key(job), None)
        self._plan(job)

    def _plan(self, job: Job) -> None:
        if job.spec.mail_types:
            parts = self._parts(job)
            at = min((_at(job, percent) for percent in parts), default=NEVER)
            if at < NEVER:
                heapq.heappush(self._planned, (at, job.id))

    def _parts(self, job: Job) -> list[int]:
        """Return the percentages of the time limit about which the job requests mail and has got none yet."""
        wanted = [PERCENT[each] for each in job.spec.mail_types if each in PERCENT]
        attempt, told = self._told.get(_key(job), (0, 0))
        whole_array = _key(job) != job.id
        return [each for each in wanted if each > told or (attempt != job.attempt and not whole_array)]


def limit_notice(job: Job, percent: int, now: float) -> Notice:
    """Return the notice that a job has used this percentage of its time limit."""
    left = duration(max(0.0, (job.started_at or now) + job.limit - now))
    return job_notice(
        f"time-limit.{percent}",
        now,
        job,
        f"job {{job}} has used {percent} % of its time limit",
        f"Job {{job}} ({{name}}) has used {percent} % of its time limit of {duration(job.limit)}; {left} are "
        "left.",
        "Ask for more time: corral job set {job} --time TIME",
    )


def _at(job: Job, percent: int) -> float:
    if job.state is not JobState.RUNNING or job.started_at is None or job.limit >= NEVER:
        return NEVER
    return job.started_at + job.limit * percent / 100


def _key(job: Job) -> int:
    return job.id if job.array is None or "ARRAY_TASKS" in job.spec.mail_types else job.array


def _members(job: Job, state: State) -> Iterable[int]:
    """Return the ids of the jobs that share one mail with this job: the elements of its array, the last one
    first, or only this job.
    """
    if job.array is None or "ARRAY_TASKS" in job.spec.mail_types:
        return (job.id,)
    return reversed(state.arrays.get(job.array, {0: job.id}).values())


def _any_live(key: int, state: State) -> bool:
    return any(_is_live(each, state) for each in (key, *state.arrays.get(key, {}).values()))


def _is_live(number: int, state: State) -> bool:
    job = state.jobs.get(number)
    return job is not None and not job.state.terminal
