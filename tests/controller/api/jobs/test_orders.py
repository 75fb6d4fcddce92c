"""One action on many jobs in one request: one answer per job, and one commit."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import job_inputs
from tests.controller.api.running_controller import RunningController, start_controller
from wire.job.spec import JobSpec
from wire.names import JobState


async def ordered(
    api: RunningController, action: str, *jobs: str, **more: Any
) -> tuple[list[str], dict[str, str]]:
    """The labels of the changed jobs, and the refusals by label."""
    status, answer = await api.post("/v1/jobs/orders", {"action": action, "jobs": jobs, **more})
    assert status == 200, answer
    refused = {each["job"]: each["problem"]["message"] for each in answer["refused"]}
    return [job["label"] for job in answer["done"]], refused


async def few(api: RunningController) -> None:
    """Job 1, the array 2 with four elements, job 6 of project vision; nothing can start."""
    await api.submit()
    await api.submit(array="0-3", name="sweep-lr")
    await api.submit(project="vision")


@pytest.mark.parametrize(
    ("patterns", "labels"),
    [
        ("1", "1"),
        ("2", "2_0 2_1 2_2 2_3"),
        ("3", "2_1"),
        ("2_0", "2_0"),
        ("2_[1-2]", "2_1 2_2"),
        ("1-3", "1 2_0 2_1"),
        ("all", "1 2_0 2_1 2_2 2_3 6"),
        ("last", "6"),
        ("6 1 6", "6 1"),
        ("100-200", ""),
        ("name:sweep-*", "2_0 2_1 2_2 2_3"),
        ("name:sweep", ""),
        ("project:vision", "6"),
        ("project:visions", ""),
    ],
)
async def test_jobs_matched_by_each_pattern(api: RunningController, patterns: str, labels: str) -> None:
    await few(api)
    before = api.daemon.seq
    answer = await ordered(api, "cancel", *patterns.split(), only_tell=True)
    assert answer == (labels.split(), {})
    assert api.daemon.seq == before


async def test_jobs_of_a_user(api: RunningController) -> None:
    await few(api)
    (_, first) = await api.get("/v1/jobs/1")
    me = first["job"]["user"]
    assert (await ordered(api, "hold", f"user:{me}"))[0] == ["1", "2_0", "2_1", "2_2", "2_3", "6"]
    assert await ordered(api, "release", f"user:{me}x") == ([], {})


async def test_order_for_a_whole_array_is_one_commit(api: RunningController) -> None:
    await api.submit(array="0-99")
    commits = api.daemon.subscribe()
    assert len((await ordered(api, "hold", "1"))[0]) == 100
    commit = await anext(commits)
    commits.close()
    assert [entry.kind for entry in commit.entries] == ["JobHeld"] * 100


async def test_order_refused_for_one_job_is_done_for_the_rest(api: RunningController) -> None:
    await few(api)
    assert await ordered(api, "cancel", "2_1") == (["2_1"], {})
    done, refused = await ordered(api, "cancel", "2_[0-1]", "9", "seven", "2_[2-7]")
    assert done == ["2_0"]
    assert refused == {
        "2_1": "job 2_1 is CANCELLED already",
        "9": "there is no job '9'",
        "seven": "'seven' is not a job",
        "2_[2-7]": "there is no job 2_4",
    }
    assert await ordered(api, "release", "1", "6") == (
        [],
        {"1": "job 1 is not held", "6": "job 6 is not held"},
    )


async def test_order_for_an_array_means_its_live_elements(api: RunningController) -> None:
    await few(api)
    await ordered(api, "cancel", "2_[0-2]")
    assert await ordered(api, "cancel", "2") == (["2_3"], {})
    assert await ordered(api, "cancel", "2") == ([], {"2": "every job of array 2 has ended already"})


async def test_change_and_preempt(api: RunningController) -> None:
    await few(api)
    assert (await ordered(api, "set", "2", changes={"priority": 90}))[0] == ["2_0", "2_1", "2_2", "2_3"]
    assert {job.spec.priority for job in api.daemon.state.jobs.values()} == {50, 90}
    _, refused = await ordered(api, "set", "1", "6", changes={"memory_mib": -1})
    wrong = "must be positive and at most 1024T"
    assert refused == {"1": wrong, "6": wrong}
    await api.join("gpu01")
    await api.started(1)
    assert await ordered(api, "preempt", "1", stay_held=True) == (["1"], {})
    assert api.daemon.state.jobs[1].held


async def test_mine_limits_an_order_to_own_jobs(api: RunningController) -> None:
    await few(api)
    theirs = await api.daemon.ask(job_inputs.Submit(JobSpec(("true",)), "somebody"))
    assert isinstance(theirs, Accepted)
    assert (await ordered(api, "hold", mine=True))[0] == ["1", "2_0", "2_1", "2_2", "2_3", "6"]
    assert (await ordered(api, "hold", "6-7", mine=True))[0] == ["6"]
    assert (await ordered(api, "hold", "6-7"))[0] == ["6", "7"]


async def test_invalid_orders_are_refused(api: RunningController) -> None:
    for body, where in (
        ({"action": "cancel"}, "jobs"),
        ({"action": "explode", "jobs": ["1"]}, "action"),
        ({"action": "cancel", "jobs": ["1"] * 10_001}, "jobs"),
    ):
        status, problem = await api.post("/v1/jobs/orders", body)
        assert (status, problem["where"]) == (400, where)


async def test_order_names_jobs_that_ended_long_ago() -> None:
    async with start_controller(controller={"keep_ended": 1}) as api:
        await few(api)
        await ordered(api, "cancel", "all")
        await api.until(lambda: len(api.daemon.state.jobs) == 1)
        assert await ordered(api, "cancel", "1", "2_1", "2_[0-1]") == (
            [],
            {
                "1": "job 1 is CANCELLED already",
                "2_1": "job 2_1 is CANCELLED already",
                "2_0": "job 2_0 is CANCELLED already",
            },
        )
        assert api.daemon.state.jobs[6].state is JobState.CANCELLED


async def test_order_succeeds_for_a_dependent_already_ended_by_the_cancel(api: RunningController) -> None:
    first = await api.submit(hold=True)
    second = await api.submit(after=[{"job": str(first), "until": "ok"}])
    status, answer = await api.post("/v1/jobs/orders", {"action": "cancel", "mine": True})
    assert status == 200
    assert [job["id"] for job in answer["done"]] == [first, second]
    assert [job["state"] for job in answer["done"]] == ["CANCELLED", "CANCELLED"]
    assert answer["refused"] == []
    _, again = await api.post("/v1/jobs/orders", {"action": "cancel", "jobs": [str(second)]})
    assert [each["problem"]["message"] for each in again["refused"]] == [f"job {second} is CANCELLED already"]
