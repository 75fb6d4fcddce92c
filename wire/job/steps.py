"""Steps of jobs. A step is the tasks that one srun starts in a job."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass

MAX_STEPS = 100
"""The most steps of one attempt that are recorded. Further steps run without a record."""
MAX_NODES_TEXT = 400
"""The most characters in the list of a step's nodes."""
MAX_TEXT = 64
"""The most characters in any other text of a step, such as its name."""


@dataclass(frozen=True)
class Step:
    """One step of an attempt: the tasks that one srun has started.

    `number` is -1 until the agent has assigned a number to the step. `nodes` is a host list such as
    gpu[01-04] of `node_count` nodes. `code` and `signal` are the highest exit code and signal of the tasks.
    `cancelled_by` is the user that cancelled the step with scancel. `cpu_s` is the CPU time of all tasks.
    `max_rss_kib` is the peak memory of the largest process, which belonged to the task `max_rss_task` on the
    node `max_rss_node`. `pid` is the process id of srun on `host`, and `pid_ticks` is the start time of srun
    in clock ticks since the boot of this host. `cpus` is the number of CPUs that srun has requested for the
    step on all nodes together; 0 means all CPUs of the job on these nodes.
    """

    number: int = -1
    name: str = ""
    nodes: str = ""
    node_count: int = 1
    tasks: int = 1
    started_at: float = 0.0
    ended_at: Optional[float] = None
    code: int = 0
    signal: int = 0
    cancelled_by: str = ""
    cpu_s: float = 0.0
    max_rss_kib: int = 0
    max_rss_node: str = ""
    max_rss_task: int = 0
    layout: str = ""
    host: str = ""
    pid: int = 0
    pid_ticks: int = 0
    cpus: int = 0
