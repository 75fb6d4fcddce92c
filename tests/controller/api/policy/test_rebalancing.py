"""Rebalancing through the API: proposals, moves, and their results."""

from __future__ import annotations

from typing import Any

from controller.core.model.inputs import agent_inputs
from tests.controller.api.running_controller import RunningController, start_controller
from wire.agent.reports import AttemptStatus

HOUR = 3600
SAVING = {"checkpoint_signal": "USR1", "time_limit_s": 9 * HOUR}
TABLES = {
    "rebalance": {"mode": "propose", "restart_s": 1.0},
    "preemption": {"min_runtime_s": 0.0},
    "scheduler": {"strategy": "spread"},
}


async def scattered(api: RunningController) -> tuple[list[int], int]:
    """Two nodes with a job of 2 GPUs each, and a waiting job that needs 8 GPUs on one node."""
    jobs = []
    for name in ("gpu01", "gpu02"):
        await api.join(name)
    for _ in range(2):
        jobs.append(await api.submit(gpus=2, **SAVING))
        await api.started(jobs[-1])
    return jobs, await api.submit(gpus=8, nodes=1)


async def gone(api: RunningController, job: int) -> None:
    """The agent reports the end of the job."""
    [node] = api.daemon.state.jobs[job].members
    attempt = api.daemon.state.jobs[job].attempt
    status = AttemptStatus(job, attempt, 100, 1.0, 2.0, signal=15, why="preempted")
    await api.handle(agent_inputs.AgentReported(node, status))


async def test_proposed_move_is_carried_out_and_shown() -> None:
    async with start_controller(**TABLES) as api:
        _, big = await scattered(api)
        status, answer = await api.get("/v1/rebalance")
        assert (status, answer["mode"]) == (200, "propose")
        [proposal] = answer["proposals"]
        assert (proposal["kind"], proposal["for_job"]) == ("defragment", big)
        [move] = proposal["moves"]
        assert move["origin"][0]["node"] != move["target"][0]["node"]
        assert proposal["worth"] >= 2 * proposal["gpu_hours"] > 0
        mover = move["job"]
        status, done = await api.post("/v1/rebalance/run", {"proposal": proposal["id"]})
        assert (status, [each["job"] for each in done["moves"]]) == (200, [mover])
        _, why = await api.get(f"/v1/jobs/{mover}")
        assert (why["job"]["reason"], why["why"]["reason"]) == ("moving", "moving")
        status, problem = await api.post("/v1/rebalance/run", {"proposal": proposal["id"]})
        assert (status, problem["code"]) == (404, "not_found"), "it is under way already"
        await gone(api, mover)
        await api.started(big)
        await api.started(mover)
        _, detail = await api.get(f"/v1/jobs/{mover}")
        [moved] = detail["moves"]
        assert moved["done_at"] is not None
        assert detail["job"]["held"][0]["node"] == move["target"][0]["node"]
        assert detail["preemptions"][0]["by"] == f"rebalancing {proposal['id']}"
        _, answer = await api.get("/v1/rebalance")
        assert [each["job"] for each in answer["moves"]] == [mover]
        _, events = await api.get("/v1/events", job=mover)
        assert "MovePlanned" in [event["kind"] for event in events["events"]]


async def test_rebalancing_is_off_by_default(api: RunningController) -> None:
    await scattered(api)
    _, answer = await api.get("/v1/rebalance")
    assert (answer["mode"], answer["proposals"]) == ("off", [])
    status, problem = await api.post("/v1/rebalance/run", {})
    assert (status, problem["code"]) == (409, "conflict")
    assert "[rebalance]" in problem["hint"]


async def test_automatic_rebalancing_moves_jobs_without_an_order() -> None:
    tables: dict[str, Any] = {**TABLES, "rebalance": {"mode": "auto", "interval_s": 1.0}}
    async with start_controller(**tables) as api:
        jobs, big = await scattered(api)
        state = api.daemon.state
        await api.until(lambda: bool(state.jobs[big].claim))
        [mover] = [job for job in jobs if state.jobs[job].move is not None]
        await gone(api, mover)
        await api.started(big)
        await api.started(mover)
        assert state.jobs[mover].moves[-1].done_at is not None
