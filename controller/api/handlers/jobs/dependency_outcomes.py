"""Reads from the store the final states of ended jobs that other jobs depend on."""

from __future__ import annotations

from controller.api.server.request import Call
from controller.core.model.job import Job
from wire.job.start_conditions import Dependency
from wire.names import JobState


async def outcomes(call: Call, after: tuple[Dependency, ...]) -> dict[str, JobState]:
    """Return the final states of the jobs that are named in the dependencies `after`, by display id (17 or
    12_3). Jobs that are still in the engine's memory are left out, because the engine has their states.
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
