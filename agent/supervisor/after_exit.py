"""Finishes an attempt after all its processes have exited: cleans up the node, runs the epilog and records
the end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from agent.attempts import attempt_record
from agent.attempts.launch.launch_spec import LaunchSpec
from agent.checkpoints import directory
from agent.isolation import container_supervision, scratch
from agent.isolation.attempt_cgroup import out_of_memory_reason
from agent.processes import process_tree
from agent.processes.short_command import run_and_read
from agent.supervisor import hooks
from agent.supervisor.task_process import write_notice

if TYPE_CHECKING:
    from agent.supervisor.supervisor import Supervisor

LOST = "supervisor_lost"
"""The reason of an attempt that ended because its supervisor, or its container, was lost."""
OUTPUT_TAIL = "output-tail"
"""The file beside the record with the last TAIL_BYTES bytes of each file of --output and --error. It is
written if a task failed or the end has a reason, such as the time limit.
"""
TAIL_BYTES = 4_096
_TAIL_TIMEOUT_S = 5.0
SWEEP_PAUSES_S = (0.01, 1.0)
"""The shortest and the longest pause, in seconds, before the processes that are left are killed again."""


def finish_attempt(attempt: Supervisor) -> None:
    """Clean up after the attempt, and record its end.

    1. Find the reason of the end, such as too little memory, in the cgroup or in the container engine.
    2. Remove containers and cgroup, trim the log files, and run the epilog.
    3. Find the newest complete checkpoint. Write the checkpoint and the end to the record, and send both to
       the agent.
    """
    launch, status, code, number = attempt.launch, attempt.exit_status, None, None
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
    elif status is not None:
        code = os.WEXITSTATUS(status)
    if not attempt.why and status and attempt.cgroup.has_oom_kill():
        peak_mib = attempt.cgroup.peak_mib() or attempt.rss_mib
        attempt.why = out_of_memory_reason(launch.memory_mib, peak_mib)
    if launch.container_commands:
        if status and not attempt.why:
            attempt.why = container_supervision.failure_reason(launch, code, attempt.rss_mib)
        container_supervision.remove_containers(launch)
    attempt.cpu_s = max(attempt.cpu_s, attempt.cgroup.cpu_s() or 0.0)
    _remove_cgroup(attempt)
    attempt.log_trimmer.trim()
    if status or attempt.why:
        _keep_output_tail(launch)
    _run_epilog(attempt)
    lines = [
        attempt_record.encode_end(time.time(), code, number, attempt.cpu_s, attempt.rss_mib, attempt.why)
    ]
    saved = _newest_checkpoint(attempt)
    if saved is not None:
        at, size, path = saved
        lines.insert(0, attempt_record.encode_fact("checkpoint", f"{at:.6f}", size, path))
    attempt.record.write(b"".join(lines))
    attempt.record.hint(*lines)


def _remove_cgroup(attempt: Supervisor) -> None:
    """Kill the processes that are left in the attempt's cgroup, such as `corral exec` commands. Then remove
    the cgroup.
    """
    while not attempt.cgroup.remove():
        attempt.cgroup.kill()
        process_tree.send_signal(attempt.cgroup.members(), signal.SIGKILL)
        _pause(attempt)


def _pause(attempt: Supervisor) -> None:
    time.sleep(attempt.sweep_pause_s)
    attempt.sweep_pause_s = min(attempt.sweep_pause_s * 2, SWEEP_PAUSES_S[1])


def _keep_output_tail(launch: LaunchSpec) -> None:
    """Copy the end of the files of --output and --error into the spool, because these files often show why a
    job failed. The files are read with the rights of the job's user, because that user may have chosen files
    of other users.
    """
    parts = []
    for path in filter(None, (launch.output, launch.error)):
        whole = os.path.join(launch.cwd, path)
        command = ["/usr/bin/tail", "-c", str(TAIL_BYTES), "--", whole]
        try:
            parts.append(run_and_read(launch, command, _TAIL_TIMEOUT_S)[1])
        except OSError:
            # Store no part of the output files, for example because the host cannot start another process.
            return
    if not any(parts):
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{launch.directory}/{OUTPUT_TAIL}", flags, 0o600)
    except OSError:
        return  # Store no part of the output files, for example because the disk is full.
    with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write("\n".join(parts))


def _run_epilog(attempt: Supervisor) -> None:
    """Run the epilog, kill the processes that it leaves, and remove the scratch directory. A failure is
    logged and does not change the result of the job.
    """
    launch = attempt.launch
    problem = hooks.run_hook(
        "epilog", launch.epilog, launch.hook_env, launch.directory, launch.hook_timeout_s, lambda: False
    )
    if problem:
        print(f"{launch.key}: {problem}", file=sys.stderr)
    if launch.epilog:
        process_tree.send_signal(process_tree.descendants(os.getpid()), signal.SIGKILL)
    if launch.scratch_dir and not scratch.remove_directory(launch.scratch_dir):
        write_notice(launch.directory, f"the scratch directory {launch.scratch_dir} could not be removed")
        print(f"{launch.key}: {launch.scratch_dir} could not be removed", file=sys.stderr)


def _newest_checkpoint(attempt: Supervisor) -> directory.FoundCheckpoint | None:
    """Return the newest complete checkpoint; None if there is none. If the job did not end in time
    (`ended_in_time`), ignore checkpoints with changes after the end of the job was requested, because they
    may be incomplete.
    """
    if not (attempt.tasks and attempt.launch.checkpoint_dir):
        return None
    before = None if attempt.ended_in_time else attempt.end_requested_at
    return directory.newest_checkpoint(attempt.launch, before)


def end_lost_attempt(attempt: Supervisor, known: list[list[str]]) -> None:
    """Kill the processes that a lost supervisor has left. Then record the end of the attempt, with unknown
    exit code. `known` has the facts that are already in the record.
    """
    launch = attempt.launch
    started = next((fact for fact in known if fact[0] == "started"), None)
    leader, ticks = (int(started[1]), int(started[2])) if started else (None, None)
    uid = None if launch.user is None else launch.user[0]
    empty = 0
    while empty < 2:
        # Require two scans of /proc in a row that find no process, because one scan may miss a process that
        # is being forked.
        pids = process_tree.find_strays(launch.directory, launch.key, leader, ticks, uid, launch.mark_key)
        pids += attempt.cgroup.members()
        empty = 0 if pids else empty + 1
        # Kill other supervisors of the attempt first, because a supervisor could record the kill of the job
        # as the end of the job itself.
        process_tree.send_signal(
            pids + [child for pid in pids for child in process_tree.descendants(pid)], signal.SIGKILL
        )
        _pause(attempt)
    reason = next((fact[1] for fact in known if fact[0] == "lost"), "")
    attempt.why = reason or (known[1][2] if len(known[1]) > 2 else LOST)
    finish_attempt(attempt)
