"""The route that takes batch scripts of Slurm."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.api.handlers.jobs import jobs
from controller.api.server.errors import rejected
from controller.api.server.request import Call
from wire.api.jobs import SbatchRequest, SubmitRequest, Submitted
from wire.job.start_conditions import Dependency, Until

if TYPE_CHECKING:
    from cli.slurm.submit.sbatch_to_spec import BatchJob


async def submit(call: Call, request: SbatchRequest) -> Submitted:
    """Queue a batch script with #SBATCH lines. The answer names the options that have no effect."""
    # Translate the script in a thread, because the translation of a large script would delay other requests.
    made = await asyncio.to_thread(_translated, request)
    spec = made.spec
    _require_reservations(call, made)
    if made.singleton:
        same = (
            job
            for job in call.daemon.state.jobs.values()
            if job.user == call.caller.user and job.name == spec.name and not job.state.terminal
        )
        spec = replace(spec, after=(*spec.after, *(Dependency(Until.ENDED, job.label) for job in same)))
    answer = await jobs.submit(call, SubmitRequest(spec, request.key))
    first = f"--partition: a job waits in one partition only; {spec.queue} is used"
    noted = (first,) if made.partitions else ()
    return replace(answer, notes=(*made.warnings, *noted, *answer.notes))


def _require_reservations(call: Call, made: BatchJob) -> None:
    """Raise Rejected if the job names a reservation that does not exist."""
    if not made.reservations:
        return
    from cli.slurm.refusals import unknown_reservation

    error = unknown_reservation(made.reservations, call.daemon.state.reservations.by_name)
    if error is not None:
        reason, words = error.lines
        raise rejected("invalid", words, "script", f"{reason}.")


def _translated(request: SbatchRequest) -> BatchJob:
    """Return the job that the batch script describes, with the code that the command sbatch also uses. This
    code is imported only in this function, because most controllers never get a batch script.
    """
    from cli.slurm.programs import SlurmError
    from cli.slurm.submit.sbatch_to_spec import BatchRequest, batch_job

    known = BatchRequest(
        script=request.script,
        name=request.name,
        arguments=request.arguments,
        options=tuple(request.options.items()),
        environment=request.environment,
        directory=request.directory,
    )
    try:
        return batch_job(known)
    except SlurmError as error:
        raise rejected("invalid", " ".join(error.lines), "script") from None
