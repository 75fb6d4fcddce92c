"""The pulse: samples of the cluster's figures in two rings, and on the stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from controller.watchers.gpu_loads import GpuLoads
from tests.controller.api.running_controller import RunningController
from tests.controller.api.server.test_stream import listening
from tests.limits import PATIENCE_S
from wire.agent.reports import GpuSample
from wire.api.service.cluster import PulseSample


async def test_sample_has_the_figures_of_the_cluster(api: RunningController) -> None:
    await api.join("gpu01", gpus=4)
    await api.join("gpu02", gpus=4)
    first = await api.submit(gpus=1, time_limit_s=3_600.0)
    await api.started(first)
    await api.ended(first, code=1)
    await api.placed(await api.submit(gpus=4, time_limit_s=3_600.0))
    await api.placed(await api.submit(gpus=1, time_limit_s=3_600.0))
    await api.submit(gpus=4, time_limit_s=7_200.0)
    await api.submit(gpus=4)
    uuids = [gpu.uuid for gpu in api.daemon.state.nodes.by_name["gpu01"].facts.gpus]
    samples = tuple(GpuSample(uuid, utilisation=50 + place, power_w=100) for place, uuid in enumerate(uuids))
    api.daemon.agents.readings["gpu01"] = {each.uuid: each for each in samples}
    await api.daemon.settled()
    found = api.daemon.pulse.sample(api.daemon.now())
    assert (found.gpus, found.gpus_held, found.waiting, found.waiting_gpu_hours) == (8, 5, 2, 8 + 4 * 24)
    # The job without a time limit counts with [jobs] default_time_limit_s, a day.
    assert (found.load, found.power_w) == (51.5, 400)
    assert (found.started_per_hour, found.failed_per_hour, found.wait_p50_s) == (3, 1, 0.0)
    assert found.fragmentation == 1, "the three free GPUs are on a node with a used one"
    later = api.daemon.pulse.sample(api.daemon.now() + 3_700)
    assert (later.started_per_hour, later.failed_per_hour, later.wait_p90_s) == (0, 0, None)


async def test_rings_are_bounded_and_the_minutes_are_means(api: RunningController) -> None:
    pulse = api.daemon.pulse
    pulse.close()
    pulse.seconds.clear()
    pulse._present.clear()
    now = api.daemon.now() // 60 * 60
    one = PulseSample(now, 8, 0.0, None, None, 0, 0.0, 0, 0)
    for second in range(60 * 1_450 + 1):
        held = float(second % 60)
        pulse.add(replace(one, at=now + second, gpus_held=held, load=held if second % 60 < 2 else None))
    assert (len(pulse.seconds), len(pulse.minutes)) == (600, 1_440)
    status, body = await api.get("/v1/pulse")
    assert (status, len(body["samples"]), body["step_s"], body["kept_s"]) == (200, 1_440, 60, 86_400)
    assert body["started_at"] == api.daemon.started_at
    last = body["samples"][-1]
    assert (last["at"], last["gpus"], last["gpus_held"], last["load"]) == (now + 60 * 1_449, 8, 29.5, 0.5)
    _, body = await api.get("/v1/pulse", ring="seconds", after=int(now + 60 * 1_450 - 1))
    assert [each["at"] for each in body["samples"]] == [now + 60 * 1_450]


@pytest.mark.parametrize("rows", [0, 1])
async def test_stream_has_samples_only_on_request(api: RunningController, rows: int) -> None:
    async with listening(api, pulse=1, rows=rows) as asked, listening(api, rows=rows) as plain:
        samples: list[float] = []
        async with asyncio.timeout(PATIENCE_S):
            async for message in asked:
                if message.data.get("pulse"):
                    assert message.id is None
                    samples.append(message.data["pulse"]["at"])
                if len(samples) == 2:
                    break
        job = await api.submit(hold=True)
        async with asyncio.timeout(PATIENCE_S):
            async for message in plain:
                if message.data:
                    assert message.data["pulse"] is None
                    assert message.data["events"][0]["job"] == job, "the first message is the commit"
                    break
    assert samples == sorted(samples)
    assert samples[0] in [each.at for each in api.daemon.pulse.seconds]


async def test_loads_of_gpus_and_jobs_over_ten_minutes(api: RunningController) -> None:
    await api.join("gpu01", gpus=2)
    await api.join("gpu02", gpus=1)
    job = await api.submit(gpus=2, time_limit_s=3_600.0)
    await api.started(job)
    state, loads = api.daemon.state, GpuLoads()
    api.daemon.pulse.close()
    api.daemon.pulse.gpu_loads = loads
    one, other = (gpu.uuid for gpu in state.nodes.by_name["gpu01"].facts.gpus)
    began = state.jobs[job].members["gpu01"].started_at
    # The first sample lies a part of an answer before the start of the job.
    begin = (began // 600 + 1) * 600
    state.jobs[job].members["gpu01"].started_at = begin + 75
    for second in range(600):
        readings = {"gpu01": {one: GpuSample(one, utilisation=second // 75 * 10), other: GpuSample(other)}}
        loads.add(begin + second, state, readings)
    status, body = await api.get("/v1/pulse/gpus", node=["gpu01", "gpu02", "none"], job=[job, 999])
    assert (status, body["step_s"]) == (200, 75)
    (only,) = body["nodes"]["gpu02"].values()
    assert body["nodes"] == {
        "gpu01": {one: [0, 10, 20, 30, 40, 50, 60, 70], other: [0] * 8},
        "gpu02": {next(iter(body["nodes"]["gpu02"])): [None] * 8},
        "none": {},
    }
    assert only == [None] * 8
    assert body["jobs"] == {str(job): [None, 5, 10, 15, 20, 25, 30, 35]}


async def test_loads_have_gaps_and_are_bounded(api: RunningController) -> None:
    await api.join("gpu01", gpus=1)
    state, loads = api.daemon.state, GpuLoads()
    uuid = state.nodes.by_name["gpu01"].facts.gpus[0].uuid
    busy = {"gpu01": {uuid: GpuSample(uuid, utilisation=80)}}
    for second in (0, 1, 599, 1_200, 1_210, 1_790):
        loads.add(6_000_000.0 + second, state, busy)
    found = loads.of_node("gpu01", 60)[uuid]
    assert [place for place, load in enumerate(found) if load is not None] == [0, 1, 59]
    assert loads._rings["gpu01"][uuid].count(80) == 3, "samples older than 10 minutes were replaced"
    loads.add(6_000_000.0, state, {})
    assert loads.of_node("gpu01", 1)[uuid] == (None,), "after the clock was set back, the old loads are wrong"
