"""Ends a running job because of a stop order, its time limit, an expired lease or a failed task.

1. For a stop order with `checkpoint_s`, first send the checkpoint signal or run the checkpoint command
   (`read_stop`).
2. Send SIGTERM to the processes of the job, and plan SIGKILL after the grace (`begin_ending`).
3. Send SIGKILL to the processes that are left, again and again until none is left (`kill_processes`).

When no process is left, after_exit.py finishes the attempt. The functions change the `Supervisor` of the
attempt; its `..._at` attributes are the times of the planned actions.

The fork server must stay small and imports this module, so this module imports only small modules.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from agent.attempts import lease
from agent.isolation import container_supervision
from agent.processes import process_tree
from agent.supervisor.after_exit import SWEEP_PAUSES_S
from agent.supervisor.slurm_notice import write_cancelled
from agent.supervisor.task_process import TaskNotStarted, start_task, write_notice

if TYPE_CHECKING:
    from agent.supervisor.supervisor import Supervisor


def act_when_due(attempt: Supervisor, now: float) -> None:
    """Carry out the planned actions that are due: warning signal, SIGTERM after a checkpoint, check of the
    lease, and time limit. SIGKILL is a separate step (`kill_processes`), because the supervisor queries the
    container engine before SIGKILL.
    """
    if min(attempt.warn_at or now + 1, attempt.limit_at or now + 1) <= now:
        _read_limit(attempt)
    if attempt.warn_at is not None and now >= attempt.warn_at and attempt.launch.warn:
        attempt.warn_at = None
        _signal_handlers(attempt, attempt.launch.warn[0])
    if attempt.term_at is not None and now >= attempt.term_at:
        attempt.ended_in_time = attempt.ended_in_time and attempt.checkpoint_pid is None
        begin_ending(attempt, attempt.grace_s)
    if attempt.lease_at is not None and now >= attempt.lease_at:
        check_lease(attempt)
    if attempt.limit_at is not None and now >= attempt.limit_at:
        attempt.limit_at = None
        attempt.why = attempt.why or "time_limit"
        begin_ending(attempt, attempt.launch.grace_s)


def read_stop(attempt: Supervisor, default: str = "") -> None:
    """Carry out the stop order in the spool. If there is no stop order and `default` is not empty, stop the
    job for the reason `default`. Before the first task has started, only store the reason in `why`.
    """
    try:
        with open(f"{attempt.launch.directory}/stop", encoding="utf-8") as file:
            grace, saving, why = file.read().split(" ", 2)
    except FileNotFoundError:
        if not default:
            return
        grace, saving, why = str(attempt.launch.grace_s), "0", default
    attempt.why = attempt.why or why
    if attempt.tasks:
        _stop(attempt, float(grace), float(saving))


def _stop(attempt: Supervisor, grace_s: float, saving_s: float) -> None:
    """Request a checkpoint, and plan SIGTERM after `saving_s` seconds. SIGKILL follows `grace_s` seconds
    after SIGTERM. If `saving_s` is 0, send SIGTERM now without a checkpoint.
    """
    if attempt.ending or saving_s <= 0:
        begin_ending(attempt, grace_s)
        return
    term_at = time.monotonic() + saving_s
    if attempt.term_at is None:
        attempt.grace_s, attempt.end_requested_at = grace_s, time.time()
        _request_checkpoint(attempt)
    if not attempt.ending:
        attempt.grace_s = min(attempt.grace_s, grace_s)
        attempt.term_at = term_at if attempt.term_at is None else min(term_at, attempt.term_at)


def _request_checkpoint(attempt: Supervisor) -> None:
    """Send the checkpoint signal and start the checkpoint command. If no process handles the signal and no
    command was started, end the job now.
    """
    launch = attempt.launch
    if launch.checkpoint_signal:
        attempt.checkpoint_signalled = _signal_handlers(attempt, launch.checkpoint_signal)
    if launch.checkpoint_command:
        try:
            first = str(next(iter(attempt.tasks)))
            command = [*launch.container_exec, *launch.checkpoint_command]
            attempt.checkpoint_pid = start_task(launch, attempt.cgroup, command, {"CORRAL_JOB_PID": first})
        except TaskNotStarted as error:
            write_notice(launch.directory, f"no checkpoint was made: {error}")
    if not attempt.checkpoint_signalled and attempt.checkpoint_pid is None:
        begin_ending(attempt, attempt.grace_s)


def checkpoint_command_ended(attempt: Supervisor, status: int) -> None:
    attempt.checkpoint_pid = None
    if status:
        attempt.ended_in_time = False
        how = "exit code" if os.WIFEXITED(status) else "signal"
        number = os.WEXITSTATUS(status) if os.WIFEXITED(status) else os.WTERMSIG(status)
        write_notice(attempt.launch.directory, f"the checkpoint command failed with {how} {number}")
    if not attempt.checkpoint_signalled and not attempt.ending:
        begin_ending(attempt, attempt.grace_s)


def plan_limit(attempt: Supervisor, limit_s: float | None) -> None:
    """Plan the end of the job for the time limit `limit_s`, and the warning signal before this time. Plan
    nothing if `limit_s` is None.
    """
    attempt.limit_s = limit_s
    if limit_s is not None:
        attempt.limit_at = attempt.started_at + limit_s
        if attempt.launch.warn:
            attempt.warn_at = attempt.limit_at - attempt.launch.warn[1]


def _read_limit(attempt: Supervisor) -> None:
    """Plan a later end of the job if the agent has written a longer time limit. The file is read only
    when the warning or the end is due, so a longer limit needs no message to this process.
    """
    try:
        with open(f"{attempt.launch.directory}/limit", encoding="utf-8") as file:
            longer = float(file.read())
    except (OSError, ValueError):
        return
    if attempt.limit_s is not None and longer > attempt.limit_s:
        plan_limit(attempt, longer)


def check_lease(attempt: Supervisor) -> None:
    """End the job if its lease has expired. If it has not expired, plan the next check for the time at
    which the lease would expire.

    The agent writes each renewal to one file in the spool. The supervisor reads this file only in this
    function.
    """
    attempt.lease_at = None
    if attempt.launch.lease_s is None:
        return
    spool = os.path.dirname(os.path.dirname(attempt.launch.directory))
    left = lease.left_s(spool, attempt.boot, attempt.launch.lease_s)
    if left > 0:
        attempt.lease_at = time.monotonic() + left
        return
    attempt.why = attempt.why or lease.LEASE_EXPIRED
    if attempt.tasks:
        begin_ending(attempt, attempt.launch.grace_s)


def begin_ending(attempt: Supervisor, grace_s: float) -> None:
    """Send SIGTERM to the job now, and plan SIGKILL after `grace_s` seconds. If `grace_s` is 0, send no
    SIGTERM. Another call can move SIGKILL to an earlier time, but not to a later time.
    """
    kill_at = time.monotonic() + grace_s
    if not attempt.ending and grace_s > 0:
        descendants = process_tree.descendants(os.getpid())
        # With podman, send the signal to the processes in the container: podman itself exits on SIGTERM
        # and leaves the container running.
        process_tree.send_signal(
            (
                container_supervision.job_processes(attempt.launch, descendants)
                if attempt.launch.container_commands
                else descendants
            )
            or descendants,
            signal.SIGTERM,
        )
    if attempt.launch.slurm_job and attempt.why and not attempt.ending:
        write_cancelled(attempt.launch, attempt.why)
    attempt.ending, attempt.term_at = True, None
    attempt.end_requested_at = attempt.end_requested_at or time.time()
    attempt.kill_at = kill_at if attempt.kill_at is None else min(kill_at, attempt.kill_at)


def kill_processes(attempt: Supervisor, now: float) -> None:
    """Send SIGKILL to all processes of the job, and plan the next SIGKILL for processes that are left."""
    attempt.ended_in_time = attempt.ended_in_time and None not in attempt.tasks.values()
    attempt.killing = True
    attempt.cgroup.kill()
    process_tree.send_signal(process_tree.descendants(os.getpid()), signal.SIGKILL)
    if attempt.launch.is_docker:
        process_tree.send_signal(container_supervision.marked_processes(attempt.launch), signal.SIGKILL)
    if attempt.unconfirmed:
        attempt.engine_at = now
    attempt.kill_at = now + attempt.sweep_pause_s
    attempt.sweep_pause_s = min(attempt.sweep_pause_s * 2, SWEEP_PAUSES_S[1])


def _signal_handlers(attempt: Supervisor, number: int) -> bool:
    """Send the signal `number` to the processes of the job that have a handler for the signal. The signal
    would end processes without a handler. Return whether any process has a handler.
    """
    descendants = process_tree.descendants(os.getpid())
    receivers = process_tree.with_handler(
        (
            container_supervision.job_processes(attempt.launch, descendants)
            if attempt.launch.container_commands
            else descendants
        ),
        number,
    )
    process_tree.send_signal(receivers, number)
    return bool(receivers)
