"""Answers `corral plan`: when and where jobs run in the next hours, and how many GPUs are then free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from controller.core.engine import Engine
from controller.core.forecast.forecast import Forecast, ForecastStart, forecast, with_run_times
from controller.core.model.job import NEVER, Job
from controller.questions.engine_copy.engine_copy import EngineCopy
from controller.questions.engine_copy.forked_processes import Fork
from controller.questions.explanation import ends_expected
from wire.api.forecasts import (
    CERTAIN,
    DRAIN,
    LIKELY,
    LIMIT,
    RESERVATION,
    Plan,
    PlanBlock,
    PlanEntry,
    PlanPoint,
)
from wire.names import WHOLE_GPU, JobState

MOST_ENTRIES = 2_000
"""The greatest number of jobs that a plan lists. Jobs that start later are only counted."""
MOST_POINTS = 500
"""The greatest number of points of the curve of free GPUs over time."""
MOST_PERIODS = 100
"""The greatest number of periods of one recurring reservation that a plan lists."""


def plan(engine_copy: EngineCopy, horizon_s: float) -> Iterator[Plan]:
    """Yield the plan of the next `horizon_s` seconds. If some jobs are expected to end before their time
    limits (`ends_expected`), a second answer also has the likely starts.

    1. In a forked copy of this process, forecast the likely starts, if some jobs are expected to end early.
    2. In this process, forecast the latest starts, assuming that jobs use their whole time limits. Both
       forecasts stop at the end of the `horizon_s` seconds, or at the deadline of the answer.
    3. Merge both forecasts with the running jobs. The start of a waiting job is its latest start (certainty
       "limit"). If the job has no latest start within the `horizon_s` seconds, for example because a job
       without a time limit is in its way, the start is its likely start (certainty "likely").
    4. Compute the free GPUs over time by subtracting the GPUs of all these jobs, and list reservations and
       drains.

    Example: job 3 holds the only node. It reaches its time limit in 2 h, but its predicted end is in 30 min.
    Job 4 waits for the node. The entry of job 4 has a start in 2 h (certainty "limit") and a likely start in
    30 min.
    """
    engine, now = engine_copy.engine, engine_copy.now
    engine.state.estimates = engine.state.estimates.read_only()
    until = now + horizon_s
    likely = Fork(lambda: _starts(engine_copy, until, predicted=True)) if ends_expected(engine) else None
    # Describe jobs and nodes before the forecast, because the forecast changes this copy of the engine.
    draft = _Draft.of(engine_copy, until)
    latest = _starts(engine_copy, until, predicted=False)
    yield draft.plan(latest, None, complete=likely is None)
    if likely is not None:
        found = likely.result(engine_copy.deadline.later(engine_copy.spare_s / 2))
        yield draft.plan(latest, found, complete=found is not None)


def _starts(engine_copy: EngineCopy, until: float, *, predicted: bool) -> Forecast:
    def going(moment: float, _starts: Container[int]) -> bool:
        return engine_copy.in_time and moment < until

    return forecast(with_run_times(engine_copy.engine, predicted=predicted), engine_copy.now, going=going)


@dataclass(frozen=True, slots=True)
class _Draft:
    """The data of a plan that are known before the forecasts: running and waiting jobs, reservations, drains
    and GPUs."""

    now: float
    until: float
    as_of: int
    running: tuple[tuple[PlanEntry, float], ...]
    """For each running job: its entry, and its longest run time in seconds from its start."""
    waiting: tuple[tuple[PlanEntry, float, float | None], ...]
    """For each waiting job: its entry without a start, its longest run time, and its predicted run time (None
    without a prediction), both in seconds.
    """
    blocks: tuple[PlanBlock, ...]
    gpus: int

    @classmethod
    def of(cls, engine_copy: EngineCopy, until: float) -> _Draft:
        engine, now = engine_copy.engine, engine_copy.now
        live = sorted(engine.state.live(), key=lambda job: job.id)
        return cls(
            now,
            until,
            engine_copy.seq,
            tuple((_running_entry(job, now), job.span) for job in live if job.unended),
            tuple(
                (_entry(job), job.span, engine.predicted(job))
                for job in live
                if job.state is JobState.QUEUED and not job.held
            ),
            tuple(_blocks(engine, now, until)),
            sum(len(node.facts.gpus) for node in engine.state.nodes if node.up),
        )

    def _running(self, latest: Forecast) -> Iterator[PlanEntry]:
        """Yield the running jobs. If the forecast preempts a job, or ends the job for a drain, its entry ends
        at that time, and a second entry shows its next start.
        """
        for entry, span_s in self.running:
            yield replace(entry, ends_at=latest.ends.get(entry.job, entry.ends_at))
            again = latest.starts.get(entry.job)
            if again is not None and again.at < self.until:
                yield _started(entry, again, again.at + span_s, LIMIT)

    def _waiting(self, latest: Forecast, likely: Forecast | None) -> Iterator[PlanEntry]:
        for entry, span_s, predicted_s in self.waiting:
            last, soon = latest.starts.get(entry.job), likely.starts.get(entry.job) if likely else None
            if last is not None and last.at < self.until:
                start, ends_at, certainty = last, latest.ends.get(entry.job, last.at + span_s), LIMIT
            elif soon is not None and soon.at < self.until:
                start, ends_at, certainty = soon, soon.at + (predicted_s or span_s), LIKELY
            else:
                continue
            yield replace(
                _started(entry, start, ends_at, certainty), likely_at=soon.at if soon is not None else None
            )

    def plan(self, latest: Forecast, likely: Forecast | None, *, complete: bool) -> Plan:
        found = [*self._running(latest), *self._waiting(latest, likely)]
        found.sort(key=lambda each: (each.starts_at, each.job))
        known_until = latest.known_until
        return Plan(
            self.now,
            self.until - self.now,
            tuple(found[:MOST_ENTRIES]),
            self.blocks,
            _free_gpus(found, self.gpus, self.now, self.until),
            self.gpus,
            len(self.waiting),
            len({entry.job for entry, *_ in self.waiting} - {each.job for each in found}),
            max(0, len(found) - MOST_ENTRIES),
            complete and known_until >= self.until,
            known_until if known_until < self.until else None,
            self.as_of,
        )


def _entry(job: Job) -> PlanEntry:
    return PlanEntry(
        job.id, job.label, job.name, job.user, job.spec.project, job.spec.queue, float(job.spec.gpus)
    )


def _running_entry(job: Job, now: float) -> PlanEntry:
    end, planned = job.latest_end, job.expected_end
    likely_end = planned if planned < end else None
    if job.predicted_s is not None and job.started_at is not None:
        likely_end = max(now, job.started_at + job.predicted_s)
    milli = sum(gpu.milli for member in job.running for gpu in member.allocation.gpus)
    return replace(
        _entry(job),
        gpus=milli / WHOLE_GPU,
        nodes=tuple(member.allocation.node for member in job.running),
        starts_at=job.started_at or job.placed_at or now,
        ends_at=max(now, end) if end < NEVER else None,
        certainty=CERTAIN,
        likely_end_at=likely_end,
    )


def _started(entry: PlanEntry, start: ForecastStart, ends_at: float, certainty: str) -> PlanEntry:
    """Return the entry of a job with a start that a forecast has found."""
    return replace(
        entry,
        nodes=start.nodes,
        starts_at=start.at,
        ends_at=ends_at if ends_at < NEVER else None,
        certainty=certainty,
        likely_end_at=None,
    )


def _blocks(engine: Engine, now: float, until: float) -> Iterator[PlanBlock]:
    """Yield the drained nodes, and the periods of reservations and timed drains before `until`."""
    for node in engine.state.nodes.rows:
        if node.drained:
            yield PlanBlock(DRAIN, node.name, (node.name,), now, None, node.why)
    for each in engine.state.reservations:
        kind, name = (DRAIN, each.nodes[0]) if each.drain else (RESERVATION, each.spec.name)
        begin, end = each.starts_at, each.ends_at
        for _ in range(MOST_PERIODS):
            if begin >= until:
                break
            if end > now:
                yield PlanBlock(kind, name, each.nodes, begin, None if each.drain else end, each.spec.why)
            if each.spec.every_s is None:
                break
            begin, end = begin + each.spec.every_s, end + each.spec.every_s


def _free_gpus(entries: list[PlanEntry], gpus: int, now: float, until: float) -> tuple[PlanPoint, ...]:
    """Return the number of GPUs that no job of the plan holds, as a curve of steps. Each value is valid until
    the next point. If there are more than MOST_POINTS steps, each point has the mean of several steps."""
    changes: defaultdict[float, float] = defaultdict(float)
    for each in entries:
        changes[max(now, each.starts_at)] -= each.gpus
        if each.ends_at is not None:
            changes[max(now, each.ends_at)] += each.gpus
    changes[now] += gpus
    steps, free = [], 0.0
    for at in sorted(changes):
        free += changes[at]
        if at < until:
            steps.append((at, round(free, 3)))
    if len(steps) <= MOST_POINTS:
        return tuple(PlanPoint(*step) for step in steps)
    width = (until - now) / MOST_POINTS
    ends = [at for at, _ in steps[1:]] + [until]
    sums = [0.0] * MOST_POINTS
    for (begin, value), end in zip(steps, ends, strict=True):
        first, last = int((begin - now) / width), min(MOST_POINTS - 1, int((end - now) / width))
        for place in range(first, last + 1):
            left, right = now + place * width, now + (place + 1) * width
            sums[place] += value * max(0.0, min(end, right) - max(begin, left))
    return tuple(PlanPoint(now + place * width, round(each / width, 3)) for place, each in enumerate(sums))
