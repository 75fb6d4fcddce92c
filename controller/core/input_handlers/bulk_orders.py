"""Commands on many jobs at once, such as cancel or hold. Finds the jobs that a selection matches, and makes
the engine input for each job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from controller.core.model.inputs import job_inputs
from controller.core.model.inputs.input import Input, Requester
from controller.core.model.job import NEVER, Job
from controller.core.state.state import State
from wire.api.job_selection import AllJobs, JobRange, JobsOf
from wire.api.jobs import JobsOrder
from wire.names import JobState

MakeInput = Callable[[Job], Input]


def active_jobs(state: State, selection: AllJobs | JobRange | JobsOf) -> list[Job]:
    """Return the jobs that match the selection and have not ended, sorted by id.

    Example: `name:sweep-*` matches the waiting and running jobs whose names begin with sweep-.
    """
    found: list[Job] = []
    for job in state.live():
        match selection:
            case JobRange(low, high):
                chosen = low <= job.id <= high
            case JobsOf():
                chosen = selection.matches(job.user, job.spec.project, job.name)
            case _:
                chosen = True
        if chosen:
            found.append(job)
    return sorted(found, key=lambda job: job.id)


def with_extension(job: Job, changes: Mapping[str, Any], extend_s: float) -> Mapping[str, Any]:
    """Return `changes` with a time limit that is `extend_s` seconds longer than the job's present limit.
    Return only `changes` if `extend_s` is 0 or the job has no time limit.
    """
    if not extend_s or job.limit == NEVER:
        return changes
    return {**changes, "time_limit_s": job.limit + extend_s}


def maker_of(
    order: JobsOrder, by: str, asker: Requester | None = None, known: Mapping[str, JobState] | None = None
) -> MakeInput:
    """Return a function that makes the engine input for one job of the order, such as Cancel.

    `by` is the name of the user that sent the order. `asker` is the same user, with the user's rights.
    `known` contains the final states of jobs that new dependencies name, as in `job_inputs.Edit`.
    """
    if order.action == "set":
        return lambda job: job_inputs.Edit(
            job.id, by, with_extension(job, order.changes, order.extend_s), known or {}, asker
        )
    makers: dict[str, MakeInput] = {
        "cancel": lambda job: job_inputs.Cancel(job.id, by, asker),
        "hold": lambda job: job_inputs.Hold(job.id, by, asker),
        "release": lambda job: job_inputs.Release(job.id, by, asker),
        "requeue": lambda job: job_inputs.Requeue(job.id, by),
        "preempt": lambda job: job_inputs.Preempt(job.id, by, order.stay_held),
    }
    return makers[order.action]
