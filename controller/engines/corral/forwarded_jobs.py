"""Translates between the orders of this controller and the jobs of another Corral: a start order to the
JobSpec that is submitted there, and a job there to its state and its outcome.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.engines.contract import PREEMPTED_THERE, ForeignJob, ForeignState, Outcome
from wire.agent.orders import Start
from wire.agent.reports import Usage
from wire.api.job_table import JobTable
from wire.job.spec import JobSpec
from wire.job.start_conditions import Restart, RestartWhen
from wire.names import WHOLE_GPU, JobState, Reason

CLUSTER_LABEL, TAG_LABEL = "corral-cluster", "corral-tag"
"""The labels of a forwarded job. The first selects all jobs of this cluster in one request."""

_OWN_VARIABLES = frozenset(
    (
        *("CORRAL_JOB_ID", "CORRAL_JOB_LABEL", "CORRAL_JOB_NAME", "CORRAL_ATTEMPT", "CORRAL_USER"),
        *("CORRAL_PROJECT", "CORRAL_NODES", "CORRAL_NODE", "CORRAL_NODE_RANK"),
        *("NODE_RANK", "NNODES", "SLURMD_NODENAME"),
    )
)
"""Variables that every controller sets for its jobs. They are not forwarded, because commands in the job use
the other controller, where the job has another id and other nodes.
"""
_WORDS = {
    Reason.TIME_LIMIT: "time_limit",
    Reason.OUT_OF_MEMORY: "out_of_memory",
    Reason.SCRATCH_EXCEEDED: "scratch_exceeded",
    Reason.LAUNCH_FAILED: "launch_failed",
    Reason.NODE_UNFIT: "node_unfit",
    Reason.NODE_LOST: "node_lost",
    Reason.SUPERVISOR_LOST: "supervisor_lost",
    Reason.GPU_FAILED: "node_lost",
    Reason.GPU_HELD: "gpu_held",
}
"""The words of AttemptStatus.why, by the reason of a failed job. Jobs that failed for another reason have an
exit code or a signal only.
"""


@dataclass(frozen=True, slots=True)
class ForwardedJob:
    """A job in the other cluster that this cluster has submitted. The fields are columns of its job table."""

    id: int
    queue: str
    state: JobState
    reason: str
    detail: str
    last_reason: str
    started_at: float | None
    exit_code: int | None
    signal: int | None
    cpu_s: tuple[float, ...]
    max_rss_mib: tuple[int, ...]
    labels: Mapping[str, str]

    @property
    def tag(self) -> str:
        return self.labels.get(TAG_LABEL, "")

    @property
    def queued_again(self) -> bool:
        """Return whether the other cluster has ended an attempt of the job and queued the job again, for
        example because of a preemption. An attempt that could not start on its node does not count.
        """
        return self.last_reason not in ("", Reason.NODE_UNFIT.value, Reason.GPU_HELD.value)

    @property
    def foreign(self) -> ForeignJob:
        """Return the job as look() shows it. A job that the other cluster has queued again counts as ended,
        because this controller decides whether and where the job runs again.
        """
        state = ForeignState.WAITING
        if self.state.terminal or self.queued_again:
            state = ForeignState.ENDED
        elif self.state is JobState.RUNNING:
            state = ForeignState.RUNNING
        why = self.detail or self.reason if state is ForeignState.WAITING else ""
        return ForeignJob(self.tag, str(self.id), state, self.queue, why)


COLUMNS = (
    *(
        "id",
        "queue",
        "state",
        "reason",
        "detail",
        "last_reason",
        "started_at",
        "exit_code",
        "signal",
        "cpu_s",
    ),
    *("max_rss_mib", "labels"),
)


_LISTS = ("cpu_s", "max_rss_mib")
"""The columns that have one value for each node."""


def jobs_of(table: JobTable) -> list[ForwardedJob]:
    """Return the jobs of a job table whose columns are COLUMNS."""
    return [_job_of(dict(zip(table.columns, row, strict=True))) for row in table.rows]


def _job_of(row: dict[str, Any]) -> ForwardedJob:
    lists = {name: tuple(each for each in row[name] or () if each is not None) for name in _LISTS}
    return ForwardedJob(**{**row, **lists, "state": JobState(row["state"])})


def outcome_of(job: ForwardedJob, caller: str) -> Outcome | None:
    """Return how a forwarded job has ended; None if it has not.

    1. A job that completed there has exit code 0.
    2. A failed job has its exit code or its signal, and a reason if Corral ended it, such as its time limit.
    3. A job that was cancelled there after the other cluster had queued it again is PREEMPTED_THERE.
    4. Any other job that was cancelled after its start has its exit code or its signal (SIGTERM if neither is
       known), and no reason: if this controller cancelled it, the driver knows the reason.
    5. A job that was cancelled before its start has no reason if `caller` (the name of this controller's
       account there) has cancelled it. Otherwise it counts as not launched.
    """
    if not job.state.terminal:
        return None
    usage = Usage(sum(job.cpu_s), max(job.max_rss_mib)) if job.cpu_s and job.max_rss_mib else None
    if job.state is JobState.COMPLETED:
        return Outcome(code=0, usage=usage)
    if job.state is JobState.CANCELLED:
        if job.queued_again:
            return Outcome(why=PREEMPTED_THERE, usage=usage)
        if job.started_at is not None:
            unknown = job.exit_code is None and job.signal is None
            return Outcome(job.exit_code, int(signal.SIGTERM) if unknown else job.signal, usage=usage)
        ours = job.detail == f"cancelled by {caller}"
        return Outcome() if ours else Outcome(why=f"launch_failed: {job.detail} in the other cluster")
    word = _WORDS.get(Reason(job.reason), "")
    detailed = word and word not in ("time_limit", "out_of_memory", "scratch_exceeded") and job.detail
    return Outcome(job.exit_code, job.signal, f"{word}: {job.detail}" if detailed else word, usage)


def spec_of(
    order: Start,
    tag: str,
    tag_prefix: str,
    *,
    selector: Mapping[str, str],
    gpu_models: tuple[str, ...],
    queue: str,
    project: str,
    preemptible: bool,
) -> JobSpec:
    """Return the job that is submitted in the other cluster. It is not restarted there after a failure,
    because this controller counts restarts. If the other cluster queues the job again after a preemption or
    the loss of a node, the engine cancels it there, so that this controller decides whether and where it runs
    again.
    """
    open_mode = "append" if order.append else "truncate"
    return JobSpec(
        command=order.command,
        name=order.name,
        project=project or order.env.get("CORRAL_PROJECT", "default"),
        queue=queue,
        cpu_milli=order.cpu_milli,
        memory_mib=order.memory_mib,
        scratch_mib=order.scratch_mib,
        cpu_limit_milli=order.cpu_limit_milli,
        memory_limit_mib=order.memory_limit_mib,
        best_effort=order.best_effort,
        gpus=sum(each.milli for each in order.gpus) / WHOLE_GPU,
        gpu_models=gpu_models,
        labels={CLUSTER_LABEL: tag_prefix, TAG_LABEL: tag},
        nodes=1,
        selector=selector,
        env={name: value for name, value in order.env.items() if not _is_own(name)},
        workdir=order.workdir,
        time_limit_s=order.time_limit_s,
        restart=Restart(when=RestartWhen.NEVER, limit=1),
        grace_s=order.grace_s,
        preemptible=preemptible,
        warn_signal=order.warn_signal,
        **({"warn_s": order.warn_s} if order.warn_signal else {}),  # type: ignore[arg-type] # one field
        tasks_per_node=order.tasks,
        image=order.image,
        mounts=order.mounts,
        umask=order.umask,
        output=order.output.replace("%", "%%"),
        error=order.error.replace("%", "%%"),
        open_mode=open_mode if order.output or order.error else "",
        merge_output=order.merge_output,
        batch=order.env.get("ENVIRONMENT") == "BATCH",
        health=order.health,
    )


def _is_own(variable: str) -> bool:
    # Forward SLURM_ARRAY_*, because the script may use its array index. The other controller does not set
    # these variables, because the job is no array element there.
    slurm = variable.startswith("SLURM_") and not variable.startswith("SLURM_ARRAY_")
    return slurm or variable in _OWN_VARIABLES
