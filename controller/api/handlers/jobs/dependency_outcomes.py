"""Reads from the store the final states of ended jobs on which other jobs depend."""

from __future__ import annotations

from controller.api.server.request import Call
from controller.core.model.job import Job
from wire.job.start_conditions import Dependency
from wire.names import JobState


async def outcomes(call: Call, after: tuple[Dependency, ...]) -> dict[str, JobState]:
    """Return a dict from display id (17 or 12_3) to final state, for the ended jobs that the dependencies
    `after` name. The id of an array stands for all its elements; its state is COMPLETED only if all of them
    completed. Jobs that are still in the engine's memory are left out, because the engine has their states.
    """
    found = {}
    for label in dict.fromkeys(each.job for each in after if each.job):
        state = call.daemon.state
        ended: list[Job] = []
        if "_" not in label and int(label) in state.arrays:
            ended = await call.ended_of_array(int(label))
        elif state.find(label) is None and (job := await call.stored(label)) is not None:
            ended = await call.ended_of_array(int(label)) if label == str(job.array) else [job]
        if ended:
            found[label] = _worst(ended)
    return found


def _worst(ended: list[Job]) -> JobState:
    return next((job.state for job in ended if job.state is not JobState.COMPLETED), JobState.COMPLETED)
