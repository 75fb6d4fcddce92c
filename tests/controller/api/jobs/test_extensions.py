"""Longer time limits of running jobs through the API: the plan decides for owners."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.api.server.test_identity import as_root, some_user, visit

HOUR = 3_600.0


async def running_of_user(api: RunningController, **more: Any) -> int:
    """A job of another user that holds gpu01 for an hour; its id."""
    await api.join("gpu01")
    spec = {"command": ["true"], "gpus": 8, "time_limit_s": HOUR, "grace_s": 0.0, **more}
    ((_, answer),) = await visit(api, some_user().pw_uid, ("POST", "/v1/jobs", {"spec": spec}))
    job: int = answer["ids"][0]
    await api.started(job)
    return job


async def asked(api: RunningController, path: str, body: Any) -> tuple[int, Any]:
    [answer] = await visit(api, some_user().pw_uid, ("POST", path, body))
    return answer


@as_root
async def test_owner_extends_a_job_that_delays_nobody(api: RunningController) -> None:
    job = await running_of_user(api)
    status, shown = await asked(api, f"/v1/jobs/{job}/set", {"extend_s": HOUR})
    assert (status, shown["time_limit_s"]) == (200, 2 * HOUR)
    order = {"action": "set", "jobs": [str(job)], "extend_s": HOUR}
    _, answer = await asked(api, "/v1/jobs/orders", order)
    assert [each["time_limit_s"] for each in answer["done"]] == [3 * HOUR]


@as_root
@pytest.mark.parametrize("backfill", ["easy", "conservative"])
async def test_owner_is_refused_with_the_job_that_would_be_delayed(backfill: str) -> None:
    async with start_controller(scheduler={"backfill": backfill}) as api:
        job = await running_of_user(api)
        waiting = await api.submit(gpus=8, time_limit_s=HOUR, name="train")
        await api.until(lambda: waiting not in api.daemon.state.queue.new_jobs)
        status, problem = await asked(api, f"/v1/jobs/{job}/set", {"extend_s": HOUR})
        assert (status, problem["where"]) == (409, "time_limit_s")
        assert (
            f"delays other jobs or reservations: job {waiting} (train, root), which is promised to start in"
            in problem["message"]
        )
        assert problem["message"].endswith("would start 1h00m later")
        _, answer = await asked(
            api, "/v1/jobs/orders", {"action": "set", "jobs": [str(job)], "extend_s": HOUR}
        )
        assert answer["done"] == []
        _, tried = await asked(
            api, "/v1/what-if", {"edit": [{"job": job, "changes": {"time_limit_s": 2 * HOUR}}]}
        )
        assert [shift["job"] for shift in tried["shifts"]] == [waiting]
        assert (await api.post(f"/v1/jobs/{job}/set", {"extend_s": HOUR}))[0] == 200, "an operator may"


@as_root
async def test_owner_is_refused_before_a_reservation_and_a_drain(api: RunningController) -> None:
    job = await running_of_user(api)
    start = api.daemon.now() + 2 * HOUR
    spec = {"name": "fans", "starts_at": start, "duration_s": HOUR, "nodes": ["gpu01"]}
    assert (await api.post("/v1/reservations", {"reservation": spec}))[0] == 201
    _, problem = await asked(api, f"/v1/jobs/{job}/set", {"extend_s": 2 * HOUR})
    assert "delays other jobs or reservations: reservation 'fans' begins in" in problem["message"]
    assert (await asked(api, f"/v1/jobs/{job}/set", {"extend_s": HOUR / 2}))[0] == 200
    await api.post("/v1/reservations/fans/cancel")
    await api.post("/v1/nodes/gpu01/drain", {"empty_by": start})
    _, problem = await asked(api, f"/v1/jobs/{job}/set", {"extend_s": 2 * HOUR})
    assert "the drain of node gpu01 begins in" in problem["message"]
