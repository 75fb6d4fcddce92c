"""Why, when and what if through the API: asked of a copy, and nothing is done."""

from __future__ import annotations

import pytest

from tests.controller.api.house import House

HOUR = 3600


async def full_house(house: House) -> int:
    """One node, busy for an hour, and a job that waits for it."""
    await house.join("gpu01")
    busy = await house.submit(gpus=8, time_limit_s=HOUR)
    await house.started(busy)
    return await house.submit(gpus=8, time_limit_s=HOUR)


async def test_why_and_when(house: House) -> None:
    waiting = await full_house(house)
    status, told = await house.get(f"/v1/jobs/{waiting}/explain")
    assert status == 200
    assert told["why"]["reason"] == "resources"
    left = told["starts_at"] - house.daemon.now()
    assert left == pytest.approx(HOUR, abs=60)
    assert told["nodes"] == ["gpu01"]


async def test_a_running_job_has_a_reason_and_no_start_to_come(house: House) -> None:
    await full_house(house)
    _, told = await house.get("/v1/jobs/1/explain")
    assert told["why"]["sentence"] == "running on gpu01"
    assert told["starts_at"] is None


async def test_without_a_limit_before_it_nobody_can_tell(house: House) -> None:
    await house.join("gpu01")
    await house.started(await house.submit(gpus=8))
    waiting = await house.submit(gpus=1)
    _, told = await house.get(f"/v1/jobs/{waiting}/explain")
    assert told["starts_at"] is None


async def test_what_if_somebody_came_first(house: House) -> None:
    waiting = await full_house(house)
    urgent = {"command": ["true"], "gpus": 8, "priority": 100, "time_limit_s": 2 * HOUR}
    status, told = await house.post("/v1/what-if", {"submit": [urgent]})
    assert status == 200
    new, moved = told["shifts"]
    assert (new["new"], new["job"]) == (True, waiting + 1)
    assert moved["job"] == waiting
    assert moved["becomes"] - moved["was"] == pytest.approx(2 * HOUR, abs=60)
    _, listed = await house.get("/v1/jobs")
    assert listed["total"] == 2


async def test_what_if_one_were_cancelled_or_a_node_drained(house: House) -> None:
    first = await full_house(house)
    last = await house.submit(gpus=8, time_limit_s=HOUR)
    _, told = await house.post("/v1/what-if", {"cancel": [first]})
    assert [(shift["job"], shift["becomes"] < shift["was"]) for shift in told["shifts"]] == [(last, True)]
    _, told = await house.post("/v1/what-if", {"drain": ["gpu01"]})
    assert {shift["job"]: shift["becomes"] for shift in told["shifts"]} == {first: None, last: None}
    _, node = await house.get("/v1/nodes/gpu01")
    assert node["state"] == "up"


async def test_what_would_be_refused_is_said(house: House) -> None:
    await full_house(house)
    never = {"command": ["true"], "gpus": 9}
    _, told = await house.post("/v1/what-if", {"submit": [never], "cancel": [99], "drain": ["nowhere"]})
    assert len(told["refused"]) == 3
    assert "can never be placed" in told["refused"][2]
    status, problem = await house.post("/v1/what-if", {"sumbit": []})
    assert (status, problem["where"]) == (400, "sumbit")
