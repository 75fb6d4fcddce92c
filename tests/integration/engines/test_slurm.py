"""Real controllers run jobs on a real Slurm, and are killed at every step of a job."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.real_slurm import RealSlurm, missing
from tests.integration.engines.killing_engine import END_STEPS, STEPS
from tests.systems import System
from wire.cluster.quota import NO_LIMITS
from wire.http.client import Refused
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

NOT_HERE = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE or "everything is there"),
]
Build = Callable[..., System]


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    place = Path(tempfile.mkdtemp(prefix="corral-slurm-"))
    real = RealSlurm(place, enforced="associations,limits,qos")
    try:
        real.start()
        for words in (
            ("add", "qos", "tight", "set", "GrpTRES=gres/gpu=1"),
            ("modify", "user", "root", "set", "qos+=tight"),
        ):
            real.run("sacctmgr", "-i", *words).check_returncode()
        yield real
    finally:
        real.end()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def controller(build: Build, slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch) -> Callable[..., System]:
    """Builds a controller with an engine `slurm` that is killed at `step`."""
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])

    def make(step: str = "", qos: str = "", timeout_s: float = 30.0) -> System:
        system = build()
        system.sections["nodes"] = {}
        system.sections["plugins"] = {"files": [str(Path(__file__).with_name("killing_engine.py"))]}
        system.sections["engines"] = {
            "slurm": {
                "type": "killing-slurm",
                "interval_s": 0.3,
                "timeout_s": timeout_s,
                "records": str(system.place / "records"),
                "step": step,
                "qos": qos,
                "once": str(system.place / "killed"),
            }
        }
        return system

    return make


def begin(system: System) -> None:
    system.launch()
    system.await_answer()
    system.await_nodes("slurm-gpu")


def spec(*command: str, **values: object) -> JobSpec:
    more = {"time_limit_s": 600.0, **values}
    return JobSpec(command, cpu_milli=1_000, memory_mib=50, selector={"engine": "slurm"}, **more)  # type: ignore[arg-type]


def submit(system: System, *specs: JobSpec) -> list[int]:
    with system.client() as client:
        return [client.submit(each).ids[0] for each in specs]


def left_behind(system: System, slurm: RealSlurm) -> list[str]:
    """Return the jobs that Slurm still has, and the records that were not removed."""

    def clean() -> bool:
        return slurm.run("squeue", "-h").stdout == "" and not [*(system.place / "records").iterdir()]

    system.until(clean, "Slurm is empty and the records are removed")
    return [*slurm.run("squeue", "-h").stdout.splitlines(), *map(str, (system.place / "records").iterdir())]


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.engines)])
def test_many_jobs(controller: Callable[..., System], slurm: RealSlurm, count: int) -> None:
    """Each job runs once, has its own exit code and its own log, and nothing is left behind."""
    system = controller()
    begin(system)
    ran = system.place / "ran"
    ids = submit(
        system, *(spec("sh", "-c", f"echo {n} >> {ran}; echo log {n}; exit {n % 3}") for n in range(count))
    )
    system.await_jobs(ids)
    jobs = system.jobs()
    assert Counter(int(line) for line in ran.read_text().split()) == Counter(range(count))
    for number, each in enumerate(ids):
        assert jobs[each].exit_code == number % 3, jobs[each]
        assert jobs[each].state is (JobState.FAILED if number % 3 else JobState.COMPLETED)
    assert system.corral("logs", str(ids[17])) == "log 17\n"
    assert left_behind(system, slurm) == []


@pytest.mark.parametrize("step", STEPS)
def test_a_controller_killed_at_a_step_of_a_job(
    controller: Callable[..., System], slurm: RealSlurm, step: str
) -> None:
    """The job runs once and ends with its exit code. Nothing is left behind."""
    system = controller(step)
    begin(system)
    ran = system.place / "ran"
    [job] = submit(system, spec("sh", "-c", f"echo ran >> {ran}; sleep 1; exit 3"))
    system.until(lambda: system.controller.poll() is not None, f"the controller is killed {step}")
    begin(system)
    system.await_jobs([job])
    assert (system.jobs()[job].exit_code, system.jobs()[job].attempt) == (3, 1)
    assert ran.read_text() == "ran\n"
    assert left_behind(system, slurm) == []


def test_a_controller_killed_while_slurm_does_not_answer_a_submit(
    controller: Callable[..., System], slurm: RealSlurm
) -> None:
    """The submit of the killed controller and the submit of the next controller both wait for Slurm."""
    system = controller()
    begin(system)
    ran = system.place / "ran"
    with slurm.stopped("slurmctld"):
        [job] = submit(system, spec("sh", "-c", f"echo ran >> {ran}; sleep 1; exit 3"))
        system.until(lambda: [*(system.place / "records").glob("*/script")], "the submit is under way")
        system.kill()
        system.launch()
        system.await_answer()
    system.await_jobs([job])
    assert (system.jobs()[job].exit_code, system.jobs()[job].attempt) == (3, 1)
    assert ran.read_text() == "ran\n"
    assert left_behind(system, slurm) == []


@pytest.mark.parametrize("step", END_STEPS)
def test_a_controller_killed_while_a_job_is_cancelled(
    controller: Callable[..., System], slurm: RealSlurm, step: str
) -> None:
    system = controller(step)
    begin(system)
    ran = system.place / "ran"
    [job] = submit(system, spec("sh", "-c", f"echo ran >> {ran}; sleep 1000"))
    system.until(ran.exists, "the job runs")
    system.corral("cancel", str(job))
    system.until(lambda: system.controller.poll() is not None, f"the controller is killed {step}")
    begin(system)
    system.await_jobs([job])
    assert system.jobs()[job].state is JobState.CANCELLED
    assert ran.read_text() == "ran\n"
    assert left_behind(system, slurm) == []


def test_explain_shows_the_reason_of_slurm(controller: Callable[..., System], slurm: RealSlurm) -> None:
    """Of two jobs with a GPU, the QOS lets one run. An administrator then holds the other."""
    system = controller(qos="tight")
    begin(system)
    first, second = submit(system, *(spec("sleep", "1000", gpus=1) for _ in range(2)))

    def explained(text: str) -> Callable[[], bool]:
        return lambda: any(text in system.corral("explain", str(each)) for each in (first, second))

    system.until(explained("waits for slurm:gpu: QOSGrpGRES"), "the reason of the QOS")
    [waiting] = slurm.run("squeue", "-h", "-t", "pending", "-o", "%A").stdout.split()
    slurm.run("scontrol", "hold", waiting).check_returncode()
    system.until(explained("waits for slurm:gpu: JobHeldAdmin"), "the reason of the hold")
    system.corral("cancel", str(first), str(second))
    system.await_jobs([first, second])
    assert {system.jobs()[each].reason for each in (first, second)} == {Reason.USER}
    assert left_behind(system, slurm) == []


def test_limits_of_a_project_come_from_an_account(
    controller: Callable[..., System], slurm: RealSlurm
) -> None:
    """The limits hold, survive a slurmdbd that does not answer, and go when Slurm removes them. The use of
    another program is shown.
    """

    def modify(*limits: str) -> None:
        words = ("modify", "account", "default", "set", *limits)
        slurm.run("sacctmgr", "-i", *words).check_returncode()

    modify("GrpTRES=gres/gpu=3", "GrpJobs=7")
    system = controller(timeout_s=10.0)
    system.sections["quota"] = {
        "provider": "slurm",
        "engine": "slurm",
        "accounts": {"default": "default"},
        "interval_s": 1.0,
    }
    begin(system)

    def limits() -> tuple[float | None, int | None, str]:
        with system.client() as client:
            view = client.quota("project", "default")
        return view.quota.hard.gpus, view.quota.hard.running, view.source

    system.until(lambda: limits()[:2] == (3.0, 7), "the limits apply")
    first, second = submit(system, *(spec("sleep", "1000", gpus=2) for _ in range(2)))
    system.await_jobs([first], JobState.RUNNING)
    system.until(lambda: "2 of 3" in system.corral("explain", str(second)), "the quota is explained")
    other = slurm.run(
        "sbatch", "--parsable", "-p", "gpu", "--gres=gpu:1", "--wrap", "sleep 1000"
    ).stdout.strip()
    system.until(lambda: "gpus 3 there and 2 here" in limits()[2], "the use of the other job")
    assert "slurm:account=default, read" in system.corral("quota", "sync", "project", "default", "-o", "json")
    with slurm.stopped("slurmdbd"):
        system.until(lambda: "no answer" in limits()[2], "slurmdbd does not answer")
        with system.client() as client, pytest.raises(Refused, match="the last known limits stay in force"):
            client.sync_quota("project", "default")
        assert limits()[:2] == (3.0, 7)
    slurm.run("scancel", other).check_returncode()
    modify("GrpTRES=gres/gpu=-1", "GrpJobs=-1")
    with system.client() as client:
        assert client.sync_quota("project", "default").quota.hard == NO_LIMITS
    system.await_jobs([second], JobState.RUNNING)
    system.corral("cancel", str(first), str(second))
    system.await_jobs([first, second])
    assert left_behind(system, slurm) == []
