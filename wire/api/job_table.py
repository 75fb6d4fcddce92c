"""API body for a table of jobs. The table has only the columns that the client requests."""

from __future__ import annotations

from typing import Any, Final, Mapping

from wire.dataclass import dataclass

JOB_COLUMNS: Final[Mapping[str, str]] = {
    "id": "the id of the job",
    "label": "the id with which users name the job: 17, or 12_3 for an element of array 12",
    "array": "the id of the array, or null",
    "index": "the index in the array, or null",
    "array_text": "the --array option of the array, such as 0-9%2; empty for other jobs",
    "name": "the name of the job",
    "user": "the user of the job",
    "project": "the project of the job",
    "queue": "the queue of the job",
    "reservation": "the reservation that the job names; empty if it names none",
    "qos": "the QOS that Slurm's commands show for the job",
    "state": "the state of the job",
    "reason": "the reason of the state",
    "detail": "a sentence about the reason",
    "stopping": "true if the attempt was ordered to stop and has not ended",
    "hold": "'user' or 'operator' if the job is held; otherwise empty",
    "hopeless": "true if a dependency of the job can never be met",
    "priority": "the priority, from 0 to 100",
    "submitted_at": "the submit time, in seconds since 1970 like all times",
    "eligible_at": "the earliest time at which the job may start; null if this time is not known yet",
    "started_at": "the start of the last attempt, or null",
    "ended_at": "the end of the job, or null",
    "expected_start": "the last estimate of the start of a waiting job, or null",
    "limit_s": "the time limit in seconds, or null",
    "time_min_s": "the shortest time limit that the job accepts, or null",
    "exit_code": "the exit code, or null",
    "signal": "the signal that ended the job, or null",
    "attempt": "the number of attempts",
    "restarts": "how often the job was restarted or preempted",
    "last_reason": "the reason of the end of the previous attempt; empty if the job was never queued again",
    "held": "for each node: [name, thousandths of CPUs, MiB of memory, [[index, thousandths of the GPU], …]]",
    "gpu_model": "the model of the first GPU that the job holds or requests; empty if it may be any",
    "gpu_request": "the GPU model that the job requests; empty if it may be any",
    "nodes": "the number of nodes that the job holds or requests",
    "cpu_milli": "thousandths of CPUs on each node",
    "memory_mib": "MiB of memory on each node",
    "memory_per_cpu_mib": "MiB of memory for each CPU (--mem-per-cpu of sbatch), or null",
    "scratch_mib": "MiB of scratch space on each node",
    "gpus": "the number of GPUs on all nodes, held or requested",
    "tasks_per_node": "the number of tasks on each node",
    "cpu_s": "for each node: seconds of CPU time of the last attempt up to now",
    "max_rss_mib": "for each node: the peak memory of the last attempt in MiB up to now",
    "use": "[mean GPU utilisation in percent, peak GPU memory in MiB, energy in watt-hours], or null",
    "comment": "the comment of the job",
    "workdir": "the working directory, or null",
    "program": "the program that the job runs, such as the interpreter of its script",
    "script": "the name of the batch script; empty if there is none",
    "batch": "true if the command runs only once, on the first node",
    "output": "the file for stdout, with patterns; empty if there is none",
    "error": "the file for stderr, with patterns; empty if there is none",
    "licences": "the number of each licence that the job requests",
    "after": "the dependencies: [condition, job or path]",
    "begin_at": "the earliest start that the user requested, or null",
    "deadline_at": "the deadline, or null",
    "requeue": "true if the job may be queued again after the loss of a node",
    "node_list": "the nodes that the user requested, or null",
    "excluded": "the nodes that the user excluded",
    "steps": "the steps that srun has run in the last attempt, each with the fields of a Step",
    "labels": "the labels of the job",
}
"""The columns of a JobTable, each with its meaning."""


@dataclass(frozen=True)
class JobTable:
    """Jobs in the order of their ids. Each row has one value for each of `columns`.

    `now` is the time of the controller, and `cluster` the name of the cluster. If `more` is True, the table
    has only the newest jobs, because there are too many for one answer.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    now: float
    cluster: str
    seq: int
    more: bool = False
