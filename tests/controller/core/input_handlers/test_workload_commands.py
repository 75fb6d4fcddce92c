"""Workloads in the engine: submit, limits, failures, cancel and retry."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.state.workloads import Workload
from tests.engine_harness import EngineHarness, spec
from wire.cluster.quota import Limits, Quota
from wire.job.start_conditions import Until
from wire.names import JobState, Reason
from wire.workload.spec import OnFailure, TaskDependency, WorkloadSpec, WorkloadTask


@pytest.fixture
def harness() -> EngineHarness:
    harness = EngineHarness()
    harness.join("a")
    return harness


def sweep(count: int, **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"command": ["train", str(number)], **more} for number in range(count))


def after(*names: str, until: Until = Until.OK) -> tuple[TaskDependency, ...]:
    return tuple(TaskDependency(name, until) for name in names)


THREE = (
    WorkloadTask("report", spec(1), after=after("train")),
    WorkloadTask("prepare", spec(1)),
    WorkloadTask("train", spec(1), sweep(3), after=after("prepare")),
)


def submit(harness: EngineHarness, *tasks: WorkloadTask, key: str = "", **more: Any) -> Workload:
    given = job_inputs.SubmitWorkload(WorkloadSpec(tasks, "w", **more), "ada", key)
    reply = harness.tell(given).reply
    assert isinstance(reply, Accepted), reply
    assert reply.workload is not None
    return harness.state.workloads.by_id[reply.workload]


def run(harness: EngineHarness, code: int = 0, *failing: str) -> list[str]:
    """Start what can start, and end it: the named jobs with `code`, the others with success."""
    started = [harness.job(start.job) for start in harness.tick()]
    for job in started:
        harness.start(job.id)
        harness.exit(job.id, code if job.label in failing else 0)
    return [job.label for job in started]


def counts(workload: Workload) -> dict[str, tuple[int, int, int, int]]:
    return {
        name: (task.total, task.completed, task.failed, task.cancelled)
        for name, task in workload.tasks.items()
    }


def test_tasks_run_after_the_tasks_on_which_they_depend(harness: EngineHarness) -> None:
    workload = submit(harness, *THREE)
    assert run(harness) == ["1"]
    assert run(harness) == ["2_0", "2_1", "2_2"]
    assert [harness.job(job).spec.command for job in (2, 3, 4)] == [("train", str(n)) for n in range(3)]
    assert run(harness) == ["5"]
    assert counts(workload) == {"report": (1, 1, 0, 0), "prepare": (1, 1, 0, 0), "train": (3, 3, 0, 0)}
    assert workload.last_end == harness.job(5).ended_at


def test_pairs_wait_only_for_each_other(harness: EngineHarness) -> None:
    pairs = (TaskDependency("train", elements=((0,), (1,))),)
    submit(
        harness,
        WorkloadTask("train", spec(1), sweep(2)),
        WorkloadTask("test", spec(1), sweep(2), after=pairs),
    )
    assert run(harness, 1, "1_0") == ["1_0", "1_1"]
    assert run(harness) == ["3_1"]
    assert harness.job(3).reason is Reason.DEPENDENCY


def test_a_workload_is_submitted_completely_or_not_at_all(harness: EngineHarness) -> None:
    too_large = WorkloadTask("large", spec(1), ({"gpus": 1}, {"gpus": 64}))
    given = job_inputs.SubmitWorkload(WorkloadSpec((*THREE, too_large)), "ada")
    refused = harness.refuse(given)
    assert refused.where == "tasks.large.gpus"
    assert harness.state.jobs == {}
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(hard=Limits(queued=6)), "root"))
    submit(harness, *THREE)
    assert "queued" in harness.refuse(job_inputs.SubmitWorkload(WorkloadSpec(THREE), "ada")).message


def test_the_quota_of_waiting_jobs_counts_all_tasks(harness: EngineHarness) -> None:
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(hard=Limits(queued=4)), "root"))
    assert harness.refuse(job_inputs.SubmitWorkload(WorkloadSpec(THREE), "ada")).code == "over_quota"
    submit(harness, *THREE[1:])


def test_the_same_key_submits_once(harness: EngineHarness) -> None:
    assert submit(harness, *THREE, key="k") is submit(harness, *THREE, key="k")
    assert len(harness.state.jobs) == 5


@pytest.mark.parametrize(
    ("task", "where", "words"),
    [
        (WorkloadTask("9", spec(1)), "tasks.9", "begin with a letter"),
        (WorkloadTask("b", spec(1), after=after("c")), "tasks.b.after", "there is no task 'c'"),
        (WorkloadTask("b", spec(1), after=after("b")), "tasks.b.after", "the task itself"),
        (WorkloadTask("b", spec(1, array="0-1")), "tasks.b.array", "use elements"),
        (WorkloadTask("b", spec(1), ({"hold": True},)), "tasks.b.elements[0].hold", "different values"),
        (WorkloadTask("b", spec(1), ({"gpus": "x"},)), "tasks.b.elements[0].gpus", "expected float"),
        (WorkloadTask("b", spec(1), max_parallel=0), "tasks.b.max_parallel", "between 1 and"),
    ],
)
def test_a_wrong_task_is_refused(harness: EngineHarness, task: WorkloadTask, where: str, words: str) -> None:
    refused = harness.refuse(
        job_inputs.SubmitWorkload(WorkloadSpec((WorkloadTask("a", spec(1)), task)), "ada")
    )
    assert (refused.where, words in refused.message) == (where, True), refused


def test_a_cycle_is_refused(harness: EngineHarness) -> None:
    tasks = WorkloadTask("a", spec(1), after=after("b")), WorkloadTask("b", spec(1), after=after("a"))
    refused = harness.refuse(job_inputs.SubmitWorkload(WorkloadSpec(tasks), "ada"))
    assert refused.message == "depend on each other in a cycle: a, b"


def test_limits_of_the_task_and_of_the_workload_hold_together(harness: EngineHarness) -> None:
    one = WorkloadTask("one", spec(1), sweep(4), max_parallel=2)
    two = WorkloadTask("two", spec(1), sweep(2))
    workload = submit(harness, one, two, max_parallel=3)
    assert [harness.job(start.job).label for start in harness.tick()] == ["1_0", "1_1", "5_0"]
    assert harness.why(6).sentence == f"waits for a slot: 3 jobs of workload {workload.id} may run at once"
    harness.start(1)
    harness.exit(1)
    assert [harness.job(start.job).label for start in harness.tick()] == ["1_2"]
    harness.start(5)
    harness.exit(5)
    assert [harness.job(start.job).label for start in harness.tick()] == ["5_1"]


def test_a_held_job_gives_its_slot_of_the_workload_to_the_next(harness: EngineHarness) -> None:
    submit(harness, WorkloadTask("one", spec(1), sweep(3)), max_parallel=1)
    harness.tell(job_inputs.Hold(1, "ada"))
    assert run(harness) == ["1_1"]
    assert harness.restarted().state.workloads.by_id[1].ended == 1


def test_on_failure_stop_cancels_the_waiting_jobs(harness: EngineHarness) -> None:
    one = WorkloadTask("one", spec(1), sweep(4), max_parallel=2)
    workload = submit(harness, one, WorkloadTask("two", spec(8)), on_failure=OnFailure.STOP)
    harness.tick()
    harness.start(1)
    harness.exit(1, 3)
    assert counts(workload) == {"one": (4, 0, 1, 2), "two": (1, 0, 0, 1)}
    last = harness.job(4)
    assert (last.state, last.reason) == (JobState.CANCELLED, Reason.WORKLOAD)
    assert last.detail == "job 1_0 of its workload has failed"
    assert harness.job(2).state is JobState.SCHEDULED


def test_retry_replaces_failed_jobs_and_those_that_never_ran(harness: EngineHarness) -> None:
    other = WorkloadTask("clean", spec(1), after=after("train", until=Until.ENDED))
    workload = submit(harness, *THREE, other)
    run(harness)
    run(harness, 1, "2_1")
    assert run(harness) == ["6"]
    names = {job.task: job for job in harness.state.jobs.values()}
    assert (names["report"].state, names["report"].reason) == (JobState.CANCELLED, Reason.DEPENDENCY)
    reply = harness.tell(job_inputs.RetryWorkload(workload.id, "ada")).reply
    assert isinstance(reply, Accepted)
    assert reply.jobs == (7, 8)
    assert counts(workload) == {
        "report": (1, 0, 0, 0),
        "prepare": (1, 1, 0, 0),
        "train": (3, 2, 0, 0),
        "clean": (1, 1, 0, 0),
    }
    assert (harness.job(7).label, harness.job(7).spec.command) == ("7_1", ("train", "1"))
    assert [str(each) for each in harness.job(8).spec.after] == ["ok 7"]
    assert run(harness) == ["7_1"]
    assert run(harness) == ["8"]
    assert workload.ended == workload.total == 6
    assert harness.restarted().state.workloads.by_id == harness.state.workloads.by_id
    refused = harness.refuse(job_inputs.RetryWorkload(workload.id, "ada"))
    assert refused.message == "no job of workload 1 has failed"


def test_retry_keeps_dependencies_on_jobs_that_still_run(harness: EngineHarness) -> None:
    """The job that fails in the array is replaced while another element of the array still runs."""
    workload = submit(
        harness, WorkloadTask("train", spec(1), sweep(3)), WorkloadTask("r", spec(1), after=after("train"))
    )
    for start in harness.tick():
        harness.start(start.job)
    harness.exit(1, 1)
    harness.exit(2)
    assert harness.job(4).state is JobState.CANCELLED
    harness.tell(job_inputs.RetryWorkload(workload.id, "ada"))
    assert [str(each) for each in harness.job(6).spec.after] == ["ok 1_2", "ok 5"]
    assert run(harness) == ["5_0"]
    assert run(harness) == []
    harness.exit(3)
    assert run(harness) == ["6"]


def test_retry_leaves_out_jobs_that_a_user_has_cancelled(harness: EngineHarness) -> None:
    workload = submit(harness, *THREE)
    harness.tell(job_inputs.CancelWorkload(workload.id, "ada"))
    assert {job.reason for job in harness.state.jobs.values()} == {Reason.USER}
    assert workload.ended == 5
    harness.refuse(job_inputs.CancelWorkload(workload.id, "ada"))
    assert "cancelled" in harness.refuse(job_inputs.RetryWorkload(workload.id, "ada")).hint
    harness.tell(job_inputs.RetryWorkload(workload.id, "ada", cancelled=True))
    assert [run(harness) for _ in range(3)] == [["6"], ["7_0", "7_1", "7_2"], ["10"]]


def test_a_retry_respects_the_limit_of_the_workload(harness: EngineHarness) -> None:
    workload = submit(harness, WorkloadTask("one", spec(1), sweep(4)), max_parallel=2)
    assert run(harness, 1, "1_0", "1_1") == ["1_0", "1_1"]
    harness.tick()
    harness.tell(job_inputs.RetryWorkload(workload.id, "ada"))
    assert harness.tick() == []
    assert run(harness) == []
    harness.start(3)
    harness.exit(3)
    assert run(harness) == ["5_0"]


def test_old_workloads_are_dropped(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.core.state.workloads.KEEP_WORKLOADS", 2)
    for _ in range(3):
        submit(harness, WorkloadTask("one", spec(1)))
        run(harness)
    assert sorted(harness.state.workloads.by_id) == [2, 3]
    assert harness.state.workloads.dropped == {1}
    harness.refuse(job_inputs.RetryWorkload(1, "ada"))
