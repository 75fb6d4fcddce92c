"""Converts Slurm's job states and pending reasons to the phases and causes of batch_job.py."""

from __future__ import annotations

from controller.engines.batch_systems.batch_job import Cause, Phase

_PHASES = {
    "PENDING": Phase.WAITING,
    "CONFIGURING": Phase.WAITING,
    "REQUEUED": Phase.WAITING,
    "REQUEUE_FED": Phase.WAITING,
    "REQUEUE_HOLD": Phase.HELD,
    "SPECIAL_EXIT": Phase.HELD,
    "RESV_DEL_HOLD": Phase.HELD,
    "RUNNING": Phase.RUNNING,
    "RESIZING": Phase.RUNNING,
    "SIGNALING": Phase.RUNNING,
    "SUSPENDED": Phase.RUNNING,
    "STOPPED": Phase.RUNNING,
    "COMPLETING": Phase.ENDING,
    "STAGE_OUT": Phase.ENDING,
    "COMPLETED": Phase.ENDED,
    "FAILED": Phase.ENDED,
    "CANCELLED": Phase.ENDED,
    "TIMEOUT": Phase.ENDED,
    "DEADLINE": Phase.ENDED,
    "PREEMPTED": Phase.ENDED,
    "NODE_FAIL": Phase.ENDED,
    "BOOT_FAIL": Phase.ENDED,
    "OUT_OF_MEMORY": Phase.ENDED,
    "REVOKED": Phase.ENDED,
    "LAUNCH_FAILED": Phase.ENDED,
    "RECONFIG_FAIL": Phase.ENDED,
}
_CAUSES = {
    "CANCELLED": Cause.CANCELLED,
    "REVOKED": Cause.CANCELLED,
    "TIMEOUT": Cause.TIME_LIMIT,
    "DEADLINE": Cause.TIME_LIMIT,
    "PREEMPTED": Cause.PREEMPTED,
    "NODE_FAIL": Cause.NODE_FAILED,
    "BOOT_FAIL": Cause.NODE_FAILED,
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "LAUNCH_FAILED": Cause.LAUNCH_FAILED,
    "RECONFIG_FAIL": Cause.LAUNCH_FAILED,
}
_HOLDS = ("JobHeldAdmin", "JobHeldUser", "job_held_admin", "job_held_user", "held_state")
_LAUNCH_REASONS = ("launch failed requeued held", "launch_failed_requeued_held")
_NO_REASON = ("None", "null", "")


def phase_of(states: str, reason: str = "") -> Phase:
    """Return the phase of a job. `states` has one state or several, separated by commas, spaces or `+`.

    - sacct writes `CANCELLED by 1000`, squeue may cut a state off with `+`, and newer JSON has a list such as
      `RUNNING COMPLETING`. A job in several states is alive as long as one of the states is.
    - A pending job with a hold is HELD, and its `reason` says whose hold it is.
    """
    found = [_PHASES.get(word, Phase.UNKNOWN) for word in _words(states)] or [Phase.UNKNOWN]
    if Phase.ENDING in found:
        return Phase.ENDING
    if Phase.HELD in found or (Phase.WAITING in found and reason.startswith((*_HOLDS, *_LAUNCH_REASONS))):
        return Phase.HELD
    return next((phase for phase in found if phase.alive), found[0])


def cause_of(states: str) -> Cause:
    """Return why Slurm ended a job that is in these states; EXIT if the program ended by itself."""
    return next((_CAUSES[word] for word in _words(states) if word in _CAUSES), Cause.EXIT)


def reason_text(reason: str) -> str:
    """Return the reason for users; empty if Slurm gave none."""
    plain = reason.strip().strip("()")
    return "" if plain in _NO_REASON else plain


def _words(states: str) -> list[str]:
    # Cut off "by 1000", because the id of the user who cancelled a job is not a state.
    return states.partition(" by ")[0].replace(",", " ").replace("+", " ").upper().split()
