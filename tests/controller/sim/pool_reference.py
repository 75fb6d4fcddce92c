"""A plain simulator of a pool of processors, compared with the results of the engine.

The simulator follows the published rules, is not optimised for speed, and shares no code with Corral.
"""

from __future__ import annotations

from dataclasses import dataclass

INF = float("inf")


@dataclass(eq=False)
class Job:
    """`start` is where it is planned or was started; `place` is its place in the order of submits."""

    number: int
    submit: float
    run: float
    size: int
    estimate: float
    place: int = 0
    start: float = INF
    started: bool = False

    @property
    def end(self) -> float:
        return self.start + self.run

    @property
    def planned_end(self) -> float:
        return self.start + self.estimate


class Pool:
    """A pool of processors, simulated with one pass for each second, or with a pass after every event,
    arrivals first.
    """

    def __init__(self, jobs: list[Job], processors: int, policy: str) -> None:
        self.jobs = sorted(jobs, key=lambda job: job.submit)
        for place, job in enumerate(self.jobs):
            job.place = place
        self.processors = processors
        self.policy = policy
        self.waiting: list[Job] = []
        self.running: list[Job] = []

    def simulate(self) -> dict[int, float]:
        """The start of every job by its number."""
        coming = list(self.jobs)
        while coming or self.running:
            now = min([job.submit for job in coming[:1]] + [job.end for job in self.running])
            ended = [job for job in self.running if job.end <= now]
            self.running = [job for job in self.running if job.end > now]
            fresh = [job for job in coming if job.submit <= now]
            del coming[: len(fresh)]
            self.waiting += fresh
            self._pass(now, bool(ended), fresh)
        return self._starts()

    def simulate_one_by_one(self) -> dict[int, float]:
        """The same under the rule of SC'15. A job counts as gone when its estimate is over."""
        coming = list(self.jobs)
        while coming or self.running:
            now = min([job.submit for job in coming[:1]] + [job.end for job in self.running])
            if coming and coming[0].submit == now:
                self.waiting.append(coming.pop(0))
            else:
                # `running` is in the order of starts
                self.running.remove(next(job for job in self.running if job.end == now))
            self._pass(now, False, [])
        return self._starts()

    def _pass(self, now: float, ended: bool, fresh: list[Job]) -> None:
        getattr(self, "_" + self.policy.replace("-", "_"))(now, ended, fresh)

    def _starts(self) -> dict[int, float]:
        assert not self.waiting
        return {job.number: job.start for job in self.jobs}

    def _free(self, when: float) -> int:
        """Return the processors that are free at that time, by the present estimates."""
        return self.processors - sum(job.size for job in self.running if job.planned_end > when)

    def _start(self, job: Job, now: float) -> None:
        job.start, job.started = now, True
        self.waiting.remove(job)
        self.running.append(job)

    def _in_order(self, now: float, order: list[Job]) -> None:
        for job in order:
            if job.size > self._free(now):
                return
            self._start(job, now)

    def _fcfs(self, now: float, ended: bool, fresh: list[Job]) -> None:
        self._in_order(now, list(self.waiting))

    def _sjf(self, now: float, ended: bool, fresh: list[Job]) -> None:
        self._in_order(now, sorted(self.waiting, key=lambda job: (job.estimate, job.place)))

    def _easy(self, now: float, ended: bool, fresh: list[Job], shortest: bool = False) -> None:
        self._in_order(now, list(self.waiting))
        if not self.waiting:
            return
        head, *rest = self.waiting
        ends = sorted(job.planned_end for job in self.running)
        shadow = next(end for end in ends if self._free(end) >= head.size)
        spare = self._free(shadow) - head.size
        for job in sorted(rest, key=lambda job: (job.estimate if shortest else 0, job.place)):
            if job.size > self._free(now):
                continue
            if now + job.estimate <= shadow:
                self._start(job, now)
            elif job.size <= spare:
                spare -= job.size
                self._start(job, now)

    def _easy_sjbf(self, now: float, ended: bool, fresh: list[Job]) -> None:
        self._easy(now, ended, fresh, shortest=True)

    def _conservative(self, now: float, ended: bool, fresh: list[Job]) -> None:
        if ended:
            for job in [job for job in self.waiting if now < job.start < INF]:
                before = job.start
                self._promise(job, now)
                assert job.start <= before
        for job in fresh:
            self._promise(job, now)
        for job in [job for job in self.waiting if job.start == now]:
            self._start(job, now)

    def _promise(self, job: Job, now: float) -> None:
        """The earliest start at which the job fits beside all running jobs and all other reservations."""
        others = self.running + [other for other in self.waiting if other is not job and other.start < INF]
        starts = sorted({now} | {other.planned_end for other in others if other.planned_end > now})
        for start in starts:
            moments = [start] + [
                other.start for other in others if start < other.start < start + job.estimate
            ]
            if all(self._taken(others, moment) + job.size <= self.processors for moment in moments):
                job.start = start
                return

    @staticmethod
    def _taken(others: list[Job], when: float) -> int:
        return sum(other.size for other in others if other.start <= when < other.planned_end)
