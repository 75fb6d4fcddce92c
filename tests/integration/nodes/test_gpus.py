"""GPUs through the whole system: the true pynvml below a real agent, controller and command line."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.gpus.interface import SAMPLE_INTERVAL_S
from tests.agent.fake_nvml import FakeNvml, uuid
from tests.programs import run_corral
from tests.systems import System
from wire.api.nodes import GpuView
from wire.job.spec import JobSpec
from wire.job.start_conditions import Restart
from wire.names import GpuHealth, JobState, NodeState, Reason


@pytest.fixture
def fake_nvml(tmp_path: Path) -> FakeNvml:
    """The GPUs of the node of a test."""
    return FakeNvml(tmp_path)


@pytest.fixture
def rigged(build: Callable[..., System], fake_nvml: FakeNvml, tmp_path: Path) -> System:
    """A running system with one node whose NVML is the fake_nvml."""
    made = build("gpu01")
    made.sections["gpus"] = {"check_s": 0.2, "check_most_s": 1.0}
    made.sections["nodes"]["gpu01"].update(gpus="nvml", python=str(interpreter(tmp_path, fake_nvml)))
    return made.start()


def interpreter(place: Path, fake_nvml: FakeNvml) -> Path:
    """A Python that finds the fake_nvml's library: a real host has its own in the usual place."""
    script = place / "python"
    words = [f"{name}={shlex.quote(value)}" for name, value in fake_nvml.environment.items()]
    script.write_text(f'#!/bin/sh\nexec env {" ".join(words)} {shlex.quote(sys.executable)} "$@"\n')
    script.chmod(0o755)
    return script


def gpu(system: System, index: int) -> GpuView:
    """A GPU of the node, as the API shows it now."""
    with system.client() as client:
        return client.gpus().gpus[index]


def test_nvml_readings_are_shown_to_users(rigged: System, fake_nvml: FakeNvml) -> None:
    fake_nvml.set_answers(
        1, busy=91, used_mib=9_000, power_w=655, celsius=74, corrected=5, throttle=0x20, mhz=1_700
    )
    fake_nvml.set_answers(1, processes=f"{os.getpid()}:8192", links=18, links_down=2)
    rigged.until(lambda: gpu(rigged, 1).utilisation == 91 and gpu(rigged, 1).processes, "the reading")
    seen = gpu(rigged, 1)
    assert (seen.memory_used_mib, seen.power_w, seen.temperature_c, seen.clock_mhz) == (9_000, 655, 74, 1_700)
    assert (seen.ecc_corrected, seen.throttle, seen.links_up, seen.links_there) == (5, ("too hot",), 16, 18)
    [stranger] = seen.processes
    assert (stranger.pid, stranger.user, stranger.job) == (
        os.getpid(),
        pwd.getpwuid(os.getuid()).pw_name,
        None,
    )
    shown = corral(rigged, "nodes", "show", "gpu01", "-o", "wide")
    assert "550.90.07, CUDA 12.4" in shown
    assert "off-queue" in shown
    assert str(os.getpid()) in corral(rigged, "gpus", "--off-queue")
    assert uuid(1) in corral(rigged, "gpus", "-o", "json")


def test_host_under_two_names_counts_once(rigged: System, fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """The second name waits until the first is removed."""
    rigged.stop()
    rigged.sections["nodes"]["twin"] = dict(rigged.sections["nodes"]["gpu01"])
    rigged.launch()
    rigged.await_answer()
    rigged.await_nodes("gpu01")
    with rigged.client() as client:
        rigged.until(lambda: "belongs to node gpu01" in client.node("twin").why, "the twin is told")
        assert client.node("twin").state.away
        assert {gpu.node for gpu in client.gpus().gpus} == {"gpu01"}


def test_lost_gpu_leaves_the_pool_and_returns(rigged: System, fake_nvml: FakeNvml) -> None:
    job = submit(rigged, "sleep 1000; exit 3", gpus=1)
    rigged.await_jobs([job], JobState.RUNNING)
    fake_nvml.set_answers(0, lost=1)
    rigged.until(lambda: gpu(rigged, 0).health is GpuHealth.LOST, "GPU 0 is lost")
    sick, well = gpu(rigged, 0), gpu(rigged, 1)
    assert (sick.free_milli, well.free_milli, well.health) == (0, 1000, GpuHealth.OK)
    assert "GPU is lost" in sick.why
    with rigged.client() as client:
        client.cancel(job)
        second, third = submit(rigged, "sleep 1000", gpus=1), submit(rigged, "true", gpus=1)
        rigged.await_jobs([second], JobState.RUNNING)
        assert [held.index for held in client.job(second).job.held[0].gpus] == [1]
        assert client.job(third).job.state is JobState.QUEUED
        fake_nvml.set_answers(0, lost=0)
        rigged.until(lambda: gpu(rigged, 0).health is GpuHealth.OK, "GPU 0 is well again")
        assert rigged.await_jobs([third])[third].state is JobState.COMPLETED


@pytest.mark.parametrize(
    ("code", "reason", "health"),
    [
        (13, Reason.GPU_ERROR, GpuHealth.OK),
        (94, Reason.GPU_ERROR, GpuHealth.OK),
        (79, Reason.GPU_FAILED, GpuHealth.LOST),
    ],
)
def test_xid_is_attributed_to_its_job_and_gpu(
    rigged: System, fake_nvml: FakeNvml, tmp_path: Path, code: int, reason: Reason, health: GpuHealth
) -> None:
    go = tmp_path / "go"
    wait = f"until [ -e {shlex.quote(str(go))} ]; do sleep 0.2; done; exit 7"
    hit, other = (submit(rigged, wait, gpus=1, restart=Restart(delay_s=1.0)) for _ in range(2))
    rigged.await_jobs([hit, other], JobState.RUNNING)
    with rigged.client() as client:
        [[index]] = [[part.index for part in held.gpus] for held in client.job(hit).job.held]
    fake_nvml.xid(index, code)
    rigged.until(lambda: f"Xid {code}" in corral(rigged, "events"), "the Xid is on record")
    go.touch()
    ended = rigged.await_jobs([hit, other])
    assert ended[other].reason is Reason.EXIT_NONZERO
    if reason is Reason.GPU_FAILED:  # the job ran again on the other GPU, and failed by itself
        assert (ended[hit].attempt, ended[hit].restarts, ended[hit].reason) == (2, 1, Reason.EXIT_NONZERO)
        assert [[part.index for part in held.gpus] for held in ended[hit].held] == [[1 - index]]
        assert f"restart 1 of 3 in 1s: GPU {index} of gpu01: Xid {code}" in corral(rigged, "events")
    else:
        assert (ended[hit].attempt, ended[hit].reason) == (1, reason)
        assert f"Xid {code}" in ended[hit].detail
    assert gpu(rigged, index).health is health
    assert gpu(rigged, 1 - index).health is GpuHealth.OK
    if health is GpuHealth.LOST:
        assert "needs a reboot" in corral(rigged, "gpus", "--sick")
        corral(rigged, "nodes", "resume", f"gpu01:{index}")
        rigged.until(lambda: gpu(rigged, index).health is GpuHealth.OK, "it is resumed")


def test_hung_nvml_does_not_block_jobs_without_gpus(rigged: System, fake_nvml: FakeNvml) -> None:
    fake_nvml.set_answers(hang=1)
    job = submit(rigged, "true")
    assert rigged.await_jobs([job])[job].state is JobState.COMPLETED
    with rigged.client() as client:
        assert client.node("gpu01").state is NodeState.UP


def test_gpu_errors_take_a_gpu_out_of_the_pool_until_they_are_gone(
    rigged: System, fake_nvml: FakeNvml
) -> None:
    rigged.until(lambda: gpu(rigged, 1).memory_used_mib, "the first reading")
    fake_nvml.set_answers(1, uncorrected=3)
    rigged.until(lambda: gpu(rigged, 1).health is not GpuHealth.OK, "the errors count")
    assert gpu(rigged, 0).health is GpuHealth.OK
    rigged.until(lambda: gpu(rigged, 1).health is GpuHealth.OK, "it has passed its looks")
    fake_nvml.set_answers(1, links_down=1)
    rigged.until(lambda: gpu(rigged, 1).health is GpuHealth.CORDONED, "the link counts")
    assert "1 of 2 NVLinks are up" in gpu(rigged, 1).why
    fake_nvml.set_answers(1, links_down=None)
    rigged.until(lambda: gpu(rigged, 1).health is GpuHealth.OK, "the link is up again")


def test_gpu_numbers_are_those_of_the_driver(rigged: System, fake_nvml: FakeNvml) -> None:
    """GPU 0 is divided: the GPU behind its instances is still GPU 1."""
    fake_nvml.set_answers(0, mig=3)
    rigged.kill()
    rigged.start()
    with rigged.client() as client:
        assert [each.number for each in client.gpus().gpus] == ["0:0", "0:1", "0:2", "1"]
    corral(rigged, "nodes", "cordon", "gpu01:1")
    corral(rigged, "nodes", "cordon", "gpu01:0:2")
    with rigged.client() as client:
        out = [each.uuid for each in client.gpus().gpus if each.health is GpuHealth.CORDONED]
    assert out[1] == uuid(1)
    corral(rigged, "nodes", "resume", "gpu01:1")
    assert "2 × " in corral(rigged, "events")


def test_no_gpu_job_starts_while_the_driver_hangs(rigged: System, fake_nvml: FakeNvml) -> None:
    rigged.until(lambda: gpu(rigged, 1).memory_used_mib, "the first reading")
    fake_nvml.set_answers(hang=1)
    rigged.until(
        lambda: all(gpu(rigged, index).health is not GpuHealth.OK for index in range(2)), "both are out"
    )
    job = submit(rigged, "true", gpus=1)
    with rigged.client() as client:
        assert client.job(str(job)).job.state is JobState.QUEUED
    fake_nvml.set_answers(hang=None)
    assert rigged.await_jobs([job])[job].state is JobState.COMPLETED


def test_gpu_usage_is_reported_when_a_job_ends(rigged: System, fake_nvml: FakeNvml, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"until [ -e {shlex.quote(str(go))} ]; do sleep 0.2; done"
    job = submit(rigged, script, gpus=1)
    rigged.await_jobs([job], JobState.RUNNING)
    for busy in (50, 90, 50):
        fake_nvml.set_answers(0, busy=busy, used_mib=4_000 + busy, power_w=400)
        rigged.until(lambda busy=busy: gpu(rigged, 0).utilisation == busy, "the reading")  # type: ignore[misc]
    go.touch()
    rigged.await_jobs([job])
    with rigged.client() as client:
        seen = client.job(job).job
    assert seen.use is not None
    assert 50 <= seen.use.mean <= 90
    assert seen.use.p95 == 90
    assert seen.use.peak_mib == 4_090
    assert seen.use.wh > 0
    assert seen.gpu_hours > 0
    assert "busy on average" in corral(rigged, "job", "show", str(job))
    assert corral(rigged, "usage", "--by", "job", "-o", "name").split() == [str(job)]


def test_usage_of_a_running_job_is_shown_and_replaced_by_the_final_figures(
    rigged: System, fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = submit(rigged, f"until [ -e {shlex.quote(str(go))} ]; do sleep 0.2; done", gpus=1)
    rigged.await_jobs([job], JobState.RUNNING)
    for index in (0, 1):
        fake_nvml.set_answers(index, busy=80, used_mib=4_000, power_w=3_600)
    with rigged.client() as client:
        rigged.until(lambda: (use := client.job(job).job.use) and use.wh > 1, "the use so far")
        seen = client.job(job).job
        assert seen.state is JobState.RUNNING
        assert seen.use is not None
        assert (seen.use.p95, seen.use.peak_mib) == (80, 4_000)
        [listed] = client.jobs().jobs
        [line] = client.usage("user", 0).usage
        assert listed.use is not None
        assert line.utilisation is not None
        assert line.peak_mib == 4_000
        assert line.energy_wh > 1
        assert "so far " in corral(rigged, "job", "show", str(job))
        go.touch()
        rigged.await_jobs([job])
        final = client.job(job).job.use
        assert final is not None
        assert final.wh >= seen.use.wh
        assert client.usage("user", 0).usage[0].energy_wh == pytest.approx(final.wh, abs=0.01)


def test_usage_of_a_running_job_is_shown_again_after_a_controller_crash(
    rigged: System, fake_nvml: FakeNvml
) -> None:
    fake_nvml.set_answers(0, busy=80)
    job = submit(rigged, "sleep 1000", gpus=1)
    with rigged.client() as client:
        rigged.until(lambda: client.job(job).job.use is not None, "the use so far")
    rigged.kill()
    rigged.launch()
    rigged.await_answer()
    rigged.await_nodes("gpu01")
    with rigged.client() as client:
        rigged.until(lambda: client.job(job).job.use is not None, "the use so far, reported again")
        assert client.job(job).job.state is JobState.RUNNING
        assert client.cancel(job).id == job


def submit(system: System, script: str, **asked: Any) -> int:
    """A job that runs this script."""
    with system.client() as client:
        return client.submit(JobSpec(("sh", "-c", script), grace_s=0.1, **asked)).ids[0]


def corral(system: System, *words: str) -> str:
    """The output of the command."""
    return run_corral("--url", f"unix://{system.socket}", *words, check=True).stdout


def test_idle_gpus_are_flagged_warned_and_reclaimed(
    build: Callable[..., System], fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    system = build("gpu01")
    system.sections["gpus"] = {"idle_after_s": 0.5, "idle": "cancel", "idle_grace_s": 3_600.0}
    system.sections["nodes"]["gpu01"].update(gpus="nvml", python=str(interpreter(tmp_path, fake_nvml)))
    system.start()
    fake_nvml.set_answers(0, busy=0)
    fake_nvml.set_answers(1, busy=0)
    job = submit(system, "echo begun >&2; sleep 1000", gpus=1)
    system.await_jobs([job], JobState.RUNNING)
    system.until(lambda: system.jobs()[job].idle_since, "it is flagged")
    assert "(idle " in corral(system, "queue")
    assert "have been idle for" in corral(system, "job", "show", str(job))
    log = lambda: corral(system, "job", "logs", str(job), "--stderr")  # noqa: E731
    system.until(lambda: "corral: its GPUs have been idle" in log(), "it is told")
    assert f"the GPUs of job {job} have been idle" in corral(system, "events")
    held = system.jobs()[job].held[0].gpus[0].index
    fake_nvml.set_answers(held, busy=70)
    system.until(lambda: system.jobs()[job].idle_since is None, "it works again")
    system.sections["gpus"] = {"idle_after_s": 0.5, "idle": "cancel", "idle_grace_s": 0.5}
    system.stop()
    system.start()
    fake_nvml.set_answers(held, busy=0)
    ended = system.await_jobs([job])[job]
    assert (ended.state, ended.reason) == (JobState.CANCELLED, Reason.IDLE)


def test_an_idle_rule_of_a_queue_is_tried_with_simulated_gpus(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["queues"] = {
        "default": {},
        # An idle time longer than the pause between two readings, so that the first reading counts.
        "notebooks": {"idle": "cancel", "idle_after_s": 3 * SAMPLE_INTERVAL_S, "idle_grace_s": 0.5},
    }
    system.start()
    quiet = {"CORRAL_SIMULATED_LOAD": "0"}
    idle = submit(system, "sleep 1000", gpus=1, queue="notebooks", env=quiet)
    busy = submit(system, "sleep 1000", gpus=1, queue="notebooks")
    other = submit(system, "sleep 1000", gpus=1, env=quiet)
    without = submit(system, "sleep 1000", queue="notebooks")
    ended = system.await_jobs([idle])[idle]
    assert (ended.state, ended.reason) == (JobState.CANCELLED, Reason.IDLE)
    found = system.jobs()
    assert [found[job].state for job in (busy, other, without)] == [JobState.RUNNING] * 3
    assert [found[job].idle_since for job in (busy, without)] == [None, None]


def test_gpu_that_needs_a_reset_is_reset_when_its_job_has_ended(
    build: Callable[..., System], fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    script, log = tmp_path / "reset", tmp_path / "resets"
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    script.chmod(0o755)
    system = build("gpu01")
    system.sections["gpus"] = {"check_s": 0.2, "check_most_s": 1.0, "reset": [str(script), "-i"]}
    system.sections["nodes"]["gpu01"].update(gpus="nvml", python=str(interpreter(tmp_path, fake_nvml)))
    system.start()
    job = submit(system, "sleep 1000", gpus=1)
    system.await_jobs([job], JobState.RUNNING)
    held = system.jobs()[job].held[0].gpus[0].index
    fake_nvml.xid(held, 119)
    system.until(lambda: gpu(system, held).health is GpuHealth.CORDONED, "it is out")
    assert "needs a reset when no job is on it" in corral(system, "gpus", "--sick")
    corral(system, "job", "cancel", str(job))
    system.until(lambda: gpu(system, held).health is GpuHealth.OK, "it is well again")
    assert log.read_text() == f"-i {uuid(held)}\n"


def test_off_queue_use_is_recorded(build: Callable[..., System], fake_nvml: FakeNvml, tmp_path: Path) -> None:
    system = build("gpu01")
    system.sections["fair_share"] = {"off_queue": "strays"}
    system.sections["nodes"]["gpu01"].update(gpus="nvml", python=str(interpreter(tmp_path, fake_nvml)))
    system.start()
    me = pwd.getpwuid(os.getuid()).pw_name
    fake_nvml.set_answers(1, processes=f"{os.getpid()}:8192")
    system.until(lambda: me in corral(system, "usage", "--off-queue"), "it is seen")
    assert "now" in corral(system, "usage", "--off-queue")
    assert "strays" in corral(system, "shares")
    fake_nvml.set_answers(1, processes=None)
    system.until(lambda: " now " not in corral(system, "usage", "--off-queue"), "it is over")
    system.stop()
    system.start()
    assert me in corral(system, "usage", "--off-queue")
    assert "without a job" in corral(system, "events", "-n", "500")
