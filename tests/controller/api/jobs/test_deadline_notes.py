"""The note of a submit with a deadline: whether the plan meets the deadline, and what would."""

from __future__ import annotations

from typing import Any

from tests.controller.api.running_controller import RunningController, start_controller

HOUR_S = 3_600.0


async def _note(api: RunningController, within_h: float, **spec: Any) -> str:
    """The note of a submit of a job of one hour with a deadline in this many hours."""
    asked = {"command": ["true"], "time_limit_s": HOUR_S, "grace_s": 0, **spec}
    asked["deadline_at"] = api.daemon.now() + within_h * HOUR_S
    status, answer = await api.post("/v1/jobs", {"spec": asked})
    assert status == 201, answer
    [note] = answer["notes"]
    return str(note)


async def test_a_deadline_that_the_plan_meets(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    assert "starts at once" in await _note(api, 5, gpus=8)
    note = await _note(api, 5, gpus=8)
    assert note.startswith("the plan meets the deadline: job 2 starts in ")
    assert "has to start within 4h00m" in note or "has to start within 3h59m" in note
    held = await _note(api, 5, gpus=8, hold=True)
    assert held.startswith("job 3 is held; it has to start within ")


async def test_preemption_by_an_operator_would_meet_the_deadline(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    job = await api.submit(gpus=8, time_limit_s=10 * HOUR_S, grace_s=0)
    await api.started(job)
    note = await _note(api, 3, gpus=8)
    assert note.startswith("the plan misses the deadline: job 2 has to start within ")
    assert "but enough nodes may become free only in " in note
    assert note.endswith(
        "The job would meet its deadline if an operator preempted job 1: corral job preempt 1"
    )


async def test_a_higher_quota_would_meet_the_deadline() -> None:
    async with start_controller(quota={"projects": {"llm": {"gpus": 4}}}) as api:
        await api.join("gpu01", gpus=8)
        await api.placed(await api.submit(gpus=4, project="llm", time_limit_s=10 * HOUR_S, grace_s=0))
        note = await _note(api, 3, gpus=2, project="llm")
        assert "the quota of project 'llm' on GPUs: 4 of 4 in use" in note
        assert note.endswith(
            "The job would meet its deadline if an operator raised the quota of project llm to 6 GPUs: "
            "corral quota set project llm gpus=6"
        )


async def test_another_queue_would_meet_the_deadline() -> None:
    queues: dict[str, Any] = {"short": {"max_running": 1}, "urgent": {"priority": 10}}
    async with start_controller(queues=queues) as api:
        await api.join("gpu01", gpus=8)
        await api.placed(await api.submit(gpus=1, time_limit_s=10 * HOUR_S, grace_s=0))
        # The first waiting job needs the whole node for a day, so this job may not start before its end.
        await api.submit(gpus=8, time_limit_s=24 * HOUR_S, grace_s=0)
        note = await _note(api, 13, gpus=1, time_limit_s=12 * HOUR_S)
        assert note.endswith(
            "The job would meet its deadline if it was in queue urgent: corral job set 3 --queue urgent"
        )


async def test_no_change_would_meet_the_deadline(api: RunningController) -> None:
    await api.join("gpu01", gpus=8)
    job = await api.submit(gpus=8, time_limit_s=10 * HOUR_S, grace_s=0, preemptible=False)
    await api.started(job)
    note = await _note(api, 3, gpus=8, priority=10)
    assert note.endswith("Neither a higher quota nor another queue nor preemption would help")
