"""GET /metrics in the format of Prometheus."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from controller.core.model.inputs import agent_inputs
from controller.core.model.start_estimates import LATEST
from tests.controller.api.running_controller import RunningController, start_controller
from tests.limits import PATIENCE_S
from wire.agent.reports import AttemptStatus, GpuReport, GpuSample

LINE = re.compile(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)+\})? (\S+)')


async def figures(api: RunningController, query: str = "") -> Mapping[str, float]:
    """Every line that is no comment, by name and labels."""
    async with api.session.get(f"http://corral/metrics{query}") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await answer.text()
    assert text.endswith("\n")
    found: dict[str, float] = {}
    typed: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.append(line.split()[2])
        elif not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, line
            key = match[1] + (match[2] or "")
            assert key not in found
            assert re.sub("_(bucket|sum|count)$", "", match[1]) in typed or match[1] in typed
            found[key] = float(match[3])
    assert len(set(typed)) == len(typed)
    return found


async def test_metrics_of_jobs_nodes_and_gpus(api: RunningController) -> None:
    await api.join("gpu01")
    await api.join("gpu02", gpus=2, numa_nodes=1)
    await api.started(await api.submit(gpus=6))
    await api.started(await api.submit(gpus=0.5, selector={"node": "gpu01"}))
    await api.submit(gpus=4)
    await api.submit(gpus=1, hold=True)
    await api.post("/v1/nodes/gpu02/gpus/0/cordon", {})
    metrics = await figures(api)
    async with asyncio.timeout(PATIENCE_S):
        while 'corral_queued_jobs{reason="new"}' in metrics:  # until a pass has looked at the job
            await asyncio.sleep(0.01)
            metrics = await figures(api)
    assert metrics['corral_jobs{state="RUNNING"}'] == 2
    assert metrics['corral_jobs{state="QUEUED"}'] == 2
    assert 'corral_jobs{state="PREEMPTED"}' not in metrics, "a preempted job is QUEUED again at once"
    assert metrics['corral_queued_jobs{reason="resources"}'] == 1
    assert metrics['corral_queued_jobs{reason="held"}'] == 1
    assert metrics['corral_nodes{state="up"}'] == 2
    gpus = {name: count for name, count in metrics.items() if name.startswith("corral_gpus")}
    assert gpus == {
        'corral_gpus{state="used"}': 6,
        'corral_gpus{state="shared"}': 1,
        'corral_gpus{state="free"}': 2,
        'corral_gpus{state="cordoned"}': 1,
    }


async def test_readings_of_each_gpu_where_asked_for(api: RunningController) -> None:
    await api.join("gpu01", gpus=2)
    readings = GpuSample("GPU-gpu01-1", 93, 70_000, 650, 71, ecc_uncorrected=2)
    api.daemon.agents.on_frame("gpu01", GpuReport((readings,)))
    await api.post("/v1/nodes/gpu01/gpus/1/cordon", {})
    assert not [name for name in await figures(api) if name.startswith("corral_gpu_")]
    told = await figures(api, "?gpus=1")
    free, cordoned = (f'{{node="gpu01",gpu="{index}",uuid="GPU-gpu01-{index}"}}' for index in (0, 1))
    assert {name: value for name, value in told.items() if name.startswith("corral_gpu_")} == {
        f"corral_gpu_healthy{free}": 1,
        f"corral_gpu_healthy{cordoned}": 0,
        f"corral_gpu_utilisation_percent{cordoned}": 93,
        f"corral_gpu_memory_used_bytes{cordoned}": 70_000 << 20,
        f"corral_gpu_temperature_celsius{cordoned}": 71,
        f"corral_gpu_power_watts{cordoned}": 650,
        f"corral_gpu_ecc_uncorrected_total{cordoned}": 2,
    }
    await api.handle(agent_inputs.LinkWentDown("gpu01", "cable"))
    told = await figures(api, "?gpus=1")
    assert not [name for name in told if name.startswith(("corral_gpu_power", "corral_gpu_util"))], "unknown"


async def test_metrics_of_start_estimate_errors() -> None:
    """Five runs are learnt, the sixth is predicted; the start of each waiting job is sampled."""
    async with start_controller(backfill={"score_starts_s": 0.05}) as api:
        await _runs_are_scored(api)


async def _runs_are_scored(api: RunningController) -> None:
    await api.join("gpu01")
    for _ in range(6):
        job = await api.submit(gpus=8, time_limit_s=100.0)
        await api.started(job)
        waiting = await api.submit(gpus=8, time_limit_s=100.0, name="next")
        foreseen = api.daemon.state.jobs[waiting]
        await api.until(lambda job=foreseen: LATEST in {each.kind for each in job.foreseen})
        await api.ended(job)
        await api.started(waiting)
        await api.ended(waiting)
    metrics = await figures(api)
    assert [count for name, count in metrics.items() if name.startswith("corral_run_estimates_total")] == [2]
    assert metrics['corral_start_estimates_total{kind="latest"}'] == 6
    assert metrics['corral_start_estimate_bias_seconds{kind="latest"}'] < 0
    assert metrics['corral_start_estimates_late_total{kind="latest"}'] == 0


async def test_metrics_of_cycles_commits_and_requests(api: RunningController) -> None:
    await api.submit()
    await api.get("/v1/jobs/99")
    await api.ask("GET", "/v1/coffee")
    metrics = await figures(api)
    assert metrics["corral_cycle_seconds_count"] >= 1
    assert metrics['corral_cycle_seconds_bucket{le="+Inf"}'] == metrics["corral_cycle_seconds_count"]
    assert metrics["corral_commit_seconds_count"] >= 1
    assert metrics["corral_journal_entries_total"] == metrics["corral_journal_seq"] == api.daemon.seq
    assert metrics['corral_requests_total{method="POST",path="/v1/jobs",status="201"}'] == 1
    assert metrics['corral_requests_total{method="GET",path="/v1/jobs/{job}",status="404"}'] == 1
    assert metrics['corral_requests_total{method="other",path="other",status="404"}'] == 1


async def test_plugin_metrics_with_any_plugin_name() -> None:
    async with start_controller(plugins={"metrics": [{"name": "tenants"}]}) as api:
        await api.submit(project='a"b\\\n')
        metrics = await figures(api)
        assert metrics[r'tenant_queued_jobs{project="a\"b\\\n"}'] == 1
        assert metrics[r'tenant_gpus{project="a\"b\\\n"}'] == 0


async def test_metrics_of_starts_waits_outcomes_and_preemptions(api: RunningController) -> None:
    await api.join("gpu01")
    for code in (0, 1):
        job = await api.submit(gpus=8)
        await api.started(job)
        await api.ended(job, code)
    lost = await api.submit(gpus=4)
    await api.started(lost)
    assert (await api.post(f"/v1/jobs/{lost}/preempt", {}))[0] == 200
    status = AttemptStatus(lost, 1, 100, 1.0, 2.0, signal=15, why="preempted")
    await api.handle(agent_inputs.AgentReported("gpu01", status))
    await api.until(lambda: api.daemon.state.jobs[lost].attempt == 2)
    metrics = await figures(api)
    assert metrics['corral_preemptions_total{queue="default"}'] == 1
    assert metrics['corral_preempted_gpu_hours_total{queue="default"}'] > 0
    assert metrics['corral_jobs_ended_total{queue="default",outcome="completed"}'] == 1
    assert metrics['corral_jobs_ended_total{queue="default",outcome="failed"}'] == 1
    assert metrics['corral_job_starts_total{queue="default"}'] == 4
    assert metrics['corral_job_wait_seconds_count{queue="default"}'] == 3
    assert metrics['corral_job_wait_seconds_bucket{queue="default",le="60"}'] == 3
    assert metrics["corral_last_pass_time_seconds"] > metrics["corral_start_time_seconds"] - 1


async def test_metrics_of_free_gpus_and_quotas(api: RunningController) -> None:
    await api.join("gpu01")
    await api.join("gpu02")
    before = await figures(api)
    assert before["corral_free_gpus_largest_block"] == 8
    assert before["corral_free_gpus_fragmentation"] == 0
    await api.post("/v1/quotas/project/default/set", {"quota": {"hard": {"gpus": 12}}})
    await api.started(await api.submit(gpus=6, selector={"node": "gpu01"}))
    await api.started(await api.submit(gpus=3, selector={"node": "gpu02"}))
    after = await figures(api)
    assert after["corral_free_gpus_largest_block"] == 5
    assert after["corral_free_gpus_fragmentation"] == 1
    assert after['corral_quota_used_ratio{scope="project",name="default"}'] == 0.75
