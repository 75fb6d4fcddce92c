"""Uses executorlib with pysqa as its documentation shows: tasks, a dependency, and the state of the queue."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from executorlib import SlurmClusterExecutor
from pysqa import QueueAdapter


def add(first: int, second: int) -> int:
    """A task."""
    return first + second


TEMPLATE = """\
#!/bin/bash
#SBATCH --output=time.out
#SBATCH --job-name={{job_name}}
#SBATCH --chdir={{working_directory}}
#SBATCH --partition=gpu
#SBATCH --mem=1G
#SBATCH --time=5
#SBATCH --ntasks={{cores}}
{%- if dependency_list %}
#SBATCH --dependency=afterok:{{ dependency_list | join(':') }}
{%- endif %}

{{command}}
"""


def main() -> None:
    """Print one line for each use."""
    resources = {"cores": 1, "submission_template": TEMPLATE}
    with SlurmClusterExecutor(resource_dict=resources, cache_directory="cache") as executor:
        first: Future[Any] = executor.submit(add, 1, 2)
        second: Future[Any] = executor.submit(add, 3, first)
        print("sum", second.result())
    queue: Any = QueueAdapter(queue_type="SLURM")
    job = queue.submit_job(
        working_directory=".", job_name="held", cores=1, command="sleep 600", submission_template=TEMPLATE
    )
    print("state", queue.get_status_of_job(process_id=job) in ("pending", "running"))
    [row] = queue.get_queue_status().query(f"jobid == {job}").to_dict("records")
    print("row", row["jobname"].strip(), row["working_directory"] != "")
    queue.delete_job(process_id=job)
    while queue.get_status_of_job(process_id=job) is not None:
        pass
    print("deleted")


if __name__ == "__main__":
    main()
