"""Reservations through the API."""

from __future__ import annotations

import time
from typing import Any

from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.store.scratch import scratch


def body(name: str = "fans", **more: Any) -> dict[str, Any]:
    asked = {"name": name, "starts_at": time.time() + 3600, "duration_s": 600.0, "nodes": ["gpu01"], **more}
    return {"reservation": asked}


async def test_reservation_is_made_enforced_shown_and_cancelled(api: RunningController) -> None:
    await api.join("gpu01")
    status, made = await api.post("/v1/reservations", body(why="new fans"))
    assert (status, made["nodes"], made["on"], made["spec"]["why"]) == (201, ["gpu01"], False, "new fans")
    waiting = await api.submit(gpus=1)
    assert await api.placed(await api.submit(gpus=1, time_limit_s=60.0)) == ["gpu01"]
    _, answer = await api.get(f"/v1/jobs/{waiting}/explain")
    assert answer["why"]["reason"] == "reservation"
    assert "reservation 'fans' begins in" in answer["why"]["sentence"]
    assert answer["job"]["reason"] == "reservation"
    assert abs(answer["starts_at"] - made["ends_at"]) < 1
    assert (await api.get("/v1/reservations"))[1]["reservations"][0]["jobs"] == [waiting + 1]
    assert (await api.get("/v1/reservations/fans"))[0] == 200
    status, problem = await api.post("/v1/reservations", body())
    assert (status, problem["code"], problem["where"]) == (409, "conflict", "name")
    assert (await api.post("/v1/reservations/fans/cancel"))[0] == 200
    assert await api.placed(waiting) == ["gpu01"]
    status, problem = await api.post("/v1/reservations/fans/cancel")
    assert (status, problem["code"]) == (404, "not_found")
    _, events = await api.get("/v1/events")
    answer = [event["text"] for event in events["events"] if event["kind"].startswith("Reservation")]
    me = (await api.get("/v1/health"))[1]["user"]
    assert answer == [f"{me} made reservation fans on gpu01", f"{me} cancelled reservation fans"]


async def test_reservation_begins_and_ends_without_further_requests(api: RunningController) -> None:
    await api.join("gpu01")
    await api.post("/v1/reservations", body(starts_at=time.time() + 0.05, duration_s=0.2))
    waiting = await api.submit()
    assert await api.placed(waiting) == ["gpu01"]
    kinds = [event["kind"] for event in (await api.get("/v1/events"))[1]["events"]]
    order = [kind for kind in kinds if kind in ("ReservationBegan", "ReservationEnded", "JobPlaced")]
    assert order == ["ReservationBegan", "ReservationEnded", "JobPlaced"]


async def test_what_if_reservation_shows_delayed_jobs(api: RunningController) -> None:
    await api.join("gpu01")
    running = await api.submit(gpus=8, time_limit_s=1800.0, grace_s=0.0)
    await api.placed(running)
    waiting = await api.submit(gpus=8, time_limit_s=3600.0)
    status, answer = await api.post("/v1/what-if", {"reserve": [body()["reservation"]]})
    assert status == 200
    (shift,) = answer["shifts"]
    assert shift["job"] == waiting
    assert abs(shift["becomes"] - shift["was"] - 2400) < 5


async def test_reservation_survives_a_restart() -> None:
    with scratch() as home:
        async with start_controller(home) as api:
            await api.join("gpu01")
            await api.post("/v1/reservations", body(every_s=7200.0))
            _, before = await api.get("/v1/reservations/fans")
        async with start_controller(home) as api:
            assert (await api.get("/v1/reservations/fans"))[1] == before
