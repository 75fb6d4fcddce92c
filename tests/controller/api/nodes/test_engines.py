"""Execution engines through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.engines.contract import ForeignState
from controller.engines.serverless.function_options import FunctionOptions
from tests.controller.api.running_controller import RunningController
from tests.controller.engines.fake_engine import Rig
from tests.controller.engines.pools.pool_rig import PoolRig


@pytest.fixture
async def rig(api: RunningController, tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path / "fake")
    await made.round()
    made.connect()
    api.daemon.engines.drivers["fake"] = made.driver
    yield made
    del api.daemon.engines.drivers["fake"]


async def metrics(api: RunningController) -> str:
    async with api.session.get("http://corral/metrics") as answer:
        return await answer.text()


async def test_engines_are_shown_with_their_jobs(api: RunningController, rig: Rig) -> None:
    rig.world.initial = ForeignState.WAITING
    tag = rig.start(7)
    await rig.settle()
    rig.world.change(rig.world.of(tag)[0].ref, ForeignState.WAITING, "QOSGrpGRES", "gpu")
    await rig.round()
    status, found = await api.get("/v1/engines/fake")
    assert status == 200
    assert found["nodes"] == ["fake-n1", "fake-n2"]
    assert (found["live"], found["waiting"], found["open"]) == (1, 1, False)
    [job] = found["jobs"]
    assert (job["job"], job["state"], job["ref"], job["reason"]) == (7, "seen", "f1", "gpu: QOSGrpGRES")
    assert (await api.get("/v1/engines"))[1]["engines"] == [found]
    text = await metrics(api)
    assert 'corral_engine_up{engine="fake"} 1' in text
    assert 'corral_engine_jobs{engine="fake",state="seen"} 1' in text


async def test_explain_shows_the_reason_of_the_engine(api: RunningController, rig: Rig) -> None:
    await api.join("gpu01")
    job = await api.submit()
    await api.placed(job)
    rig.world.initial = ForeignState.WAITING
    tag = rig.start(job)
    await rig.settle()
    rig.world.change(rig.world.of(tag)[0].ref, ForeignState.WAITING, "QOSGrpGRES", "gpu")
    await rig.round()
    for path in (f"/v1/jobs/{job}", f"/v1/jobs/{job}/explain"):
        _, found = await api.get(path)
        assert found["why"]["sentence"] == "starting on gpu01; waits for fake:gpu: QOSGrpGRES", path


async def test_a_failing_engine_is_shown(api: RunningController, rig: Rig) -> None:
    rig.world.look_fails = "unable to contact the controller"
    await rig.rounds(4)
    _, found = await api.get("/v1/engines/fake")
    assert (found["open"], found["problem"]) == (True, "unable to contact the controller")
    _, tried = await api.post("/v1/engines/fake/test")
    assert tried["problem"] == "unable to contact the controller"
    assert 'corral_engine_up{engine="fake"} 0' in await metrics(api)


async def test_test_drain_and_resume(api: RunningController, rig: Rig) -> None:
    _, tried = await api.post("/v1/engines/fake/test")
    assert (tried["problem"], tried["complete"], tried["nodes"]) == ("", True, 2)
    _, found = await api.post("/v1/engines/fake/drain", {"why": "new version"})
    assert found["drained"] == "new version"
    await rig.round()
    assert rig.node_states["fake-n1"].why == "engine fake: new version"
    await rig.restart()
    assert rig.driver.drained == "new version"
    api.daemon.engines.drivers["fake"] = rig.driver
    await api.post("/v1/engines/fake/resume")
    await rig.round()
    assert not rig.node_states["fake-n1"].drained


async def test_an_unknown_engine_is_not_found(api: RunningController) -> None:
    status, problem = await api.get("/v1/engines/none")
    assert status == 404
    assert "there is no execution engine 'none'" in str(problem)


async def test_a_pool_is_shown_with_its_machines_and_money(api: RunningController, tmp_path: Path) -> None:
    pool = PoolRig(tmp_path / "burst", daily_cap=50.0)
    await pool.joined()
    pool.now = api.daemon.now()
    engines = api.daemon.engines
    engines.drivers["burst"], engines.pools["burst"] = pool.driver, pool.pools
    try:
        _, found = await api.get("/v1/engines/burst")
        [machine] = found["pool"]["machines"]
        assert (machine["state"], machine["shape"], machine["price_per_hour"]) == ("joined", "small", 1.0)
        assert machine["cost"] > 0
        assert (found["pool"]["daily_cap"], found["pool"]["ordered"]) == (50.0, 1)
        text = await metrics(api)
        assert 'corral_pool_machines{engine="burst",state="joined"} 1' in text
        assert 'corral_pool_orders_total{engine="burst"} 1' in text
    finally:
        del engines.drivers["burst"], engines.pools["burst"]


async def test_a_job_that_the_named_engine_can_never_run_is_refused_at_submit(
    api: RunningController, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = FunctionOptions(bucket="jobs", users=("*",), cpus=2.0, memory_mib=512, longest_s=60.0)
    monkeypatch.setattr(rig.driver.engine, "refusal", options.refusal)
    await api.join("gpu01")
    named = {"selector": {"engine": "fake"}}
    for spec, why in (
        ({"cpu_milli": 3_000}, "the job requests 3 CPUs"),
        ({"memory_mib": 513}, "513 MiB"),
        ({"gpus": 1}, "functions have no GPUs"),
        ({"time_limit_s": 51.0}, "at most 50 s"),
    ):
        for path in ("/v1/jobs", "/v1/jobs/preview"):
            body = {"spec": {"command": ["true"], **named, **spec}}
            status, answer = await api.post(path, body)
            assert status == 400, (path, answer)
            assert why in str(answer), path
            assert "engine fake" in str(answer)
    assert (await api.get("/v1/jobs"))[1]["jobs"] == []
    status, _ = await api.post("/v1/jobs", {"spec": {"command": ["true"], "cpu_milli": 3_000}})
    assert status in (200, 201)
