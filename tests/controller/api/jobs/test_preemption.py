"""Preemption through the API: by an operator, by priority, in what-if, and in the job view."""

from __future__ import annotations

import pytest

from controller.core.model.inputs import agent_inputs
from tests.controller.api.running_controller import RunningController, start_controller
from wire.agent.reports import AttemptStatus

HOUR = 3600
URGENT = {"command": ["true"], "gpus": 4, "priority": 75, "time_limit_s": HOUR}
TABLES = {"preemption": {"strategies": ["priority"], "min_runtime_s": 0.0}}


async def busy(api: RunningController) -> int:
    """One node, full with a job of low priority."""
    await api.join("gpu01")
    low = await api.submit(gpus=8, priority=25, time_limit_s=5 * HOUR)
    await api.started(low)
    return low


async def gone(api: RunningController, job: int) -> None:
    """The agent reports the end of the job."""
    attempt = api.daemon.state.jobs[job].attempt
    status = AttemptStatus(job, attempt, 100, 1.0, 2.0, signal=15, why="preempted")
    await api.handle(agent_inputs.AgentReported("gpu01", status))


async def test_operator_preempts_a_job(api: RunningController) -> None:
    low = await busy(api)
    status, view = await api.post(f"/v1/jobs/{low}/preempt", {"hold": True})
    assert (status, view["state"], view["reason"]) == (200, "RUNNING", "grace")
    await gone(api, low)
    _, detail = await api.get(f"/v1/jobs/{low}")
    assert (detail["job"]["state"], detail["job"]["preempted"]) == ("QUEUED", 1)
    assert (detail["why"]["reason"], detail["job"]["reason"]) == ("held", "held")
    assert detail["why"]["sentence"] == f"held until a release: corral job release {low}"
    (answer,) = detail["preemptions"]
    assert (answer["attempt"], answer["by"]) == (1, api.daemon.state.jobs[low].preemptions[0].by)
    status, problem = await api.post(f"/v1/jobs/{low}/preempt", {})
    assert (status, problem["code"]) == (409, "conflict")


async def test_waiting_job_is_advised_which_jobs_to_preempt(api: RunningController) -> None:
    low = await busy(api)
    waiting = await api.submit(gpus=4, priority=75)
    _, answer = await api.get(f"/v1/jobs/{waiting}/explain")
    (advice,) = [each for each in answer["easings"] if each["victims"]]
    assert [victim["job"] for victim in advice["victims"]] == [low]
    assert advice["command"] == ["job", "preempt", str(low)]
    assert (answer["victims"], answer["makes_room"]) == ([], False)
    _, answer = await api.get(f"/v1/jobs/{await api.submit(gpus=4, priority=10)}/explain")
    assert not any(each["victims"] for each in answer["easings"])


async def test_what_if_and_preemption_show_the_same_victim() -> None:
    async with start_controller(**TABLES) as api:
        low = await busy(api)
        status, answer = await api.post("/v1/what-if", {"submit": [URGENT]})
        assert status == 200
        (ousted,) = answer["preempted"]
        assert (ousted["job"], ousted["by"]) == (low, str(low + 1))
        assert answer["shifts"][0]["becomes"] - answer["now"] == pytest.approx(60, abs=5)
        high = await api.submit(gpus=4, priority=75, time_limit_s=HOUR)
        await api.until(lambda: bool(api.daemon.state.claims))
        _, answer = await api.get(f"/v1/jobs/{high}/explain")
        assert answer["why"]["reason"] == "preempting"
        await gone(api, low)
        await api.started(high)
        _, detail = await api.get(f"/v1/jobs/{low}")
        assert detail["preemptions"][0]["by"] == f"job {high}"
        _, events = await api.get("/v1/events", job=high)
        assert "PreemptionPlanned" in [event["kind"] for event in events["events"]]


async def test_explain_names_the_rate_that_forbids_a_preemption() -> None:
    async with start_controller(preemption={**TABLES["preemption"], "rate": 1}) as api:
        await api.join("gpu01")
        for hours in (1, 3):
            await api.started(await api.submit(gpus=4, priority=25, time_limit_s=hours * HOUR))
        waiting = await api.submit(gpus=8, priority=75, time_limit_s=HOUR)
        _, answer = await api.get(f"/v1/jobs/{waiting}/explain")
        assert answer["no_preemption"] == (
            "2 jobs would have to be preempted for it at once, and [preemption] rate allows 1 in 1h00m"
        )
        assert (len(answer["victims"]), answer["makes_room"]) == (1, True)  # after the other has ended
