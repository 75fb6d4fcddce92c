"""Changes to a job after its submit: read against what it asked for, and refused where it is too late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.core.admission import added_labels
from controller.core.inputs import Refusal
from controller.core.jobs import Job
from wire.codec import Malformed, decode, encode
from wire.spec import JobSpec, problems
from wire.words import JobState

FIXED = {
    "array": "An array stays what it was submitted as: cancel it and submit another.",
    "hold": "Use 'corral job hold' and 'corral job release'.",
    "lease_s": "The controller works it out: change on_node_lost.",
}
"""What nobody changes, and what to do instead."""
ANY_TIME = frozenset({"name", "priority", "deadline_at", "restart"})
"""What may still change when the job has its place; all else was handed to the nodes with it."""


def edited(job: Job, changes: Mapping[str, Any]) -> JobSpec | Refusal:
    """The spec with the changes in it; null brings a field back to what it is when left out."""
    told = encode(job.spec)
    if changes.get("queue", job.spec.queue) != job.spec.queue:  # the labels of the old one stay behind
        told["selector"] = {k: v for k, v in job.spec.selector.items() if k not in job.from_queue}
    for name, value in changes.items():
        if name in FIXED:
            return Refusal("invalid", f"{name} cannot be changed", name, FIXED[name])
        if value is None:
            told.pop(name, None)
        else:
            told[name] = value
    try:
        spec = decode(JobSpec, told)
    except Malformed as malformed:
        return Refusal("invalid", malformed.message, malformed.where)
    wrong = problems(spec)
    if wrong:
        where, message = wrong[0]
        return Refusal("invalid", message, where)
    late = [name for name in changed(job.spec, spec) if name not in ANY_TIME]
    if late and job.state is not JobState.QUEUED:
        message = f"{late[0]} cannot change any more: job {job.label} is {job.state.value}"
        can = ", ".join(sorted(ANY_TIME))
        return Refusal("conflict", message, late[0], f"Of a job that has its place these can: {can}.")
    return spec


def labels_of_queue(
    job: Job, changes: Mapping[str, Any], asked: JobSpec, admitted: JobSpec
) -> tuple[str, ...]:
    """Which labels of its selector the job has from its queue, once changed."""
    kept = () if "selector" in changes or asked.queue != job.spec.queue else job.from_queue
    return *kept, *added_labels(asked, admitted)


def changed(old: JobSpec, new: JobSpec) -> tuple[str, ...]:
    """The fields that differ."""
    before, after = encode(old), encode(new)
    return tuple(name for name in before if before[name] != after[name])
