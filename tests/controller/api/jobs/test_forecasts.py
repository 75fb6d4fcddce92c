"""Explain, start forecasts and what-if through the API; none changes the state."""

from __future__ import annotations

import pytest

from controller.core.model.inputs import node_inputs
from tests.controller.api.running_controller import RunningController, start_controller

HOUR = 3600


async def full_house(api: RunningController) -> int:
    """One node, busy for an hour, and a job that waits for it."""
    await api.join("gpu01")
    busy = await api.submit(gpus=8, time_limit_s=HOUR)
    await api.started(busy)
    return await api.submit(gpus=8, time_limit_s=HOUR)


async def test_explain_gives_reason_and_start(api: RunningController) -> None:
    waiting = await full_house(api)
    status, answer = await api.get(f"/v1/jobs/{waiting}/explain")
    assert status == 200
    assert answer["why"]["reason"] == "resources"
    left = answer["starts_at"] - api.daemon.now()
    assert left == pytest.approx(HOUR, abs=60)
    assert answer["nodes"] == ["gpu01"]


async def test_explain_writes_nothing(api: RunningController) -> None:
    waiting = await full_house(api)
    await api.daemon.settled()
    before = api.daemon.seq
    for _ in range(3):
        assert (await api.get(f"/v1/jobs/{waiting}/explain"))[0] == 200
    await api.submit(hold=True)
    assert api.daemon.seq == before + 1, "only the submit is in the journal"


async def test_start_estimates_are_sampled_recorded_and_scored() -> None:
    async with start_controller(backfill={"score_starts_s": 0.05}) as api:
        waiting = await full_house(api)

        def foreseen() -> list[str]:
            return [each.kind for each in api.daemon.state.jobs[waiting].foreseen]

        await api.until(lambda: "latest" in foreseen())
        await api.ended(1)
        await api.started(waiting)
        score = api.daemon.state.estimates.starts["latest"]
        assert (score.count, score.late) == (1, 0)


async def test_unknown_start_is_explained(api: RunningController) -> None:
    await api.join("gpu01")
    endless = await api.submit(gpus=8)
    await api.started(endless)
    waiting = await api.submit(gpus=1)
    held = await api.submit(gpus=1, hold=True)
    await api.daemon.ask(node_inputs.CordonGpu("gpu01", 3, "root"))
    _, answer = await api.get(f"/v1/jobs/{waiting}/explain")
    assert answer["unknown"].startswith(f"job {endless} has no time limit")
    _, answer = await api.get(f"/v1/jobs/{held}/explain")
    assert answer["unknown"].startswith("it is held; it could not start if released: ")
    assert f"job {endless} has no time limit" in answer["unknown"]
    await api.ended(endless)
    await api.started(waiting)
    _, answer = await api.get(f"/v1/jobs/{held}/explain")
    assert answer["unknown"] == "it is held; if it were released now, it would start at once"
    (advice,) = answer["easings"]
    assert advice["command"] == ["job", "release", str(held)]


async def test_running_job_has_a_reason_and_no_start_estimate(api: RunningController) -> None:
    await full_house(api)
    _, answer = await api.get("/v1/jobs/1/explain")
    assert answer["why"]["sentence"] == "running on gpu01"
    assert answer["starts_at"] is None


async def test_start_is_unknown_behind_a_job_without_a_limit(api: RunningController) -> None:
    await api.join("gpu01")
    await api.started(await api.submit(gpus=8))
    waiting = await api.submit(gpus=1)
    _, answer = await api.get(f"/v1/jobs/{waiting}/explain")
    assert answer["starts_at"] is None


async def test_what_if_submit_shows_delayed_jobs(api: RunningController) -> None:
    waiting = await full_house(api)
    urgent = {"command": ["true"], "gpus": 8, "priority": 100, "time_limit_s": 2 * HOUR}
    status, answer = await api.post("/v1/what-if", {"submit": [urgent]})
    assert status == 200
    new, moved = answer["shifts"]
    assert (new["new"], new["job"]) == (True, waiting + 1)
    assert moved["job"] == waiting
    assert moved["becomes"] - moved["was"] == pytest.approx(2 * HOUR, abs=60)
    _, listed = await api.get("/v1/jobs")
    assert listed["total"] == 2


async def test_what_if_cancel_and_drain_show_moved_starts(api: RunningController) -> None:
    first = await full_house(api)
    last = await api.submit(gpus=8, time_limit_s=HOUR)
    _, answer = await api.post("/v1/what-if", {"cancel": [first]})
    assert [(shift["job"], shift["becomes"] < shift["was"]) for shift in answer["shifts"]] == [(last, True)]
    _, answer = await api.post("/v1/what-if", {"drain": ["gpu01"]})
    assert {shift["job"]: shift["becomes"] for shift in answer["shifts"]} == {first: None, last: None}
    _, node = await api.get("/v1/nodes/gpu01")
    assert node["state"] == "up"


async def test_what_if_lists_refused_changes(api: RunningController) -> None:
    await full_house(api)
    never = {"command": ["true"], "gpus": 9}
    _, answer = await api.post("/v1/what-if", {"submit": [never], "cancel": [99]})
    assert len(answer["refused"]) == 2
    assert "can never be placed" in answer["refused"][1]
    status, _ = await api.post("/v1/what-if", {"drain": ["nowhere"]})
    assert status == 404
    status, problem = await api.post("/v1/what-if", {"sumbit": []})
    assert (status, problem["where"]) == (400, "sumbit")


async def test_plan_shows_running_and_waiting_jobs_drains_and_free_gpus(api: RunningController) -> None:
    await api.join("gpu02")
    await api.post("/v1/nodes/gpu02/drain", {"why": "new fans"})
    waiting = await full_house(api)
    await api.submit(gpus=1, hold=True)
    status, plan = await api.get("/v1/plan", horizon=4 * HOUR)
    assert status == 200, plan
    running, later = plan["entries"]
    assert (running["job"], running["certainty"], running["nodes"]) == (waiting - 1, "certain", ["gpu01"])
    assert (later["job"], later["certainty"], later["gpus"]) == (waiting, "limit", 8)
    assert later["starts_at"] == pytest.approx(running["ends_at"], abs=1)
    assert later["ends_at"] - later["starts_at"] == pytest.approx(HOUR, abs=60)
    assert [(each["kind"], each["name"], each["why"]) for each in plan["blocks"]] == [
        ("drain", "gpu02", "new fans")
    ]
    assert [each["gpus_free"] for each in plan["free"]] == [8, 8, 16]
    assert (plan["gpus"], plan["waiting"], plan["without_start"], plan["complete"]) == (16, 1, 0, True)
    _, again = await api.get("/v1/plan", horizon=4 * HOUR)
    assert again == plan, "the same entry of the journal, so the same plan"
    await api.submit(gpus=1, hold=True)
    _, again = await api.get("/v1/plan", horizon=4 * HOUR)
    assert again["as_of"] == plan["as_of"] + 1
    status, problem = await api.get("/v1/plan", horizon=1)
    assert (status, problem["where"]) == (400, "horizon")
