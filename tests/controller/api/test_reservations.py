"""Reservations through the API."""

from __future__ import annotations

import time
from typing import Any

from tests.controller.api.house import House, living
from tests.controller.store.scratch import scratch


def body(name: str = "fans", **more: Any) -> dict[str, Any]:
    asked = {"name": name, "starts_at": time.time() + 3600, "duration_s": 600.0, "nodes": ["gpu01"], **more}
    return {"reservation": asked}


async def test_a_reservation_is_made_kept_to_seen_and_cancelled(house: House) -> None:
    await house.join("gpu01")
    status, made = await house.post("/v1/reservations", body(why="new fans"))
    assert (status, made["nodes"], made["on"], made["spec"]["why"]) == (201, ["gpu01"], False, "new fans")
    waiting = await house.submit(gpus=1)
    assert await house.placed(await house.submit(gpus=1, time_limit_s=60.0)) == ["gpu01"]
    _, told = await house.get(f"/v1/jobs/{waiting}/explain")
    assert told["why"]["reason"] == "reservation"
    assert "reservation 'fans' begins in" in told["why"]["sentence"]
    assert told["job"]["reason"] == "reservation"
    assert abs(told["starts_at"] - made["ends_at"]) < 1
    assert (await house.get("/v1/reservations"))[1]["reservations"][0]["jobs"] == [waiting + 1]
    assert (await house.get("/v1/reservations/fans"))[0] == 200
    status, problem = await house.post("/v1/reservations", body())
    assert (status, problem["code"], problem["where"]) == (409, "conflict", "name")
    assert (await house.post("/v1/reservations/fans/cancel"))[0] == 200
    assert await house.placed(waiting) == ["gpu01"]
    status, problem = await house.post("/v1/reservations/fans/cancel")
    assert (status, problem["code"]) == (404, "not_found")
    _, events = await house.get("/v1/events")
    told = [event["text"] for event in events["events"] if event["kind"].startswith("Reservation")]
    me = (await house.get("/v1/health"))[1]["user"]
    assert told == [f"{me} made reservation fans on gpu01", f"{me} cancelled reservation fans"]


async def test_its_time_comes_and_goes_by_itself(house: House) -> None:
    await house.join("gpu01")
    await house.post("/v1/reservations", body(starts_at=time.time() + 0.05, duration_s=0.2))
    waiting = await house.submit()
    assert await house.placed(waiting) == ["gpu01"]
    kinds = [event["kind"] for event in (await house.get("/v1/events"))[1]["events"]]
    assert kinds[-3:] == ["ReservationBegan", "ReservationEnded", "JobPlaced"]


async def test_what_if_it_were_made(house: House) -> None:
    await house.join("gpu01")
    running = await house.submit(gpus=8, time_limit_s=1800.0)
    await house.placed(running)
    waiting = await house.submit(gpus=8, time_limit_s=3600.0)
    status, answer = await house.post("/v1/what-if", {"reserve": [body()["reservation"]]})
    assert status == 200
    (shift,) = answer["shifts"]
    assert shift["job"] == waiting
    assert abs(shift["becomes"] - shift["was"] - 2400) < 5


async def test_it_is_there_after_a_restart() -> None:
    with scratch() as home:
        async with living(home) as house:
            await house.join("gpu01")
            await house.post("/v1/reservations", body(every_s=7200.0))
            _, before = await house.get("/v1/reservations/fans")
        async with living(home) as house:
            assert (await house.get("/v1/reservations/fans"))[1] == before
