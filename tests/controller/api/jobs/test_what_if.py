"""What-if for every kind of change; none changes the state."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.model.inputs import job_inputs, node_inputs
from tests.controller.api.jobs.test_forecasts import HOUR, full_house
from tests.controller.api.running_controller import RunningController

TWO_CLASSES = '[preemption]\nstrategies = [{ name = "priority", least = 0, gap = 1 }]\nmin_runtime_s = 0.0\n'


async def asked(api: RunningController, **question: Any) -> dict[str, Any]:
    """The answer; nothing has happened because of it."""
    before = api.daemon.seq
    status, message = await api.post("/v1/what-if", question)
    assert status == 200, message
    assert api.daemon.seq == before
    answer: dict[str, Any] = message
    return answer


def moves(answer: dict[str, Any]) -> dict[int, str]:
    """Whether each job would start sooner or later."""

    def direction(shift: dict[str, Any]) -> str:
        at = [float("inf") if shift[name] is None else shift[name] for name in ("was", "becomes")]
        return "sooner" if at[1] < at[0] else "later"

    return {shift["job"]: direction(shift) for shift in answer["shifts"]}


async def test_what_if_priority_changes(api: RunningController) -> None:
    first = await full_house(api)
    last = await api.submit(gpus=8, time_limit_s=HOUR)
    answer = await asked(api, edit=[{"job": last, "changes": {"priority": 90}}])
    assert moves(answer) == {first: "later", last: "sooner"}


async def test_what_if_invalid_edit_is_refused(api: RunningController) -> None:
    waiting = await full_house(api)
    answer = await asked(api, edit=[{"job": waiting, "changes": {"gpus": 9}}, {"job": 99, "changes": {}}])
    assert "can never be placed" in answer["refused"][0]
    assert "there is no job 99" in answer["refused"][1]


async def test_what_if_refused_submit_is_no_failure(
    api: RunningController, capfd: pytest.CaptureFixture[str]
) -> None:
    await full_house(api)
    answer = await asked(api, submit=[{"command": ["true"], "gpus": 99}])
    assert "can never be placed" in answer["refused"][0]
    assert answer["complete"]
    assert "Traceback" not in capfd.readouterr().err


async def test_what_if_preempt_hold_and_release(api: RunningController) -> None:
    first = await full_house(api)
    held = await api.submit(gpus=8, time_limit_s=HOUR, priority=90, hold=True)
    last = await api.submit(gpus=8, time_limit_s=HOUR)
    assert moves(await asked(api, hold=[first])) == {first: "later", last: "sooner"}
    assert moves(await asked(api, release=[held])) == {first: "later", held: "sooner", last: "later"}
    moved = await asked(api, preempt=[1])
    message = moves(moved), moved["trifles"]
    assert message == ({}, 2), "it goes back to its old place and starts again: the others lose seconds"
    assert "only queued jobs can be held" in (await asked(api, hold=[1]))["refused"][0]


async def test_what_if_nodes_are_added(api: RunningController) -> None:
    waiting = await full_house(api)
    answer = await asked(api, nodes=[{"like": "gpu01", "count": 2}])
    assert moves(answer) == {waiting: "sooner"}
    assert answer["shifts"][0]["nodes"] == ["gpu01+1"]
    status, problem = await api.post("/v1/what-if", {"nodes": [{"like": "nowhere"}]})
    assert (status, problem["code"]) == (404, "not_found")
    status, problem = await api.post("/v1/what-if", {"nodes": [{"like": "gpu01", "count": 5_000}]})
    assert (status, problem["where"]) == (400, "nodes.count")


async def test_what_if_quota_is_set_and_removed(api: RunningController) -> None:
    waiting = await full_house(api)
    user = api.daemon.state.jobs[waiting].user
    answer = await asked(api, quotas=[{"scope": "user", "name": user, "quota": {"hard": {"gpus": 4}}}])
    assert moves(answer) == {waiting: "later"}
    await api.post(f"/v1/quotas/user/{user}/set", {"quota": {"hard": {"running": 0}}})
    answer = await asked(api, quotas=[{"scope": "user", "name": user}])
    assert moves(answer) == {waiting: "sooner"}


async def test_jobs_with_an_unknown_start_are_counted_as_not_known(api: RunningController) -> None:
    """A job without a time limit fills the node, so no forecast gives a start of the three jobs behind it."""
    await api.join("gpu01")
    endless = await api.submit(gpus=8)
    await api.started(endless)
    for _ in range(3):
        await api.submit(gpus=8, time_limit_s=HOUR)
    counted = ("unchanged", "later", "sooner", "not_known", "now_unknown", "now_known")
    answer = await asked(api, drain=["gpu01"])
    assert [answer[name] for name in counted] == [0, 0, 0, 3, 0, 0]
    answer = await asked(api, cancel=[endless])
    assert [answer[name] for name in counted] == [0, 0, 3, 0, 0, 3]


async def test_a_start_that_is_known_only_without_the_change_is_counted(api: RunningController) -> None:
    waiting = await full_house(api)
    answer = await asked(api, drain=["gpu01"])
    assert moves(answer) == {waiting: "later"}
    assert (answer["later"], answer["not_known"], answer["now_unknown"]) == (1, 0, 1)


async def test_what_if_reservation_is_made_and_cancelled(api: RunningController) -> None:
    waiting = await full_house(api)
    kept = {
        "name": "fans",
        "starts_at": api.daemon.now() + 1.5 * HOUR,
        "duration_s": HOUR,
        "nodes": ["gpu01"],
    }
    assert moves(await asked(api, reserve=[kept])) == {waiting: "later"}
    status, message = await api.post("/v1/reservations", {"reservation": kept})
    assert status == 201, message
    assert moves(await asked(api, cancel_reservations=["fans"])) == {waiting: "sooner"}
    assert "there is no reservation" in (await asked(api, cancel_reservations=["x"]))["refused"][0]


async def test_what_if_node_is_resumed(api: RunningController) -> None:
    await api.join("gpu01")
    await api.post("/v1/nodes/gpu01/drain", {})
    waiting = await api.submit(gpus=8)
    assert moves(await asked(api, resume=["gpu01"])) == {waiting: "sooner"}


async def test_what_if_gpu_is_resumed_and_preempted_job_held(api: RunningController) -> None:
    await api.join("gpu01")
    await api.daemon.ask(node_inputs.CordonGpu("gpu01", 3, "root"))
    waiting = await api.submit(gpus=8, time_limit_s=60.0)
    answer = await asked(api, resume=["gpu01:3"])
    assert [(shift["job"], shift["becomes"] - answer["now"] < 1) for shift in answer["shifts"]] == [
        (waiting, True)
    ]
    assert answer["refused"] == []
    await api.daemon.ask(job_inputs.Hold(waiting, "root"))
    first = await api.submit(gpus=4, time_limit_s=3600.0)
    await api.started(first)
    second = await api.submit(gpus=7, time_limit_s=3600.0)
    held = await asked(api, preempt=[first], stay_held=True)
    assert [shift["job"] for shift in held["shifts"]] == [second]


async def test_what_if_submit_explains_why_the_job_would_wait(api: RunningController) -> None:
    await api.join("gpu01")
    await api.started(await api.submit(gpus=5))
    job = {"command": ["true"], "gpus": 4}
    answer = await asked(api, submit=[job])
    assert answer["why"]["sentence"].startswith("needs 1 node with 4 GPUs")
    assert [each["changes"] for each in answer["easings"] if each["changes"]] == [{"gpus": 3.0}]
    assert (await asked(api, submit=[{**job, **answer["easings"][0]["changes"]}]))["why"] is None
    assert (await asked(api, submit=[{**job, "hold": True}]))["why"]["reason"] == "held"
    assert (await asked(api, submit=[{**job, "gpus": 9}]))["why"] is None


# --- another configuration ---


async def test_what_if_queue_order_changes(api: RunningController) -> None:
    first = await full_house(api)
    last = await api.submit(gpus=8, time_limit_s=HOUR / 2)
    answer = await asked(api, config={"text": '[scheduler]\norder = "shortest"\n'})
    assert moves(answer) == {first: "later", last: "sooner"}
    assert answer["refused"] == []


async def test_what_if_preemption_is_enabled(api: RunningController) -> None:
    await full_house(api)
    urgent = await api.submit(gpus=8, priority=90, time_limit_s=HOUR)
    answer = await asked(api, config={"text": TWO_CLASSES})
    assert moves(answer)[urgent] == "sooner"
    assert [(each["job"], each["by"]) for each in answer["preempted"]] == [(1, str(urgent))]


async def test_what_if_overcommit_applies_to_present_nodes(api: RunningController) -> None:
    await api.join("gpu01")
    busy = await api.submit(cpu_milli=64_000, memory_mib=1)
    await api.started(busy)
    waiting = await api.submit(cpu_milli=32_000)
    assert moves(await asked(api, config={"text": "[overcommit]\ncpu = 1.5\n"})) == {waiting: "sooner"}


async def test_what_if_names_configuration_tables_that_are_ignored(api: RunningController) -> None:
    waiting = await full_house(api)
    answer = await asked(
        api, config={"text": '[nodes.gpu02]\nlink = "local"\n[scheduler]\nbackfill = "none"\n'}
    )
    assert "nodes" in answer["passed_over"]
    assert "controller" in answer["passed_over"]
    assert "scheduler" not in answer["passed_over"]
    assert (answer["unchanged"], answer["shifts"]) == (1, [])
    assert waiting == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[scheduler]\norder = "shortst"\n',
            "new.toml:2: scheduler.order: there is no order 'shortst'",
        ),
        ("[scheduler\n", "new.toml:1: is not TOML"),
        ("[sheduler]\n", "Did you mean 'scheduler'?"),
        ('[plugins]\nfiles = ["/tmp/evil.py"]\n', "/tmp/evil.py is not among the files"),
    ],
)
async def test_what_if_reports_configuration_errors(api: RunningController, text: str, message: str) -> None:
    await full_house(api)
    answer = await asked(api, config={"text": text, "name": "new.toml"})
    assert message in "\n".join(answer["refused"])
    assert answer["shifts"] == []
