"""Shares over HTTP: shown from the top down, changed by operators, tried before."""

from __future__ import annotations

from tests.controller.api.running_controller import RunningController


async def test_shares_are_shown_and_changed_live(api: RunningController) -> None:
    job = await api.submit(project="vision")
    await api.submit(project="speech")
    status, body = await api.get("/v1/shares")
    assert status == 200
    shares = {each["share"]: (each["weight"], each["part"]) for each in body["shares"]}
    user = next(each["path"][1] for each in body["shares"] if each["share"].startswith("vision/"))
    assert shares == {
        "vision": (1.0, 0.5),
        "speech": (1.0, 0.5),
        f"vision/{user}": (1.0, 1.0),
        f"speech/{user}": (1.0, 1.0),
    }
    status, body = await api.post("/v1/shares", {"share": "vision", "weight": 3})
    assert status == 200
    assert {each["share"]: each["part"] for each in body["shares"]}["vision"] == 0.75
    status, answer = await api.post("/v1/what-if", {"shares": [{"share": "speech", "weight": 9}]})
    assert (status, answer["refused"]) == (200, [])
    assert api.daemon.state.shares.set_weights == {"vision": 3.0}
    assert job in api.daemon.state.jobs


async def test_share_limits_are_set_live_shown_and_tried_in_what_if(api: RunningController) -> None:
    await api.submit(project="vision")
    status, answer = await api.post("/v1/what-if", {"shares": [{"share": "vision", "hard": 0}]})
    assert (status, answer["refused"]) == (200, [])
    assert api.daemon.state.shares.hard == {}
    status, body = await api.post("/v1/shares", {"share": "vision", "hard": 0, "soft": 5})
    assert status == 200
    vision, user = body["shares"]
    assert (vision["weight"], vision["soft"], vision["hard"]) == (1.0, 5.0, 0.0)
    assert (vision["stopped"], user["stopped"]) == ("vision", "vision")
    assert vision.get("until") is None  # no time will lift it
    status, body = await api.post("/v1/shares", {"share": "vision", "hard": -1})
    assert status == 200
    assert [each.get("stopped", "") for each in body["shares"]] == ["", ""]
    status, events = await api.get("/v1/events")
    shares = [each["text"] for each in events["events"] if each["kind"] == "ShareSet"]
    assert [each.partition(" gave ")[2] for each in shares] == [
        "vision the soft limit 5, the hard limit 0",
        "vision no hard limit",
    ]


async def test_invalid_weight_is_refused_with_its_field(api: RunningController) -> None:
    status, problem = await api.post("/v1/shares", {"share": "vision", "weight": -1})
    assert (status, problem["where"]) == (400, "weight")
    assert "above 0" in problem["message"]
    status, problem = await api.post("/v1/shares", {"share": "a/b/c", "weight": 1})
    assert (status, problem["where"]) == (400, "share")
