"""Workloads over HTTP: submit, preview, list, show, cancel, retry, and who may do this."""

from __future__ import annotations

import json
from pathlib import Path

from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.api.server.test_identity import visit

SPEC = {
    "name": "sweep",
    "tasks": [
        {
            "name": "prepare",
            "spec": {"command": ["prepare"], "gpus": 1, "time_limit_s": 600, "env": {"KEY": "x"}},
        },
        {
            "name": "train",
            "spec": {"command": ["train"], "gpus": 1, "time_limit_s": 3_600},
            "elements": [{"command": ["train", "--lr", rate]} for rate in ("1", "2", "3")],
            "after": [{"task": "prepare", "until": "ok"}],
            "max_parallel": 2,
        },
    ],
}


async def submitted(api: RunningController, key: str = "") -> int:
    status, answer = await api.post("/v1/workloads", {"spec": SPEC, "key": key})
    assert status == 201, answer
    number: int = answer["workload"]["id"]
    return number


async def test_a_workload_is_submitted_shown_and_retried() -> None:
    async with start_controller() as api:
        await api.join("gpu01")
        number = await submitted(api, "k")
        assert await submitted(api, "k") == number
        await api.ended(1)
        for job in (2, 3):
            await api.started(job)
        await api.ended(2, code=1)
        status, seen = await api.get(f"/v1/workloads/{number}")
        assert (status, seen["state"], seen["total"], seen["completed"], seen["failed"]) == (
            200,
            "RUNNING",
            4,
            1,
            1,
        )
        assert [(task["name"], task["after"], task["jobs"]) for task in seen["tasks"]] == [
            ("prepare", [], ["1"]),
            ("train", ["prepare"], ["2_[0-2]"]),
        ]
        left = seen["ends_at"] - api.daemon.now()
        assert 3_000 < left < 3_700, "two jobs of an hour run beside each other"
        for job in (3, 4):
            await api.ended(job)
        assert (await api.get("/v1/workloads"))[1]["workloads"] == []
        [over] = (await api.get("/v1/workloads", all=1, user="root"))[1]["workloads"]
        assert (over["state"], over["ends_at"], over["ended_at"] is not None) == ("FAILED", None, True)
        status, again = await api.post(f"/v1/workloads/{number}/retry", {})
        assert (status, again["jobs"], again["workload"]["tasks"][1]["jobs"]) == (
            200,
            [5],
            ["2_[1-2]", "5_[0]"],
        )
        assert (await api.get("/v1/jobs/5_0"))[1]["spec"]["command"] == ["train", "--lr", "1"]
        status, over = await api.post(f"/v1/workloads/{number}/cancel")
        assert (status, over["jobs"]) == (200, [5])
        assert (await api.post("/v1/workloads/99/cancel"))[0] == 404
        assert (await api.get("/v1/workloads/x"))[0] == 404


async def test_the_folded_queue_has_one_row_for_each_workload_and_array() -> None:
    async with start_controller() as api:
        await api.join("gpu01")
        await submitted(api)
        array = await api.submit(array="0-2", gpus=1, time_limit_s=600)
        alone = await api.submit(gpus=1)
        await api.started(array)
        await api.ended(array, code=1)
        states = [("state", "QUEUED"), ("state", "SCHEDULED"), ("state", "RUNNING"), ("folded", "1")]
        status, seen = await api.ask("GET", "/v1/jobs", params=states)
        assert (status, [job["id"] for job in seen["jobs"]], seen["total"]) == (200, [alone], 7)
        assert [
            (each["kind"], each["label"], each["name"], each["total"], each["failed"])
            for each in seen["groups"]
        ] == [("workload", "workload 1", "sweep", 4, 0), ("array", str(array), "true", 3, 1)]
        assert seen["groups"][1]["running"] + seen["groups"][1]["waiting"] == 2
        await api.daemon.expected_times.fresh()
        seen = (await api.ask("GET", "/v1/jobs", params=states))[1]
        workload, elements = (each["ends_at"] - api.daemon.now() for each in seen["groups"])
        assert 7_200 <= workload < 8_000, "the second pair of trainings begins after an hour and ten minutes"
        assert 500 < elements < 700
        assert (await api.get("/v1/jobs/2_1"))[1]["job"]["task"] == "train"
        last = [("after", "1"), ("folded", "1")]
        assert (await api.ask("GET", "/v1/jobs", params=last))[1]["groups"] == []


async def test_a_preview_shows_the_jobs_and_queues_none() -> None:
    async with start_controller() as api:
        await api.join("gpu01")
        status, seen = await api.post("/v1/workloads/preview", {"spec": SPEC})
        assert status == 200
        assert [(job["task"], job["index"], job["after"]) for job in seen["jobs"]] == [
            ("prepare", None, []),
            ("train", 0, ["prepare"]),
            ("train", 1, ["prepare"]),
            ("train", 2, ["prepare"]),
        ]
        assert all(job["spec"]["memory_mib"] > 0 for job in seen["jobs"]), "the defaults are filled in"
        wrong = json.loads(json.dumps(SPEC))
        wrong["tasks"][1]["spec"]["gpus"] = 64
        status, problem = await api.post("/v1/workloads/preview", {"spec": wrong})
        assert (status, problem["where"]) == (422, "spec.tasks.train.gpus")
        assert api.daemon.state.jobs == {}


async def test_events_show_neither_commands_nor_environment_of_a_workload() -> None:
    async with start_controller() as api:
        await submitted(api)
        events = (await api.get("/v1/events"))[1]["events"]
        [event] = [event for event in events if event["kind"] == "WorkloadSubmitted"]
        assert event["data"]["asked"]["tasks"] == ["prepare", "train"]
        assert event["text"] == "root submitted workload 1 (sweep): prepare, train"
        assert "KEY" not in json.dumps(events)


async def test_only_the_user_and_operators_change_a_workload() -> None:
    async with start_controller(access={"operators": ["nobody"]}) as api:
        await submitted(api)
        [(status, problem)] = await visit(api, 65_000, ("POST", "/v1/workloads/1/cancel", {}))
        assert (status, problem["code"]) == (403, "not_allowed")


async def test_a_workload_survives_a_restart(tmp_path: Path) -> None:
    async with start_controller(tmp_path) as api:
        await submitted(api, "k")
    async with start_controller(tmp_path) as api:
        assert await submitted(api, "k") == 1
        [seen] = (await api.get("/v1/workloads"))[1]["workloads"]
        assert (seen["name"], seen["total"], seen["waiting"], seen["state"]) == ("sweep", 4, 4, "QUEUED")
