"""Counters since the start of the controller: jobs, scheduling cycles, commits, requests, plugins."""

from __future__ import annotations

from collections.abc import Iterator

from controller.api.metrics import families as m
from controller.api.metrics.prometheus_text import histogram_lines
from controller.core.engine import Engine
from controller.core.pipeline.hooks import Sample
from controller.daemon.daemon import Daemon
from controller.watchers.counters import ControllerCounters, Histogram
from controller.watchers.self_watch import SelfWatch


def activity_metrics(counters: ControllerCounters, seq: int, started_at: float) -> Iterator[Sample]:
    """Yield the counts of job starts, job ends, preemptions (also their GPU-hours), failures, journal entries
    and requests, and the times of the controller's start and of the latest scheduling cycle.
    """
    jobs = counters.jobs
    yield from (m.JOBS_ENDED(count, *key) for key, count in sorted(jobs.ended.items()))
    yield from (m.JOB_STARTS(count, queue) for queue, count in sorted(jobs.starts.items()))
    yield from (m.PREEMPTIONS(count, queue) for queue, count in sorted(jobs.preemptions.items()))
    yield from (m.PREEMPTED_HOURS(hours, queue) for queue, hours in sorted(jobs.preempted_gpu_hours.items()))
    yield from (m.FAILED_ATTEMPTS(count, name) for name, count in sorted(counters.failures.items()))
    yield m.START_TIME(started_at)
    yield m.LAST_PASS(counters.last_pass.at if counters.last_pass is not None else 0)
    yield m.JOURNAL_SEQ(seq)
    yield m.JOURNAL_ENTRIES(counters.entries)
    for (method, path, status), count in sorted(counters.requests.items()):
        yield m.REQUESTS(count, method, path, str(status))


def watch_metrics(counters: ControllerCounters, watch: SelfWatch) -> Iterator[Sample]:
    """Yield how the controller does its own work: overdue cycles, the latest and the present commit, and the
    lag of the event loop.
    """
    yield m.CYCLE_OVERDUE(round(watch.cycle_overdue_s, 3))
    yield m.LAST_COMMIT(counters.last_commit_at)
    yield m.COMMIT_AGE(round(watch.commit_age_s, 3))
    yield m.LOOP_LAG(round(watch.lag_s, 6))


def histograms(counters: ControllerCounters) -> Iterator[str]:
    """Yield the lines of all histograms."""
    waits: dict[tuple[str, ...], Histogram] = {
        (queue,): histogram for queue, histogram in counters.jobs.waits.items()
    }
    yield from histogram_lines(m.WAIT_SECONDS, waits)
    yield from histogram_lines(m.CYCLE_SECONDS, {(): counters.cycles})
    yield from histogram_lines(m.COMMIT_SECONDS, {(): counters.commits})


def plugin_metrics(engine: Engine, now: float) -> Iterator[Sample]:
    """Yield the metrics of plugins, and the number of scheduling cycles in which each plugin failed."""
    for plugin in engine.pipeline.metrics:
        yield from plugin.collect(engine.state, now)
    for (kind, name), times in sorted(engine.pipeline.breaker.times().items()):
        yield m.PLUGIN_FAILURES(times, kind, name)


def notification_metrics(daemon: Daemon) -> Iterator[Sample]:
    """Yield for each sink of notifications the numbers of messages that wait, that were given up and that
    were delivered, and the number of failed tries. Also yield the number of dropped notices.
    """
    notifier = daemon.notifier
    for sink in daemon.config.notify.sinks:
        waiting, dead = notifier.outbox.count(sink)
        yield m.NOTIFY_WAITING(waiting, sink)
        yield m.NOTIFY_DEAD(dead, sink)
        yield m.NOTIFY_DELIVERED(notifier.delivery.delivered[sink], sink)
        yield m.NOTIFY_FAILED(notifier.delivery.failed[sink], sink)
    yield m.NOTIFY_DROPPED(notifier.dropped)
