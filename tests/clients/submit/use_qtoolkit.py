"""Uses qtoolkit, the Slurm part of jobflow-remote: submit, a job by scontrol, jobs by squeue, cancel."""

from __future__ import annotations

import getpass
import time
from typing import Any

from qtoolkit.core.data_objects import QResources
from qtoolkit.io.slurm import SlurmIO
from qtoolkit.manager import QueueManager


def main() -> None:
    """Print one line for each use."""
    manager: Any = QueueManager(SlurmIO())
    wanted = QResources(
        queue_name="gpu",
        job_name="flow",
        memory_per_thread=256,
        nodes=1,
        processes_per_node=2,
        time_limit=120,
        output_filepath="out.txt",
        error_filepath="err.txt",
    )
    sent = manager.submit("sleep 600", options=wanted)
    print("submitted", sent.status.value)
    while manager.get_job(sent.job_id).state.value != "RUNNING":
        time.sleep(0.2)
    seen = manager.get_job(sent.job_id)
    print("job", seen.name, seen.queue_name, seen.info.nodes, seen.info.cpus, seen.info.time_limit)
    print("sub-state", seen.sub_state.value)
    listed = manager.get_jobs_list(user=getpass.getuser())
    print("listed", [job.job_id == sent.job_id for job in listed if job.name == "flow"])
    print("by id", [job.state.value for job in manager.get_jobs_list(jobs=[sent.job_id])])
    print("cancelled", manager.cancel(sent.job_id).status.value)
    refused = manager.submit("true", options=QResources(queue_name="gpu", nodes=99, processes_per_node=1))
    print("refused", refused.status.value, "Requested node configuration is not available" in refused.stderr)


if __name__ == "__main__":
    main()
