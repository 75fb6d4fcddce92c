"""What a job requested and used, and the advice that follows from both."""

from __future__ import annotations

from typing import Any

from controller.core.model.inputs import agent_inputs
from tests.controller.api.running_controller import RunningController
from wire.agent.reports import AttemptStatus, AttemptUse, GpuReport, GpuUse, HostUse, Usage


async def stats(api: RunningController, job: int) -> tuple[dict[str, dict[str, Any]], str]:
    status, body = await api.get(f"/v1/jobs/{job}/stats")
    assert status == 200, body
    return {each["resource"]: each for each in body["resources"]}, body["change"]


async def started(api: RunningController, **options: Any) -> int:
    await api.join("gpu01", gpus=8)
    job = await api.submit(**options)
    await api.started(job)
    return job


def set_back(api: RunningController, job: int, seconds: float) -> None:
    for member in api.daemon.state.jobs[job].members.values():
        assert member.started_at is not None
        member.started_at -= seconds


async def test_running_job_that_uses_little(api: RunningController) -> None:
    job = await started(api, gpus=4, cpu_milli=16_000, memory_mib=65_536, time_limit_s=7_200.0)
    found, change = await stats(api, job)
    assert found["cpu"]["used"] is None
    assert change == ""
    set_back(api, job, 1_000.0)
    use = AttemptUse(job, 1, GpuUse(20.0, 60, 40_000, 12.5), HostUse(3_000.0, 10_000, 20_480))
    api.daemon.agents.on_frame("gpu01", GpuReport((), (use,)))
    found, change = await stats(api, job)
    assert (found["cpu"]["asked"], round(found["cpu"]["used"])) == (16.0, 3)
    assert (found["memory"]["asked"], found["memory"]["used"], found["memory"]["percent"]) == (
        65_536,
        20_480,
        31.2,
    )
    assert (found["gpu"]["asked"], found["gpu"]["used"], found["gpu"]["percent"]) == (4.0, 0.8, 20.0)
    assert found["energy"]["used"] == 12.5
    assert found["time"]["asked"] == 7_200.0
    assert change == "--cpus 4 --memory 24G --gpus 1"


async def test_ended_job_keeps_its_figures(api: RunningController) -> None:
    job = await started(api, gpus=1, cpu_milli=2_000, memory_mib=1_000, time_limit_s=7_200.0)
    set_back(api, job, 600.0)
    usage = Usage(1_195.0, 500, GpuUse(95.0, 100, 9_000, 3.0), 990)
    await api.handle(agent_inputs.AgentReported("gpu01", AttemptStatus(job, 1, 9, 1.0, 2.0, 0, usage=usage)))
    found, change = await stats(api, job)
    assert found["memory"]["used"] == 990, "all processes together, and not the largest one"
    assert found["cpu"]["flags"] == ""
    assert "faster" in found["cpu"]["advice"]
    assert found["gpu"]["advice"] == ""
    assert change.startswith("--memory 1280M --time 1")


async def test_short_job_gets_no_advice(api: RunningController) -> None:
    job = await started(api, cpu_milli=8_000, memory_mib=8_192)
    usage = Usage(0.1, 5, memory_mib=5)
    await api.handle(agent_inputs.AgentReported("gpu01", AttemptStatus(job, 1, 9, 1.0, 2.0, 0, usage=usage)))
    found, change = await stats(api, job)
    assert (found["memory"]["used"], change) == (5, "")
    assert "gpu" not in found


async def test_checkpoint_of_an_ended_job_names_its_state(api: RunningController) -> None:
    job = await started(api, gpus=1)
    await api.ended(job)
    status, problem = await api.post(f"/v1/jobs/{job}/checkpoint", {})
    assert (status, problem["message"]) == (409, f"job {job} has ended: it is COMPLETED")
