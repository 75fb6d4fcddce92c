"""GPU-hours, utilisation and energy through the API: who, when, and how well."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import inputs
from tests.controller.api.house import House
from wire.frames import AttemptStatus, GpuUse, Usage


async def used(house: House, by: str = "user", **window: int) -> dict[str, dict[str, Any]]:
    """The rows by name."""
    query = "&".join(f"{name}={value}" for name, value in {"by": by, **window}.items())
    status, body = await house.get(f"/v1/usage?{query}")
    assert status == 200, body
    return {row["name"]: row for row in body["usage"]}


async def ran(house: House, gpus: float, use: GpuUse | None, **asked: Any) -> int:
    """A job that ran and ended."""
    job = await house.submit(gpus=gpus, **asked)
    await house.placed(job)
    [node] = house.daemon.state.jobs[job].members
    for status in (
        AttemptStatus(job, 1, 9, 1.0),
        AttemptStatus(job, 1, 9, 1.0, 2.0, 0, usage=Usage(3.6, 10, use)),
    ):
        await house.told(inputs.AgentReported(node, status))
    return job


async def test_use_is_added_up_by_whom_it_is_asked_for(house: House) -> None:
    await house.join("gpu01", gpus=8)
    one = await ran(house, 2, GpuUse(80.0, 95, 70_000, 12.5), project="vision")
    await ran(house, 1, GpuUse(20.0, 40, 10_000, 2.5), project="speech")
    await ran(house, 0, None, project="speech")
    by_project = await used(house, "project")
    assert {name: row["jobs"] for name, row in by_project.items()} == {"vision": 1, "speech": 2}
    assert (by_project["vision"]["utilisation"], by_project["vision"]["p95"]) == (80.0, 95)
    assert by_project["vision"]["energy_wh"] == 12.5
    assert by_project["speech"]["peak_mib"] == 10_000
    [everybody] = (await used(house)).values()
    assert everybody["energy_wh"] == 15.0
    assert 20.0 < everybody["utilisation"] <= 80.0
    assert set(await used(house, "job")) >= {str(one)}
    _, shown = await house.get(f"/v1/jobs/{one}")
    assert shown["job"]["use"] == {"mean": 80.0, "p95": 95, "peak_mib": 70_000, "wh": 12.5}


async def test_only_the_window_counts(house: House) -> None:
    await house.join("gpu01", gpus=8)
    await ran(house, 2, GpuUse(80.0, 95, 70_000, 12.5))
    far = int(house.daemon.now()) + 10_000
    assert await used(house, since=far - 5_000, until=far) == {}
    assert await used(house, since=0, until=1_000) == {}


@pytest.mark.parametrize("query", ["since=5&until=5", "by=planet", "since=-1"])
async def test_a_window_that_is_none_is_refused(house: House, query: str) -> None:
    assert (await house.get(f"/v1/usage?{query}"))[0] == 400
