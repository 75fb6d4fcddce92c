"""Reads the reports of agents about attempts, and merges the reports of a gang into one input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from controller.core.model.events.attempts import CheckpointSaved, Exit, StepsRecorded
from controller.core.model.inputs.agent_inputs import AgentReported, MembersReported
from controller.core.model.inputs.input import Input
from controller.core.model.job import Job
from wire.agent.reports import AttemptStatus, Checkpoint, GpuUse, Usage
from wire.job.steps import MAX_STEPS

A = TypeVar("A")
_NO_USAGE = Usage()

ExitFields = tuple[int | None, int | None, str, float, int, Checkpoint | None, GpuUse | None, int, str]
"""The values of the fields of `Exit`, in their order. The event `AttemptExited` has the same fields after
`node`.
"""


def only_starts_or_ends(status: AttemptStatus) -> bool:
    """Return True if an agent's report shows only a start or an end: the member does not wait at the start
    barrier of its gang, and the report has no steps and no checkpoint of a running attempt.
    """
    waits = status.ready and status.started_at is None
    return not waits and not status.steps and (status.checkpoint is None or status.ended_at is not None)


def checkpoint_saved(job: Job, node: str, status: AttemptStatus, now: float) -> CheckpointSaved | None:
    """Return the event for a saved checkpoint if the report has a newer checkpoint than the job; otherwise
    None.
    """
    if status.checkpoint is None or status.ended_at is not None:
        return None
    # Use at most the controller's present time as the time of the checkpoint, because the clock of the host
    # may be ahead.
    found = replace(status.checkpoint, at=min(status.checkpoint.at, now))
    if job.checkpoint is not None and job.checkpoint.at >= found.at:
        return None
    return CheckpointSaved(job.id, now, job.attempt, node, found)


def steps_recorded(job: Job, node: str, status: AttemptStatus, now: float) -> StepsRecorded | None:
    """Return the event for the job steps in an agent's report of the end of an attempt; None if the report
    has no steps.
    """
    if not status.steps:
        return None
    known = {step.number: step for step in status.steps[:MAX_STEPS]}
    # Use at most the controller's present time for all times, because the clock of the host may be ahead.
    steps = tuple(
        replace(step, started_at=min(step.started_at, now), ended_at=min(step.ended_at or now, now))
        for step in known.values()
    )
    return StepsRecorded(job.id, now, job.attempt, node, steps)


def exits_of(reports: Mapping[str, AttemptStatus]) -> dict[str, Exit]:
    """Return how each gang member ended, by node name. `reports` contains the report of each member's end."""
    exits: dict[str, Exit] = {}
    last = how = None
    for node, status in reports.items():
        if how is None or status is not last:
            last, how = status, Exit(*exit_fields(status))
        exits[node] = how
    return exits


def exit_fields(status: AttemptStatus) -> ExitFields:
    """Return the values of the fields of `Exit`, in the order of the fields, from the agent's report of an
    end.
    """
    usage = status.usage or _NO_USAGE
    return (
        status.code,
        status.signal,
        status.why,
        usage.cpu_s,
        usage.max_rss_mib,
        status.checkpoint,
        usage.gpu,
        usage.memory_mib,
        status.failure,
    )


def merge_member_reports(taken: Iterable[tuple[Input, A | None]]) -> Iterator[tuple[Input, A | None]]:
    """Yield the pairs (input, receiver of the reply) of `taken`. Merge reports about members of one attempt
    into one input, because the engine then handles a large gang faster.

    Reports are merged only if they need no reply, and if all inputs between them are such reports too.
    Reports about different attempts may change their order, because they are independent of each other. Two
    reports of one node about the same attempt are never merged, because the second replaces the first.
    """
    pending: dict[tuple[int, int], dict[str, AgentReported]] = {}
    for given, answer in taken:
        if isinstance(given, AgentReported) and answer is None:
            key = given.status.job, given.status.attempt
            if given.node in pending.get(key, ()):
                yield from _hand_over(pending)
            pending.setdefault(key, {})[given.node] = given
        else:
            yield from _hand_over(pending)
            yield given, answer
    yield from _hand_over(pending)


def _hand_over(pending: dict[tuple[int, int], dict[str, AgentReported]]) -> Iterator[tuple[Input, None]]:
    for key, reports in pending.items():
        if len(reports) == 1:
            yield next(iter(reports.values())), None
        else:
            yield MembersReported(*key, {node: report.status for node, report in reports.items()}), None
    pending.clear()
