"""The table of jobs: chosen columns and jobs, and jobs that only the store still has."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from controller.api.views.job_table import COLUMNS
from tests.controller.api.running_controller import RunningController
from wire.api.job_table import JOB_COLUMNS


async def table(api: RunningController, query: str, columns: str = "label,state") -> list[list[Any]]:
    wanted = "&".join(f"column={name}" for name in columns.split(","))
    status, answer = await api.get(f"/v1/job-table?{wanted}&{query}")
    assert status == 200, answer
    assert answer["columns"] == columns.split(",")
    rows: list[list[Any]] = answer["rows"]
    return rows


def test_each_column_is_described_and_read() -> None:
    assert list(JOB_COLUMNS) == list(COLUMNS)


async def test_ended_jobs_are_listed_since_a_time(api: RunningController) -> None:
    await api.join("gpu01")
    ended, running = await api.submit(), await api.submit(gpus=2)
    await api.started(ended)
    await api.started(running)
    await api.ended(ended, code=3)
    assert await table(api, "") == [[str(running), "RUNNING"]]
    assert await table(api, "since=0") == [[str(ended), "FAILED"], [str(running), "RUNNING"]]
    late = int(api.daemon.now()) + 1_000
    assert await table(api, f"since={late}") == [[str(running), "RUNNING"]]
    assert await table(api, "since=0", "exit_code,started_at") != []


async def test_jobs_and_elements_are_named(api: RunningController) -> None:
    first = await api.submit()
    await api.post("/v1/jobs", {"spec": {"command": ["true"], "array": "1-3%2", "comment": "a b"}})
    array = first + 1
    rows = await table(api, f"job={quote(f'{array}_[1-2]')}&job={first}&job=999", "label,array_text,comment")
    assert rows == [["1", "", ""], ["2_1", "1-3%2", "a b"], ["2_2", "1-3%2", "a b"]]
    assert await table(api, f"job={array}") == [[f"2_{each}", "QUEUED"] for each in (1, 2, 3)]
    assert await table(api, f"job={array + 1}") == [["2_2", "QUEUED"]]
    assert await table(api, "user=nobody") == []
    status, problem = await api.get("/v1/job-table?column=id&job=all")
    assert (status, problem["where"]) == (400, "job")


async def test_jobs_are_selected_by_their_labels(api: RunningController) -> None:
    for labels in ({"app": "db"}, {"app": "db", "zone": "a=b"}, {}):
        await api.post("/v1/jobs", {"spec": {"command": ["true"], "labels": labels}})
    assert await table(api, "label=app%3Ddb", "id") == [[1], [2]]
    assert await table(api, f"label=app%3Ddb&label={quote('zone=a=b')}", "id") == [[2]]
    assert await table(api, "label=app%3D", "id") == []
    status, problem = await api.get("/v1/job-table?column=id&label=app")
    assert (status, problem["where"]) == (400, "label")


async def test_jobs_that_left_the_memory_come_from_the_store(api: RunningController) -> None:
    await api.join("gpu01")
    job = await api.submit()
    await api.started(job)
    await api.ended(job)
    state = api.daemon.state
    del state.jobs[job]
    state.forgot = True
    assert await table(api, "since=0") == [[str(job), "COMPLETED"]]
    assert await table(api, f"job={job}") == [[str(job), "COMPLETED"]]


@pytest.mark.parametrize("query", ["", "column=nothing", "column=id&since=x"])
async def test_wrong_queries_are_refused(api: RunningController, query: str) -> None:
    status, problem = await api.get(f"/v1/job-table?{query}")
    assert (status, problem["code"]) == (400, "invalid")


async def test_all_columns_have_values_in_every_state(api: RunningController) -> None:
    await api.join("gpu01")
    running = await api.submit(gpus=1, gpu_models=["H100"], licences={}, output="a-%j")
    await api.started(running)
    held = await api.submit(hold=True)
    rows = await table(api, "", ",".join(JOB_COLUMNS))
    one, two = (dict(zip(JOB_COLUMNS, row, strict=True)) for row in rows)
    assert (one["id"], two["id"], two["hold"]) == (running, held, "user")
    ((node, _, _, gpus),) = one["held"]
    assert (node, gpus, one["gpus"]) == ("gpu01", [[0, 1000]], 1)
