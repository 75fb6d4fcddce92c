"""Queues over HTTP: each with its policy in words, its settings and its use."""

from __future__ import annotations

from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.store.scratch import scratch


async def test_queues_are_listed_with_their_policy_and_use() -> None:
    queues = {
        "book": {"priority": 10, "max_running_per_user": 2, "preemptible": False},
        "scavenge": {"exempt": ["quota"]},
    }
    async with start_controller(queues=queues) as api:
        for queue in ("book", "book", "default"):
            status, _ = await api.post(
                "/v1/jobs", {"spec": {"command": ["true"], "queue": queue, "hold": True}}
            )
            assert status == 201
        status, body = await api.get("/v1/queues")
        quotas = (await api.get("/v1/quotas"))[1]["quotas"]
    assert status == 200
    (book,) = (each for each in quotas if (each["scope"], each["name"]) == ("queue", "book"))
    assert "each user at most 2 running jobs" in book["policy"]
    found = {each["name"]: each for each in body["queues"]}
    assert list(found) == ["book", "default", "scavenge"]
    assert found["book"]["policy"][-2:] == [
        "each user at most 2 running jobs",
        "its jobs are never preempted or moved",
    ]
    assert found["book"]["settings"] == queues["book"]
    assert [each["waiting"] for each in found.values()] == [2, 1, 0]


async def test_queues_without_tables_are_those_with_jobs(api: RunningController) -> None:
    assert (await api.get("/v1/queues"))[1]["queues"] == []
    await api.post("/v1/jobs", {"spec": {"command": ["true"], "queue": "any", "hold": True}})
    (found,) = (await api.get("/v1/queues"))[1]["queues"]
    assert (found["name"], found["policy"], found["settings"], found["waiting"]) == ("any", [], {}, 1)


async def test_queue_shows_the_waits_and_ends_of_the_last_day() -> None:
    with scratch() as home:
        async with start_controller(home, queues={"short": {"wait_target_s": 60.0}}) as api:
            await api.join("gpu01", gpus=1)
            for code in (0, 1):
                job = await api.submit(gpus=1, queue="short")
                await api.started(job)
                await api.ended(job, code)
            await api.submit(gpus=1, queue="short")
            _, body = await api.get("/v1/queues")
            [short] = [each for each in body["queues"] if each["name"] == "short"]
            figures = api.daemon.accounting.periods.at(api.daemon.now()).queues["short"]
            assert (figures.with_target, figures.in_target) == (3, 3)
        async with start_controller(home) as api:
            again = {each["name"]: each for each in (await api.get("/v1/queues"))[1]["queues"]}["short"][
                "day"
            ]
    day = short["day"]
    assert (day["started"], day["completed"], day["failed"]) == (3, 1, 1)
    assert (day["wait_p50_s"], day["wait_p95_s"]) == (0.0, 0.0)
    assert day["ended_per_hour"] > 0
    assert again["started"] >= 1, "the figures are stored"
