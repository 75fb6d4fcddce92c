"""Edits of a waiting or running job: changes to its spec after its submit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.core.input_handlers.submission_checks import labels_added_by_queue
from controller.core.model.decision.decision import Refusal
from controller.core.model.job import NEVER, Job
from wire.codec import Malformed, decode, encode
from wire.job.spec import JobSpec, spec_problems
from wire.names import JobState
from wire.text import duration

FIXED = {
    "array": "The indices of an array are fixed: cancel it and submit another.",
    "hold": "Use 'corral job hold' and 'corral job release'.",
    "by_default": "The controller sets it: change cpu_milli or memory_mib.",
    "lease_s": "The controller sets it: change on_node_lost.",
}
"""Fields that cannot be edited, each with advice on another way to reach the goal."""
ANY_TIME = frozenset({"comment", "name", "priority", "deadline_at", "restart"})
"""Fields that can be edited even after the placement. All other fields are then fixed (except for a longer
time limit), because the agents have already received their values.
"""


def apply_changes(job: Job, changes: Mapping[str, Any]) -> JobSpec | Refusal:
    """Return the job's spec with the changes, or a refusal if a change is not allowed. The value None resets
    a field to its default.
    """
    fields = encode(job.spec)
    if changes.get("queue", job.spec.queue) != job.spec.queue:
        # Drop the node labels that the former queue added to the job's selector.
        fields["selector"] = {k: v for k, v in job.spec.selector.items() if k not in job.from_queue}
    for name, value in changes.items():
        if name in FIXED:
            return Refusal("invalid", f"{name} cannot be changed", name, FIXED[name])
        if value is None:
            fields.pop(name, None)
        else:
            fields[name] = value
    try:
        spec = decode(JobSpec, fields)
    except Malformed as malformed:
        return Refusal("invalid", malformed.message, malformed.where)
    wrong = spec_problems(spec)
    if wrong:
        where, message = wrong[0]
        return Refusal("invalid", message, where)
    changed = changed_fields(job.spec, spec)
    if job.unended and "time_limit_s" in changes and spec.time_limit_s != job.limit:
        refused = _limit_refusal(job, spec)
        if refused is not None:
            return refused
    late = [name for name in changed if name not in ANY_TIME and name != "time_limit_s"]
    if late and job.state is not JobState.QUEUED:
        message = f"{late[0]} cannot be changed now: job {job.label} is {job.state.value}"
        can = ", ".join(sorted(ANY_TIME))
        hint = f"After the placement, only these can be changed: {can}; and a longer time_limit_s."
        return Refusal("conflict", message, late[0], hint)
    return spec


def _limit_refusal(job: Job, spec: JobSpec) -> Refusal | None:
    """Return a refusal if a job that has been placed cannot get the time limit of `spec`; otherwise None."""
    if job.limit == NEVER:
        message = f"job {job.label} runs without a time limit"
    elif job.state is not JobState.RUNNING:
        message = f"job {job.label} is {job.state.value}: extend its time limit when it runs"
    elif job.stopping is not None:
        message = f"job {job.label} is being stopped already"
    elif spec.time_limit_s is None or spec.time_limit_s <= job.limit:
        message = f"the time limit of a running job can only become longer; it is {duration(job.limit)}"
    else:
        return None
    return Refusal("conflict", message, "time_limit_s")


def labels_of_queue(
    job: Job, changes: Mapping[str, Any], edited: JobSpec, admitted: JobSpec
) -> tuple[str, ...]:
    """Return the names of the node labels that the queue has added to an edited job's node selector. Labels
    from the user are left out. The names are stored with the job. When the job changes its queue, the labels
    with these names are removed.

    `edited` is the spec with `changes`. `admitted` is the same spec after the queue has added its labels.
    """
    kept = () if "selector" in changes or edited.queue != job.spec.queue else job.from_queue
    return *kept, *labels_added_by_queue(edited, admitted)


def changed_fields(old: JobSpec, new: JobSpec) -> tuple[str, ...]:
    before, after = encode(old), encode(new)
    return tuple(name for name in before if before[name] != after[name])
