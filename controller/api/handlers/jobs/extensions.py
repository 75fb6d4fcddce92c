"""Checks whether a longer time limit of a running job would delay the promised start of another job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.api.server.request import Call
from controller.core.input_handlers.bulk_orders import with_extension
from controller.core.model.decision.decision import Refusal
from controller.core.model.job import NEVER, Job
from controller.questions.engine_copy.engine_copy import QuestionRefused
from controller.questions.extension import extension_delay
from wire.names import JobState

LIMIT = "time_limit_s"


@dataclass(frozen=True, slots=True)
class CheckedChanges:
    """The new values of fields in a job's spec. `delays_nobody` is True if the values include a longer time
    limit and a forecast shows that the longer limit delays no promised start of another job."""

    changes: Mapping[str, Any]
    delays_nobody: bool = False


async def check_extension(
    call: Call, job: Job, changes: Mapping[str, Any], extend_s: float
) -> CheckedChanges | Refusal:
    """Return the changes of a job, with the extension `extend_s` (seconds) converted to a time limit. Return
    a refusal if the job has no time limit to extend. If users may extend their own jobs, a forecast checks
    the longer limit of a running job, unless the caller is an operator: return a refusal if the limit would
    delay a promised start or a reservation, or if the forecast takes too long.
    """
    if extend_s and job.limit == NEVER:
        return Refusal("conflict", f"job {job.label} has no time limit to extend", LIMIT)
    changes = with_extension(job, changes, extend_s)
    limit_s = changes.get(LIMIT)
    pipeline = call.daemon.engine.pipeline
    if (
        not isinstance(limit_s, int | float)
        or not job.limit < limit_s < NEVER
        or job.state is not JobState.RUNNING
        or not pipeline.limits.owners_may_extend
        or call.asker.operator
    ):
        return CheckedChanges(changes)
    try:
        found = await call.daemon.questions.ask(
            call.caller.user, extension_delay, job.id, float(limit_s), now=call.daemon.now
        )
    except QuestionRefused as refused:
        return refused.refusal
    if found is None:
        return Refusal("busy", "there was not enough time to check the plan", LIMIT, "Try again.")
    if found:
        hint = "Request a shorter extension, or contact an operator, who may extend the job in any case."
        return Refusal(
            "conflict", f"the longer time limit delays other jobs or reservations: {found}", LIMIT, hint
        )
    return CheckedChanges(changes, delays_nobody=True)
