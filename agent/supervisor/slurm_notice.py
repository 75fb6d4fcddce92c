"""Writes the line that slurmstepd would write to the output file of an sbatch job that is cancelled,
preempted or requeued, or reaches its time limit.
"""

from __future__ import annotations

import os
import sys
import time

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.processes.short_command import run_and_read

_CAUSES = {
    "time_limit": " DUE TO TIME LIMIT",
    "preempted": " DUE TO PREEMPTION",
    "requeued": " DUE TO JOB REQUEUE",
}
_TIMEOUT_S = 2.0


def write_cancelled(launch: LaunchSpec, why: str) -> None:
    """Append `slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-19T10:00:00 ***` to the job's stderr.

    A process with the rights of the job's user writes the line, because the user has chosen the file. The
    process runs dd, which neither creates nor truncates the file. A file system that does not answer delays
    the end of the job by at most two seconds.
    """
    path = os.path.join(launch.cwd, launch.error or launch.output)
    cause = _CAUSES.get(why.partition(":")[0], "")
    when = time.strftime("%Y-%m-%dT%H:%M:%S")
    line = f"slurmstepd: error: *** {launch.slurm_job} CANCELLED AT {when}{cause} ***"
    script = 'printf "%s\\n" "$1" | dd of="$2" oflag=append,nonblock,noctty conv=notrunc,nocreat'
    try:
        run_and_read(launch, ["/bin/sh", "-c", script, "sh", line, path], _TIMEOUT_S)
    except OSError as error:
        print(
            f"{launch.key}: the line of slurmstepd could not be written to the job's output file: {error}",
            file=sys.stderr,
        )
