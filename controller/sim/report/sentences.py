"""Writes the summary of a report in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from controller.sim.report.charts.axes import moment_text
from controller.sim.report.groups import JobGroup, by_size, percentiles
from controller.sim.report.number_formats import count, number, percent, span_text
from controller.sim.report.run import ReportRun, TimeSpan
from controller.sim.report.series import queued
from wire.names import JobState
from wire.text import duration

ENOUGH = 20
"""The summary mentions a class of job sizes only if at least this many of its jobs have started."""


def cluster_text(run: ReportRun) -> str:
    """Return the size of the cluster as text, such as "16 nodes with 128 GPUs"."""
    return f"{count(len(run.cluster.nodes), 'node')} with {count(int(run.capacity), run.unit)}"


def about_one(run: ReportRun, span: TimeSpan) -> Iterator[str]:
    users = len({record.user for record in run.records})
    were = "was" if len(run.records) == 1 else "were"
    held, units = number(run.utilisation * run.capacity), count(int(run.capacity), run.unit)
    yield (
        f"{count(len(run.records), 'job')} of {count(users, 'user')} {were} simulated on {cluster_text(run)} "
        f"over {duration(run.end_s - run.begin_s)}."
    )
    yield from _left_out(run)
    yield f"On average jobs held {held} of the {units}: {percent(run.utilisation)}."
    yield from _waits(run)
    yield from _queue(run, span)
    yield from _ends(run)


def _left_out(run: ReportRun) -> Iterator[str]:
    if run.left_out:
        whole = sum(run.left_out.values())
        why = ", ".join(f"{number(jobs)} {why}" for why, jobs in run.left_out.items())
        yield f"{count(whole, 'job')} of the log {'was' if whole == 1 else 'were'} not simulated: {why}."


def _waits(run: ReportRun) -> Iterator[str]:
    waits = percentiles(record.wait_s for record in run.started)
    if not waits.count:
        return
    if waits.most < 1:
        yield "No job waited."
        return
    longest = max(run.started, key=lambda record: record.wait_s)
    yield (
        f"Half of the jobs waited {_at_most(waits.median)}, and one in twenty longer than "
        f"{span_text(waits.quantiles[-1])}; the longest wait was {span_text(waits.most)} "
        f"(job {run.number(longest)} of {longest.user})."
    )
    sizes = [group for group in by_size(run) if group.waits.count >= ENOUGH]
    if len(sizes) > 1:
        slow, quick = _extremes(sizes)
        yield (
            f"Jobs of {slow.name} waited longest, {span_text(slow.waits.mean)} on average, and jobs of "
            f"{quick.name} waited shortest, {span_text(quick.waits.mean)}."
        )


def _at_most(seconds: float) -> str:
    return f"{span_text(seconds)} at most" if seconds >= 1 else "not at all"


def _extremes(groups: Sequence[JobGroup]) -> tuple[JobGroup, JobGroup]:
    return max(groups, key=lambda each: each.waits.mean), min(groups, key=lambda each: each.waits.mean)


def _queue(run: ReportRun, span: TimeSpan) -> Iterator[str]:
    most, moment = queued(run).peak()
    if most > 1:
        when = moment_text(moment - span.begin_s, span)
        yield f"The most jobs waited {when} after the begin: {number(most)}."


def _ends(run: ReportRun) -> Iterator[str]:
    states = Counter(record.state for record in run.records)
    if states[JobState.FAILED]:
        yield f"{percent(states[JobState.FAILED] / len(run.records))} of the jobs failed."
    never = len(run.records) - len(run.started)
    if never:
        yield f"{count(never, 'job')} never started."
    requeues = sum(record.requeues for record in run.records)
    if requeues:
        lost = sum(record.lost_gpu_s for record in run.records) / 3_600
        yield (
            f"{count(requeues, 'attempt')} ended early and the jobs were queued again, which lost "
            f"{number(lost)} GPU-hours. The charts show only the last attempt of each job."
        )


def about_several(runs: Sequence[ReportRun]) -> Iterator[str]:
    waits = {run.label: percentiles(record.wait_s for record in run.started) for run in runs}
    yield f"{len(runs)} runs: {', '.join(run.label for run in runs)}."
    best = min(waits, key=lambda label: waits[label].mean)
    worst = max(waits, key=lambda label: waits[label].mean)
    if waits[worst].mean <= 0 or best == worst:
        yield "The mean wait is the same in all runs."
    else:
        less = 1 - waits[best].mean / waits[worst].mean
        yield (
            f"Jobs waited {span_text(waits[best].mean)} on average with {best} and "
            f"{span_text(waits[worst].mean)} with {worst}: {percent(less)} less with {best}."
        )
    median = min(waits, key=lambda label: waits[label].median)
    if median != best and waits[median].median < waits[best].median:
        half = _at_most(waits[median].median)
        yield f"The median wait is shortest with {median}: half of the jobs waited {half}."
    used = {run.label: run.utilisation for run in runs}
    fullest, emptiest = max(used, key=used.__getitem__), min(used, key=used.__getitem__)
    if used[fullest] - used[emptiest] < 0.01:
        yield f"Jobs held {percent(used[fullest])} of the {runs[0].unit}s on average in each run."
    else:
        yield (
            f"On average jobs held {percent(used[fullest])} of the {runs[0].unit}s with {fullest} and "
            f"{percent(used[emptiest])} with {emptiest}."
        )
    for run in runs:
        never = len(run.records) - len(run.started)
        if never:
            yield f"{count(never, 'job')} never started with {run.label}."
    yield from _left_out(runs[0])
