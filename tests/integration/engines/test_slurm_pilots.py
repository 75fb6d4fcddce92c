"""Pilots: allocations of a real Slurm in which agents run several jobs, with kills of the controller."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.real_slurm import RealSlurm, missing
from tests.integration.engines.killing_engine import PILOT_STEPS
from tests.systems import System
from wire.job.spec import JobSpec
from wire.job.start_conditions import OnNodeLost
from wire.names import JobState

NOT_HERE = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE or "everything is there"),
]
SHAPE = {
    "name": "two",
    "cpus": 4,
    "memory": "2G",
    "price": 0.0,
    "boot_s": 1.0,
    "gpus": 2,
    "gpu_model": "H100",
    "gpu_memory": "80G",
}


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    place = Path(tempfile.mkdtemp(prefix="corral-slurm-", dir="/tmp"))
    real = RealSlurm(place, enforced="associations,limits,qos")
    try:
        real.start()
        yield real
    finally:
        real.end()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def controller(
    build: Callable[..., System], slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., System]:
    """Builds a controller with pilots that is killed at `step`."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])

    def make(step: str = "", **more: object) -> System:
        system = build()
        options = {
            "partition": "gpu",
            "shapes": [SHAPE],
            "gpus": "simulated:2xH100",
            "run_as_self": True,
            "records": f"{system.place}/records",
            "sockets": f"{system.place}/pilots",
            "most": 1,
            "idle_s": 2.0,
            "demand_s": 0.5,
            **more,
        }
        system.sections["nodes"] = {}
        system.sections["plugins"] = {"files": [str(Path(__file__).with_name("killing_engine.py"))]}
        system.sections["engines"] = {
            "pilots": {
                "type": "killing-pilots",
                "interval_s": 0.3,
                "options": json.dumps(options),
                "step": step,
                "once": str(system.place / "killed"),
            }
        }
        return system

    return make


def begin(system: System) -> System:
    system.launch()
    system.await_answer()
    return system


def submit(system: System, *commands: str, **more: object) -> list[int]:
    with system.client() as client:
        return [
            client.submit(
                JobSpec(
                    ("sh", "-c", command),
                    gpus=2,
                    cpu_milli=1_000,
                    memory_mib=50,
                    workdir="/",
                    selector={"engine": "pilots"},
                    **more,  # type: ignore[arg-type]
                )
            ).ids[0]
            for command in commands
        ]


def allocations(slurm: RealSlurm, after: int = 0) -> dict[str, str]:
    """Return the states of the allocations in the accounting, by number."""
    words = ("sacct", "-n", "-P", "-X", "-D", "-S", "now-1day", "-o", "JobIDRaw,State")
    found = dict(line.split("|") for line in slurm.run(*words).stdout.splitlines())
    return {number: state for number, state in found.items() if int(number) > after}


def last(slurm: RealSlurm) -> int:
    return max(map(int, allocations(slurm)), default=0)


def await_no_pilot(system: System, slurm: RealSlurm) -> None:
    system.until(lambda: slurm.run("squeue", "-h").stdout == "", "Slurm has no allocation")
    system.until(lambda: "pilots-" not in system.corral("nodes"), "the node is removed")
    system.await_nothing("job", "supervisor")


def test_a_pilot_runs_several_jobs_and_ends_when_idle(
    controller: Callable[..., System], slurm: RealSlurm
) -> None:
    before = last(slurm)
    system = begin(controller())
    ran = system.place / "ran"
    ids = submit(
        system, *(f"echo $SLURM_JOB_ID $CORRAL_NODE >> {ran}; echo log {n}; exit {n}" for n in range(4))
    )
    done = system.await_jobs(ids)
    assert [done[each].exit_code for each in ids] == [0, 1, 2, 3]
    assert system.corral("logs", str(ids[2])) == "log 2\n"
    await_no_pilot(system, slurm)
    assert len({line.split()[-1] for line in ran.read_text().splitlines()}) == 1
    [state] = allocations(slurm, before).values()
    assert state.startswith("CANCELLED")


@pytest.mark.parametrize("step", PILOT_STEPS)
def test_a_controller_killed_at_a_step_of_a_pilot(
    controller: Callable[..., System], slurm: RealSlurm, step: str
) -> None:
    """The jobs run once, and no allocation is left or doubled."""
    before = last(slurm)
    system = begin(controller(step))
    ran = system.place / "ran"
    ids = submit(system, *(f"echo $CORRAL_JOB_ID >> {ran}; sleep 0.5; exit 3" for _ in range(2)))
    system.until(lambda: system.controller.poll() is not None, f"the controller is killed {step}")
    begin(system)
    system.await_jobs(ids)
    assert {system.jobs()[each].exit_code for each in ids} == {3}
    assert Counter(map(int, ran.read_text().split())) == dict.fromkeys(ids, 1)
    await_no_pilot(system, slurm)
    assert len(allocations(slurm, before)) == 1


def test_jobs_of_a_pilot_survive_a_kill_of_the_controller(
    controller: Callable[..., System], slurm: RealSlurm
) -> None:
    before = last(slurm)
    system = begin(controller())
    ran = system.place / "ran"
    [job] = submit(
        system, f"echo ran >> {ran}; while [ ! -e {system.place}/gate ]; do sleep 0.1; done; exit 5"
    )
    system.until(ran.exists, "the job runs")
    system.kill()
    (system.place / "gate").touch()
    begin(system)
    assert system.await_jobs([job])[job].exit_code == 5
    assert ran.read_text() == "ran\n"
    await_no_pilot(system, slurm)
    assert len(allocations(slurm, before)) == 1


def test_a_cancelled_allocation_loses_its_job_only_with_the_proof_of_its_end(
    controller: Callable[..., System], slurm: RealSlurm
) -> None:
    """While slurmdbd does not answer, the end of the allocation is not proven. The job then runs on another
    pilot.
    """
    before = last(slurm)
    system = begin(controller())
    ran = system.place / "ran"
    command = f"echo $CORRAL_ATTEMPT >> {ran}; while [ ! -e {system.place}/gate ]; do sleep 0.1; done; exit 6"
    [job] = submit(system, command, on_node_lost=OnNodeLost.REQUEUE)
    system.until(ran.exists, "the job runs")
    system.until(lambda: allocations(slurm, before), "the accounting lists the allocation")
    [first] = allocations(slurm, before)
    with slurm.stopped("slurmdbd"):
        slurm.run("scancel", first).check_returncode()
        system.until(
            lambda: slurm.run("squeue", "-h").stdout == "", "Slurm no longer lists the allocation as alive"
        )
        assert system.jobs()[job].attempt == 1
    system.until(lambda: ran.read_text().split() == ["1", "2"], "the job runs on another pilot")
    (system.place / "gate").touch()
    done = system.await_jobs([job])[job]
    assert (done.state, done.exit_code) == (JobState.FAILED, 6)
    await_no_pilot(system, slurm)
    assert len(allocations(slurm, before)) == 2
