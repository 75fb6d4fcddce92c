"""Shares over HTTP: shown from the top down, changed by operators, tried before."""

from __future__ import annotations

from tests.controller.api.house import House


async def test_shares_are_shown_and_changed_live(house: House) -> None:
    job = await house.submit(project="vision")
    await house.submit(project="speech")
    status, body = await house.get("/v1/shares")
    assert status == 200
    told = {each["share"]: (each["weight"], each["part"]) for each in body["shares"]}
    user = next(each["path"][1] for each in body["shares"] if each["share"].startswith("vision/"))
    assert told == {
        "vision": (1.0, 0.5),
        "speech": (1.0, 0.5),
        f"vision/{user}": (1.0, 1.0),
        f"speech/{user}": (1.0, 1.0),
    }
    status, body = await house.post("/v1/shares", {"share": "vision", "weight": 3})
    assert status == 200
    assert {each["share"]: each["part"] for each in body["shares"]}["vision"] == 0.75
    status, answer = await house.post("/v1/what-if", {"shares": [{"share": "speech", "weight": 9}]})
    assert (status, answer["refused"]) == (200, [])
    assert house.daemon.state.shares.live == {"vision": 3.0}
    assert job in house.daemon.state.jobs


async def test_a_weight_that_means_nothing_is_refused_with_its_place(house: House) -> None:
    status, problem = await house.post("/v1/shares", {"share": "vision", "weight": -1})
    assert (status, problem["where"]) == (400, "weight")
    assert "above 0" in problem["message"]
    status, problem = await house.post("/v1/shares", {"share": "a/b/c", "weight": 1})
    assert (status, problem["where"]) == (400, "share")
