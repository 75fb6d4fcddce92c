"""The lists of jobs, nodes and events, with their sort orders and the fields that filters can name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from tui.data.lists.job_listing import JobListing
from tui.data.lists.listing import Listing
from wire.api.jobs import JobView, QueuePlace
from wire.api.nodes import NodeView
from wire.api.service.cluster import EventView
from wire.names import WHOLE_GPU, JobState, priority_name

_LIFE: Final = {
    JobState.RUNNING: 0,
    JobState.SCHEDULED: 1,
    JobState.PREEMPTED: 2,
    JobState.QUEUED: 3,
}


def job_listing(
    order: Callable[[JobView], tuple[float, ...]] = lambda job: job_order(job, None),
) -> JobListing:
    """Return a new, empty list of jobs. Its default order is: running jobs, then waiting jobs in the order of
    the queue, then ended jobs, newest first.
    """
    return JobListing(
        key=lambda job: job.id,
        sorts={
            "order": order,
            "id": lambda job: job.id,
            "name": lambda job: job.name.casefold(),
            "user": lambda job: job.user.casefold(),
            "gpus": lambda job: -job.gpus,
            "state": lambda job: (_LIFE.get(job.state, 4), job.state.value),
            "why": job_location,
            "time": _job_time,
            "priority": lambda job: -job.priority,
            "cpus": lambda job: -job.cpu_milli,
            "memory": lambda job: -job.memory_mib,
            "queue": lambda job: job.queue.casefold(),
            "project": lambda job: job.project.casefold(),
            "submitted": lambda job: -job.submitted_at,
        },
        fields={
            "id": lambda job: job.label,
            "name": lambda job: job.name,
            "user": lambda job: job.user,
            "state": lambda job: job.state.value.lower(),
            "why": lambda job: f"{job.reason.value} {job.detail}",
            "node": lambda job: " ".join(held.node for held in job.held),
            "gpus": lambda job: job.gpus,
            "queue": lambda job: job.queue,
            "project": lambda job: job.project,
            "priority": lambda job: float(job.priority),
            "class": lambda job: priority_name(job.priority).lower(),
            "waits": lambda job: "long" if job.waits_long else "",
        },
        haystack=lambda job: " ".join(
            (job.label, job.name, job.user, job.state.value, job_location(job), job.queue, job.project)
        ),
    )


def job_order(job: JobView, place: QueuePlace | None) -> tuple[float, ...]:
    """Return the sort key of a job. Waiting jobs without a place, such as held jobs, come after jobs with a
    place, by priority and submit time.
    """
    if job.state.terminal:
        return (9, -(job.ended_at or 0))
    if job.state is JobState.QUEUED:
        return (3, math.inf if place is None else place.place, -job.priority, job.submitted_at)
    return (_LIFE[job.state], -(job.started_at or job.submitted_at))


def _job_time(job: JobView) -> tuple[float, float]:
    """Return the sort key of a job for sorting by time: running jobs come first, then waiting jobs, then
    ended jobs. In each group, the job that has run or waited for the longest time comes first.
    """
    if job.state.terminal:
        return (2, (job.started_at or job.submitted_at) - (job.ended_at or 0))
    return (0, job.started_at) if job.started_at is not None else (1, job.submitted_at)


def job_location(job: JobView) -> str:
    """Return a short text about a job: its first node and the number of further nodes, such as gpu01 +3. For
    a failed job, or a job without nodes, return its exit code, otherwise its signal, otherwise the reason why
    it waits or has ended.
    """
    if job.held and job.state is not JobState.FAILED:
        more = f" +{len(job.held) - 1}" if len(job.held) > 1 else ""
        return f"{job.held[0].node}{more}"
    if job.exit_code:
        return f"exit {job.exit_code}"
    if job.signal:
        return f"signal {job.signal}"
    return job.reason.value.replace("_", " ")


def node_listing() -> Listing[str, NodeView]:
    """Return a new, empty list of nodes, sorted by name so that node-2 comes before node-10."""
    return Listing(
        key=lambda node: node.name,
        sorts={
            "name": lambda node: natural_sort_key(node.name),
            "state": lambda node: node.state.value,
            "gpus": lambda node: -len(node.gpus),
            "free": lambda node: -sum(gpu.free_milli for gpu in node.gpus),
            "cpus": lambda node: -node.cpu_free_milli,
            "memory": lambda node: -node.memory_free_mib,
            "jobs": lambda node: -len(node.jobs),
        },
        fields={
            "name": lambda node: node.name,
            "state": lambda node: node.state_word,
            "model": lambda node: " ".join(sorted({gpu.model for gpu in node.gpus})),
            "health": lambda node: " ".join(sorted({gpu.health.value for gpu in node.gpus})),
            "label": lambda node: " ".join(f"{name}={value}" for name, value in node.labels.items()),
            "free": lambda node: sum(gpu.free_milli for gpu in node.gpus) / WHOLE_GPU,
            "jobs": lambda node: float(len(node.jobs)),
        },
        haystack=lambda node: " ".join(
            (node.name, node.state_word, node.why, *(g.model for g in node.gpus[:1]))
        ),
    )


def natural_sort_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that compares numbers in names by value, so that node-2 comes before node-10."""
    parts = re.findall(r"\d+|\D", name.casefold())
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def event_listing() -> Listing[int, EventView]:
    """Return a new, empty list of events, in the order of the journal."""
    return Listing(
        key=lambda event: event.seq,
        sorts={"seq": lambda event: event.seq},
        fields={
            "kind": lambda event: event.kind,
            "job": lambda event: "" if event.job is None else str(event.job),
            "node": lambda event: event.node,
        },
        haystack=lambda event: f"{event.seq} {event.kind} {event.text}",
    )
