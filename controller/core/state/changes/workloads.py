"""Applies events about workloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.core.model.events.workloads import WorkloadRetried, WorkloadSubmitted
from controller.core.state.state import State


def _workload_submitted(state: State, event: WorkloadSubmitted) -> None:
    state.workloads.submitted(event)


def _workload_retried(state: State, event: WorkloadRetried) -> None:
    workload = state.workloads.by_id[event.workload]
    for number in event.replaced:
        job = state.jobs[number]
        task = workload.tasks[job.task]
        task.total -= 1
        task.count_end(job.state, -1)
    workload.replaced += event.replaced
    workload.retries += 1


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    WorkloadSubmitted: _workload_submitted,
    WorkloadRetried: _workload_retried,
}
