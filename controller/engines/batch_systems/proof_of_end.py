"""The proof of how a job of a batch system ended, from its exit record, the list of jobs and the
accounting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from controller.engines.batch_systems.batch_job import BatchStatus, Cause, Phase
from controller.engines.batch_systems.wrapper import CLAIMED, REFUSALS, JobRecords
from controller.engines.contract import PREEMPTED_THERE, Outcome

_SIGTERM = 15
_RUN_AGAIN = "node_lost: the batch system ended the job and ran it a second time"


def outcome_of(
    records: JobRecords, listed: Sequence[BatchStatus], past: Sequence[BatchStatus]
) -> Outcome | None:
    """Return how an attempt ended. Its tag is the name of its job in the batch system, which may have
    accepted the job twice. Return None while there is no proof of its end.

    `records` are the records that the batch script wrote. `listed` are the jobs with the tag in the list of
    the batch system, and `past` their runs in its accounting.
    1. There is no proof while the list has a job with the tag that has not ended, because the job still holds
       resources. There is also no proof while a job has ended in the list and is alive in the accounting,
       because it may run a second time. If the record has the exit code 0, the accounting does not matter.
    2. A job that found the tag claimed by another job has the exit code CLAIMED. It did not run the command,
       and is left out.
    3. The batch system knows the cause: time limit, preemption, lost node, memory. Such a cause counts even
       if the program has exited with code 0, because the program was told to end and did not finish its work.
       A cancelled program whose record has the code 0 has completed.
    4. If a job found the tag claimed by its own first run, the batch system has ended the job and run it
       again. Its first run counts as lost, unless the record has the code 0. The record `again` shows this
       too, because a slurmctld that was killed may never tell the accounting.
    5. The exit code is that of the record. Without one, it is that of the accounting or of the list. If these
       have none either, a job in the state COMPLETED has the code 0.

    Example: the record says code 0, the accounting says TIMEOUT. The outcome is the reason time_limit.
    """
    if any(each.phase.alive for each in listed):
        return None
    if listed and records.again_id and records.again_id == records.job_id and records.code != 0:
        return Outcome(why=_RUN_AGAIN)
    over = {each.id for each in listed}
    if records.code != 0 and any(each.phase.alive and each.id in over for each in past):
        return None
    runs = [each for each in (*past, *listed) if each.phase is Phase.ENDED and not _is_copy(each, records)]
    proven = records.code is not None or records.signal is not None
    code, signal = (records.code, records.signal) if proven else _status_of(runs)
    refused = code if records.refused is None else records.refused
    again = any(each.code == CLAIMED and each.id == records.job_id for each in runs)
    if again and records.code != 0:
        return Outcome(why=_RUN_AGAIN)
    if not proven and refused in REFUSALS:
        return Outcome(refused, None, f"launch_failed: {REFUSALS[refused]}")
    first = next((each for each in runs if each.cause is not Cause.EXIT), None)
    if first is None or (first.cause is Cause.CANCELLED and records.code == 0):
        return None if code is None and signal is None else Outcome(code, signal)
    # Ignore an exit code 0, because the accounting shows it for every job that the batch system has ended.
    code = code or None
    if first.cause is Cause.CANCELLED:
        return Outcome(code, signal or (None if code else _SIGTERM))
    return Outcome(code, signal, _why(first.cause, first.state))


def without_late(jobs: Sequence[BatchStatus], late: str) -> list[BatchStatus]:
    """Return the jobs with those as ended that are listed as running, or in a state that is not known, and
    whose ids are in the output of `wrapper.late_command`. The accounting has a state that is not known for a
    run that slurmctld has found in its saved state.
    """
    ids = set(late.split())
    over = (Phase.RUNNING, Phase.UNKNOWN)
    return [
        replace(each, phase=Phase.ENDED) if each.id in ids and each.phase in over else each for each in jobs
    ]


def _is_copy(run: BatchStatus, records: JobRecords) -> bool:
    return run.code == CLAIMED and bool(records.job_id) and records.job_id != run.id


def _status_of(runs: Sequence[BatchStatus]) -> tuple[int | None, int | None]:
    for run in runs:
        if run.code is not None or run.signal is not None:
            return run.code, run.signal
    return (0, None) if any(run.state == "COMPLETED" for run in runs) else (None, None)


def _why(cause: Cause, state: str) -> str:
    if cause is Cause.PREEMPTED:
        return PREEMPTED_THERE
    return f"{cause.value}: the batch system says {state}"
