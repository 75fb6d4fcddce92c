"""Changes that a user confirmed after a what-if answer: they are refused if the effect is now another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.api.handlers.jobs import shown_effects
from controller.api.handlers.jobs.shown_effects import KEPT_S, _shown, differences
from tests.controller.api.jobs.test_forecasts import HOUR, full_house
from tests.controller.api.running_controller import Answer, RunningController
from wire.api.forecasts import Shift, WhatIfAnswer
from wire.api.reasons import Ousted

NOW = 1_000_000.0


def shift(job: int, was: float | None, becomes: float | None, **more: Any) -> Shift:
    start, end = (None if at is None else NOW + at for at in (was, becomes))
    return Shift(job, str(job), f"job-{job}", "ada", start, end, **more)


def answer(*shifts: Shift, **more: Any) -> WhatIfAnswer:
    later = sum(each.was is not None and (each.becomes or 9e9) > each.was for each in shifts if not each.new)
    return WhatIfAnswer(NOW, shifts, 0, later=later, **more)


def test_equal_and_better_effects_are_no_difference() -> None:
    shown = answer(shift(1, HOUR, 2 * HOUR), shift(2, HOUR, 60.0))
    assert differences(shown, shown) == []
    assert differences(shown, answer(shift(2, HOUR, 60.0))) == []
    assert differences(shown, answer(shift(1, HOUR, 2 * HOUR + 300), shift(2, HOUR, 60.0))) == []


def test_jobs_that_lose_more_than_shown_are_named_the_greatest_loss_first() -> None:
    shown = answer(shift(1, HOUR, 2 * HOUR), shift(2, 4 * HOUR, HOUR))
    found = answer(shift(1, HOUR, 3 * HOUR), shift(3, HOUR, None), shift(2, 4 * HOUR, 3 * HOUR))
    assert differences(shown, found) == [
        "the start of job 3 (ada) would not be known",
        "job 2 (ada) would start 2h00m later than shown",
        "job 1 (ada) would start 1h00m later than shown",
    ]


def test_new_job_is_compared_although_its_id_has_changed() -> None:
    shown = answer(shift(7, None, 60.0, new=True))
    assert differences(shown, answer(shift(9, None, 120.0, new=True))) == []
    assert differences(shown, answer(shift(9, None, HOUR, new=True))) == [
        "the new job (ada) would start 59m00s later than shown"
    ]


def test_further_refusals_and_preemptions_are_differences() -> None:
    victim = Ousted(5, "5", "train", "bo", 1.0)
    found = replace(answer(), refused=("job 4 has ended",), preempted=(victim,))
    assert differences(answer(), found) == [
        "it would be refused: job 4 has ended",
        "job 5 would be preempted",
    ]


def test_job_outside_of_the_shown_answer_is_no_difference() -> None:
    late = answer(shift(3, 10 * HOUR, 20 * HOUR))
    assert differences(answer(complete=False, covers_until=NOW + HOUR), late) == []
    assert differences(replace(answer(), later=500), late) == [], "only 200 delayed jobs are listed"


async def shown_cancel(api: RunningController, *jobs: int) -> str:
    status, message = await api.post("/v1/what-if", {"cancel": list(jobs)})
    assert status == 200
    id: str = message["id"]
    return id


async def cancel(api: RunningController, job: int, what_if: str) -> Answer:
    return await api.ask("POST", f"/v1/jobs/{job}/cancel", headers={"Corral-What-If": what_if})


async def test_change_with_the_shown_effect_is_carried_out(api: RunningController) -> None:
    waiting = await full_house(api)
    id = await shown_cancel(api, waiting)
    await api.submit(hold=True)  # The journal has a new entry, but the effect is the same.
    assert (await cancel(api, waiting, id))[0] == 200


async def test_change_is_refused_if_the_job_has_started_since(api: RunningController) -> None:
    waiting = await full_house(api)
    id = await shown_cancel(api, waiting)
    await api.ended(1)
    await api.started(waiting)
    status, problem = await cancel(api, waiting, id)
    assert (status, problem["code"], problem["where"]) == (409, "conflict", "effect")
    assert f"job {waiting} is RUNNING, attempt 1 (was QUEUED, attempt 0)" in problem["message"]
    assert not api.daemon.state.jobs[waiting].state.terminal
    assert (await cancel(api, waiting, await shown_cancel(api, waiting)))[0] == 200


async def test_drain_is_refused_if_it_now_delays_another_job(api: RunningController) -> None:
    await full_house(api)
    await api.join("gpu02")
    status, shown = await api.post("/v1/what-if", {"drain": ["gpu02"]})
    assert (status, shown["later"]) == (200, 0)
    # After the drain, only gpu01 is left for these jobs, so the second one starts an hour later.
    await api.submit(gpus=8, time_limit_s=HOUR)
    last = await api.submit(gpus=8, time_limit_s=HOUR)
    headers = {"Corral-What-If": shown["id"]}
    status, problem = await api.ask("POST", "/v1/nodes/gpu02/drain", data=b"{}", headers=headers)
    assert (status, problem["where"]) == (409, "effect")
    assert f"job {last} " in problem["message"]
    assert "later than shown" in problem["message"]
    assert not api.daemon.state.nodes.get("gpu02").drained


async def test_one_answer_serves_a_change_of_several_nodes(api: RunningController) -> None:
    for name in ("gpu01", "gpu02"):
        await api.join(name)
    _, shown = await api.post("/v1/what-if", {"drain": ["gpu01", "gpu02"]})
    for name in ("gpu01", "gpu02"):
        headers = {"Corral-What-If": shown["id"]}
        assert (await api.ask("POST", f"/v1/nodes/{name}/drain", data=b"{}", headers=headers))[0] == 200


async def test_unknown_answer_is_refused_and_few_are_remembered(
    api: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_effects, "MOST_OF_USER", 2)
    waiting = await full_house(api)
    ids = [await shown_cancel(api, waiting) for _ in range(3)]
    assert (await cancel(api, waiting, ids[0]))[0] == 409
    assert list(_shown[api.daemon]) == ids[1:]
    for each in _shown[api.daemon].values():
        each.shown_at -= KEPT_S + 1.0
    await shown_cancel(api, waiting)
    assert len(_shown[api.daemon]) == 1
    assert (await cancel(api, waiting, "f" * 16))[1]["where"] == "effect"
