"""Adopts the running jobs of an earlier agent: the new agent takes over all attempts from the spool."""

from __future__ import annotations

import os
from contextlib import suppress

from agent.attempt_runner import AttemptRunner
from agent.attempts.attempt_states import AttemptStates
from agent.attempts.launch.cpu_allocation import CpuAllocator
from agent.attempts.spool import Spool, parse_key
from agent.processes import process_tree
from agent.steps.records import StepRecords


def adopt_attempts(
    spool: Spool, attempts: AttemptStates, runner: AttemptRunner, steps: StepRecords, cpus: CpuAllocator
) -> None:
    """Take over the attempts of earlier agents. The supervisors of these attempts have continued without an
    agent.

    1. If processes of an attempt run without a record in the spool, write a record that says that the
       supervisor was lost. The new supervisor of this attempt then kills these processes.
    2. Add the ended attempts whose end the controller has stored, and count the size of their logs.
    3. Add all other attempts, with their supervisors, steps and CPUs. `AttemptRunner.start` then watches the
       supervisors that still run, and launches a supervisor for each attempt that has none.

    Example: the controller is killed while job 7 runs, so the agent exits. The next controller starts a new
    agent, which finds attempt 7.1 and its supervisor 4711 in the spool. Job 7 continues.
    """
    for lost in map(parse_key, process_tree.attempts_with_processes(str(spool.root), spool.mark_key)):
        if lost is not None and not spool.has(lost):
            spool.quarantine(lost, "its directory is gone")
    for found in spool.settled():
        attempts.adopt(found, settled=True)
        runner.count_logs((found.status.job, found.status.attempt), found.status.ended_at or 0.0)
    for found in spool.unsettled():
        key = (found.status.job, found.status.attempt)
        supervisor = spool.supervisor_pid(key)
        attempts.adopt(runner.intact(key, found), supervisor)
        steps.adopt(key)
        if supervisor is not None:
            with suppress(OSError):
                cpus.adopt(key, sorted(os.sched_getaffinity(supervisor)))
