"""Finds the reason why a job is in its state, such as why it waits. A search that may take long runs in
another process, so that the search does not delay submits.
"""

from __future__ import annotations

from dataclasses import replace

from controller.api.server.request import Call
from controller.core.explain.why_pending import reason_of
from controller.core.model.job import Job
from controller.questions.engine_copy.engine_copy import QuestionRefused
from controller.questions.explanation import explain_reason
from wire.api.reasons import Why
from wire.names import JobState
from wire.text import printable

FEW_WAITING = 100
"""If at most this many jobs wait, the controller itself finds the reason, in about a millisecond."""


def explained(call: Call, job: Job) -> Why:
    """Return the reason that the engine gives for the state of the job. If the job was sent to an execution
    engine and waits there, the sentence also has the reason of the execution engine.
    """
    found = call.daemon.engine.explain(job, call.daemon.now())
    if job.state in (JobState.SCHEDULED, JobState.RUNNING):
        there = call.daemon.engines.waiting_reason(job)
        if there:
            return replace(found, sentence=f"{found.sentence}; waits for {printable(there)}")
    return found


async def why(call: Call, job: Job) -> Why:
    """Return the reason why the job is in its state, with a sentence for users.

    1. The controller finds the reason if the job is not ready to start, or if at most FEW_WAITING jobs wait
       and the job's scheduler profile shares no nodes with another profile.
    2. In all other cases, the engine copy (a separate process) finds the reason, because the search takes up
       to a second with 10,000 different jobs in the queue, and because it changes backfill reservations if
       profiles share nodes.
    3. If the engine copy does not answer in time, return the reason that the last scheduling cycle recorded.
    """
    daemon = call.daemon
    engine = daemon.engine
    waits_alone = len(engine.state.queue) <= FEW_WAITING and engine.profile_cycles.of(job).shared is None
    if not job.ready or waits_alone:
        return explained(call, job)
    try:
        answer = await daemon.questions.ask_briefly(call.caller.user, explain_reason, job.id, now=daemon.now)
    except QuestionRefused:
        answer = None
    if answer is not None:
        return answer
    await daemon.settled()
    there = daemon.state.jobs.get(job.id, job)
    return Why(reason_of(daemon.state, there), f"'corral explain {job.label}' gives details")
