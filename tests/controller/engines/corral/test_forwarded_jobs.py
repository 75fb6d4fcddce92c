"""The translation between start orders and jobs of another Corral."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.engines.contract import PREEMPTED_THERE, ForeignState, Outcome
from controller.engines.corral.forwarded_jobs import (
    CLUSTER_LABEL,
    COLUMNS,
    TAG_LABEL,
    ForwardedJob,
    jobs_of,
    outcome_of,
    spec_of,
)
from wire.agent.orders import GpuHold, Start
from wire.agent.reports import Usage
from wire.api.job_table import JOB_COLUMNS, JobTable
from wire.job.spec import JobSpec, spec_problems
from wire.names import JobState, Reason

PREFIX, TAG = "corral-0f3a9c112233-", "corral-0f3a9c112233-7-1-0"
ROW = (41, "gpu", "RUNNING", "", "", "", 100.0, None, None, [1.5], [20], {TAG_LABEL: TAG})
ORDER = Start(7, 1, ("python", "train.py"), "ada", 2_000, 4_096, name="train", workdir="/home/ada")


USED = Usage(1.5, 20)
QUEUED, FAILED, CANCELLED = JobState.QUEUED, JobState.FAILED, JobState.CANCELLED


def job(**changes: object) -> ForwardedJob:
    [made] = jobs_of(JobTable(COLUMNS, (ROW,), 0.0, "there", 1))
    return replace(made, **changes)  # type: ignore[arg-type]


def spec(order: Start) -> JobSpec:
    return spec_of(
        order,
        TAG,
        PREFIX,
        selector={"zone": "north"},
        gpu_models=("H100",),
        queue="gpu",
        project="",
        preemptible=True,
    )


def test_columns_exist() -> None:
    assert set(COLUMNS) <= set(JOB_COLUMNS)


def test_a_job_asks_there_for_what_it_holds_here() -> None:
    env = {"CORRAL_JOB_ID": "7", "CORRAL_PROJECT": "vision", "SLURM_JOB_ID": "7", "WORD": "a"}
    order = replace(
        ORDER,
        gpus=(GpuHold("GPU-1", 1_000), GpuHold("GPU-2", 1_000)),
        env={**env, "SLURM_ARRAY_TASK_ID": "3", "CORRAL_ARRAY_INDEX": "3"},
        output="/data/100%.log",
    )
    made = spec(order)
    assert spec_problems(made) == []
    assert (made.gpus, made.gpu_models, made.nodes, made.selector) == (2, ("H100",), 1, {"zone": "north"})
    assert (made.project, made.queue, made.output) == ("vision", "gpu", "/data/100%%.log")
    assert made.env == {"WORD": "a", "SLURM_ARRAY_TASK_ID": "3", "CORRAL_ARRAY_INDEX": "3"}
    assert made.labels == {CLUSTER_LABEL: PREFIX, TAG_LABEL: TAG}
    assert spec(replace(ORDER, gpus=(GpuHold("GPU-1", 250),))).gpus == 0.25


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (job(), ForeignState.RUNNING, ""),
        (job(state=QUEUED, reason="resources", detail="8 GPUs"), ForeignState.WAITING, "8 GPUs"),
        (job(state=JobState.SCHEDULED, reason="starting"), ForeignState.WAITING, "starting"),
        (job(state=JobState.FAILED, reason="signal"), ForeignState.ENDED, ""),
        (job(state=QUEUED, last_reason="preempted"), ForeignState.ENDED, ""),
        (job(state=QUEUED, last_reason="node_unfit", reason="quota"), ForeignState.WAITING, "quota"),
    ],
)
def test_states(found: ForwardedJob, state: ForeignState, reason: str) -> None:
    foreign = found.foreign
    assert (foreign.tag, foreign.ref, foreign.where) == (TAG, "41", "gpu")
    assert (foreign.state, foreign.reason) == (state, reason)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (job(), None),
        (job(state=JobState.COMPLETED, exit_code=0), Outcome(0, usage=USED)),
        (job(state=FAILED, reason="exit_nonzero", exit_code=3), Outcome(3, usage=USED)),
        (job(state=FAILED, reason="signal", signal=9), Outcome(None, 9, usage=USED)),
        (job(state=FAILED, reason="time_limit", signal=15), Outcome(None, 15, "time_limit", USED)),
        (
            job(state=FAILED, reason="launch_failed", detail="no directory", cpu_s=(), max_rss_mib=()),
            Outcome(why="launch_failed: no directory"),
        ),
        (job(state=CANCELLED, reason="user", signal=15), Outcome(None, 15, usage=USED)),
        (job(state=CANCELLED, reason="user"), Outcome(None, 15, usage=USED)),
        (job(state=CANCELLED, reason="user", exit_code=3), Outcome(3, usage=USED)),
        (job(state=CANCELLED, reason="user", exit_code=0), Outcome(0, usage=USED)),
        (job(state=CANCELLED, last_reason="preempted"), Outcome(why=PREEMPTED_THERE, usage=USED)),
        (job(state=CANCELLED, started_at=None, detail="cancelled by corral"), Outcome()),
        (
            job(state=CANCELLED, started_at=None, detail="cancelled by bob"),
            Outcome(why="launch_failed: cancelled by bob in the other cluster"),
        ),
    ],
)
def test_outcomes(found: ForwardedJob, outcome: Outcome | None) -> None:
    assert outcome_of(found, "corral") == outcome


def test_each_reason_is_read() -> None:
    for reason in Reason:
        assert outcome_of(job(state=FAILED, reason=reason.value, signal=9), "corral") is not None
