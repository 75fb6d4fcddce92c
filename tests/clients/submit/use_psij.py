"""Uses psij as its documentation shows: states by callback, ranks of srun, a failure, attach, list and
cancel.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from psij import Job, JobAttributes, JobExecutor, JobSpec, JobState, ResourceSpecV1
from psij.executors.batch.slurm import SlurmExecutorConfig


def job(words: list[str], output: str, **more: Any) -> Any:
    """A job in the partition gpu."""
    attributes = JobAttributes(duration=timedelta(minutes=5), queue_name="gpu")
    attributes.set_custom_attribute("slurm.mem", "300M")
    path = Path(output).absolute()
    return Job(
        JobSpec(words[0], words[1:], stdout_path=path, stderr_path=path, attributes=attributes, **more)
    )


def main() -> None:
    """Print one line for each use."""
    config = SlurmExecutorConfig(
        queue_polling_interval=1, initial_queue_polling_delay=1, work_directory=Path("psij")
    )
    executor: Any = JobExecutor.get_instance("slurm", config=config)
    seen: list[str] = []
    executor.set_job_status_callback(lambda _, status: seen.append(status.state.name))
    done = job(["sh", "-c", "echo $SLURM_JOB_PARTITION"], "done.txt")
    executor.submit(done)
    done.wait(timedelta(minutes=2))
    print("states", sorted({"QUEUED", "COMPLETED"} & set(seen)), Path("done.txt").read_text().strip())

    ranks = job(
        ["sh", "-c", "echo $SLURM_PROCID >> ranks.txt"],
        "srun.txt",
        launcher="srun",
        directory=Path.cwd(),
        resources=ResourceSpecV1(node_count=2, processes_per_node=2, cpu_cores_per_process=1),
    )
    executor.submit(ranks)
    print("ranks", ranks.wait(timedelta(minutes=2)).state.name, sorted(Path("ranks.txt").read_text().split()))

    bad = job(["sh", "-c", "exit 7"], "bad.txt")
    executor.submit(bad)
    status = bad.wait(timedelta(minutes=2))
    print("failed", status.state.name, status.exit_code)

    long = job(["sleep", "600"], "long.txt")
    executor.submit(long)
    long.wait(timedelta(minutes=2), target_states=[JobState.ACTIVE])
    print("listed", long.native_id in executor.list())
    other = Job()
    executor.attach(other, long.native_id)
    print("attached", other.wait(timedelta(minutes=2), target_states=[JobState.ACTIVE]).state.name)
    long.cancel()
    print("cancelled", long.wait(timedelta(minutes=2)).state.name)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
