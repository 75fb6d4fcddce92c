"""Making room through the API: by an operator, by itself, asked first, and told afterwards."""

from __future__ import annotations

import pytest

from controller.core import inputs
from tests.controller.api.house import House, living
from wire.frames import AttemptStatus

HOUR = 3600
URGENT = {"command": ["true"], "gpus": 4, "priority": 75, "time_limit_s": HOUR}
TABLES = {"preemption": {"strategies": ["priority"], "min_runtime_s": 0.0}}


async def busy(house: House) -> int:
    """One node, full of somebody unimportant."""
    await house.join("gpu01")
    low = await house.submit(gpus=8, priority=25, time_limit_s=5 * HOUR)
    await house.started(low)
    return low


async def gone(house: House, job: int) -> None:
    """The agent did as it was told."""
    attempt = house.daemon.state.jobs[job].attempt
    status = AttemptStatus(job, attempt, 100, 1.0, 2.0, signal=15, why="preempted")
    await house.told(inputs.AgentReported("gpu01", status))


async def test_an_operator_has_a_job_make_room(house: House) -> None:
    low = await busy(house)
    status, view = await house.post(f"/v1/jobs/{low}/preempt", {"hold": True})
    assert (status, view["state"], view["reason"]) == (200, "RUNNING", "grace")
    await gone(house, low)
    _, detail = await house.get(f"/v1/jobs/{low}")
    assert (detail["job"]["state"], detail["job"]["preempted"]) == ("QUEUED", 1)
    assert detail["why"]["reason"] == "held"
    (told,) = detail["preemptions"]
    assert (told["attempt"], told["by"]) == (1, house.daemon.state.jobs[low].preemptions[0].by)
    status, problem = await house.post(f"/v1/jobs/{low}/preempt", {})
    assert (status, problem["code"]) == (409, "conflict")


async def test_who_waits_is_told_whom_to_ask(house: House) -> None:
    low = await busy(house)
    waiting = await house.submit(gpus=4, priority=75)
    _, told = await house.get(f"/v1/jobs/{waiting}/explain")
    assert [victim["job"] for victim in told["victims"]] == [low]
    assert told["makes_room"] is False
    _, told = await house.get(f"/v1/jobs/{await house.submit(gpus=4, priority=10)}/explain")
    assert told["victims"] == []


async def test_room_is_made_and_kept_and_taken() -> None:
    async with living(**TABLES) as house:
        low = await busy(house)
        status, told = await house.post("/v1/what-if", {"submit": [URGENT]})
        assert status == 200
        (ousted,) = told["preempted"]
        assert (ousted["job"], ousted["by"]) == (low, str(low + 1))
        assert told["shifts"][0]["becomes"] - told["now"] == pytest.approx(60, abs=5)
        high = await house.submit(gpus=4, priority=75, time_limit_s=HOUR)
        await house.until(lambda: bool(house.daemon.state.claims))
        _, told = await house.get(f"/v1/jobs/{high}/explain")
        assert told["why"]["reason"] == "preempting"
        await gone(house, low)
        await house.started(high)
        _, detail = await house.get(f"/v1/jobs/{low}")
        assert detail["preemptions"][0]["by"] == f"job {high}"
        _, events = await house.get("/v1/events", job=high)
        assert "PreemptionPlanned" in [event["kind"] for event in events["events"]]
