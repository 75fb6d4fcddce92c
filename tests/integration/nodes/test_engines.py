"""Execution engines with a real controller: jobs as processes and in containers, kills of the controller and
of the daemon.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tomli_w

from tests.agent.dockerd import DockerDaemon, docker_daemon
from tests.agent.images import IMAGE
from tests.controller.engines.engine_setups import EXAMPLES
from tests.systems import System
from wire.names import JobState

COMMON = {"interval_s": 0.2, "timeout_s": 20.0, "lost_after_s": 60.0}


def with_processes(system: System, **more: object) -> System:
    """Add the example engine, which runs jobs as processes."""
    system.sections["plugins"] = {"files": [str(EXAMPLES / "process_engine.py")]}
    system.sections["engines"] = {
        "here": {"type": "process", "cpus": 64, "memory_mib": 65_536, **COMMON, **more}
    }
    return system


@pytest.fixture
def system(build: Callable[..., System]) -> Iterator[System]:
    made = with_processes(build("gpu01"))
    yield made
    for path in made.state.glob("engines/*/jobs/*/child"):
        assert not Path(f"/proc/{path.read_text().strip()}").exists(), f"the job of {path} was left"


def submit(system: System, *words: str, engine: str = "here") -> int:
    flags = ("--engine", engine, "--cpus", "1", "--memory", "100M", "--workdir", "/")
    return int(system.corral("submit", *flags, *words).split()[-1])


def foreign_jobs(system: System, engine: str = "here") -> list[dict[str, object]]:
    shown = json.loads(system.corral("engines", "show", engine, "-o", "json"))
    found: list[dict[str, object]] = shown["jobs"]
    return found


def test_jobs_run_on_the_engine_that_they_name(system: System) -> None:
    system.start()
    system.await_nodes("here-local")
    good = submit(system, "--", "sh", "-c", "echo out; echo err >&2; test $CORRAL_NODE = here-local")
    bad = submit(system, "--", "sh", "-c", "exit 5")
    own = int(system.corral("submit", "--workdir", "/", "--", "true").strip())
    done = system.await_jobs([good, bad, own])
    states = [done[job].state for job in (good, bad, own)]
    assert states == [JobState.COMPLETED, JobState.FAILED, JobState.COMPLETED]
    for job, node in ((good, "here-local"), (bad, "here-local"), (own, "gpu01")):
        assert node in system.corral("job", "show", str(job))
    assert system.corral("logs", str(good)).split() == ["out", "err"]
    assert "exit code 5" in system.corral("job", "show", str(bad))
    table = system.corral("engines")
    assert "here" in table
    assert "up" in table
    assert "complete  yes" in system.corral("engines", "test", "here")


def test_stop_time_limit_and_drain(system: System) -> None:
    system.start()
    system.await_nodes("here-local")
    cancelled = submit(system, "--", "sleep", "1000")
    limited = submit(system, "--time", "2s", "--", "sleep", "1000")
    system.await_jobs([cancelled, limited], JobState.RUNNING)
    system.corral("job", "cancel", str(cancelled))
    done = system.await_jobs([cancelled, limited])
    assert done[cancelled].state is JobState.CANCELLED
    assert done[limited].reason.value == "time_limit"
    system.corral("engines", "drain", "here", "--why", "new disk")
    system.until(lambda: "engine here: new disk" in system.corral("nodes"), "the node is drained")
    waiting = submit(system, "--", "true")
    assert "QUEUED" in system.corral("job", "show", str(waiting))
    system.corral("engines", "resume", "here")
    assert system.await_jobs([waiting])[waiting].state is JobState.COMPLETED


def test_kills_of_the_controller_lose_and_double_nothing(system: System, tmp_path: Path) -> None:
    system.start()
    system.await_nodes("here-local")
    kill_often(system, tmp_path, "here", ())
    system.until(lambda: not [*system.state.glob("engines/here/jobs/*")], "all foreign jobs are forgotten")


def kill_often(system: System, place: Path, engine: str, flags: tuple[str, ...]) -> None:
    """Run jobs, kill the controller several times meanwhile, and check that each job ran exactly once."""
    chance, runs = random.Random(7), place / "runs"
    command = "echo $CORRAL_JOB_ID >> {}; sleep {:.1f}; exit 3"
    jobs = [
        submit(system, *flags, "--", "sh", "-c", command.format(runs, chance.uniform(0, 3)), engine=engine)
        for _ in range(12)
    ]
    for _ in range(5):
        time.sleep(chance.uniform(0, 1.5))
        system.kill()
        system.launch()
        system.await_answer()
    done = system.await_jobs(jobs)
    assert {view.exit_code for view in done.values()} == {3}
    assert Counter(map(int, runs.read_text().split())) == dict.fromkeys(jobs, 1)
    assert foreign_jobs(system, engine) == []


def test_a_changed_table_is_applied_while_jobs_run(system: System) -> None:
    system.start()
    system.await_nodes("here-local")
    job = submit(system, "--", "sh", "-c", "sleep 3; exit 8")
    system.await_jobs([job], JobState.RUNNING)
    system.sections["engines"]["here"]["cpus"] = 32
    system.config.write_text(tomli_w.dumps(system.sections))
    system.corral("config", "apply", "--yes")
    system.until(lambda: "/32 " in system.corral("nodes"), "the node has its new CPUs")
    assert system.await_jobs([job])[job].exit_code == 8
    del system.sections["engines"]
    system.config.write_text(tomli_w.dumps(system.sections))
    system.corral("config", "apply", "--yes")
    system.until(lambda: "here-local" not in system.corral("nodes"), "the node of the engine is removed")


def test_an_engine_with_live_jobs_cannot_be_removed(system: System) -> None:
    system.start()
    system.await_nodes("here-local")
    job = submit(system, "--", "sleep", "1000")
    system.await_jobs([job], JobState.RUNNING)
    assert system.stop() == 0
    table = system.sections.pop("engines")
    assert system.launch().wait(60) == 2
    assert "1 of its jobs may still run there" in system.log_end()
    system.sections["engines"] = table
    system.start()
    system.corral("job", "cancel", str(job))
    system.await_jobs([job])


def test_an_unknown_option_is_refused_with_its_line(build: Callable[..., System]) -> None:
    system = with_processes(build("gpu01"), colour="red")
    assert system.launch().wait(60) == 2
    assert "engines.here.colour: there is no such key" in system.log_end()
    assert "scheduler.toml:" in system.log_end()


@pytest.fixture
def daemon() -> Iterator[DockerDaemon]:
    with docker_daemon() as made:
        yield made


def with_docker(system: System, daemon: DockerDaemon, place: Path) -> System:
    """Add the container engine on a dockerd."""
    options = {"socket": f"{daemon.place}/sock", "pull": "never", "mount_roots": [str(place)]}
    system.sections["engines"] = {"docker": {"type": "docker", **COMMON, "timeout_s": 5.0, **options}}
    system.start()
    system.until(lambda: "docker-" in system.corral("nodes"), "the node of the engine is there")
    return system


def test_kills_of_the_controller_lose_and_double_no_container(
    build: Callable[..., System], daemon: DockerDaemon, tmp_path: Path
) -> None:
    system = with_docker(build("gpu01"), daemon, tmp_path)
    kill_often(system, tmp_path, "docker", ("--image", IMAGE, "--mount", str(tmp_path)))
    system.until(lambda: daemon.names() == [], "all containers are removed")


def test_containers_outlive_a_kill_of_dockerd_and_of_the_controller(
    build: Callable[..., System], daemon: DockerDaemon, tmp_path: Path
) -> None:
    system = with_docker(build("gpu01"), daemon, tmp_path)
    wait = (
        f"echo begun; echo run >> {tmp_path}/runs; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 4"
    )
    job = submit(system, "--image", IMAGE, "--mount", str(tmp_path), "--", "sh", "-c", wait, engine="docker")
    system.await_jobs([job], JobState.RUNNING)
    system.until((tmp_path / "runs").exists, "the job runs")
    daemon.kill()
    system.until(lambda: "failing" in system.corral("engines"), "the breaker is open")
    assert "RUNNING" in system.corral("job", "show", str(job))
    system.kill()
    (tmp_path / "go").touch()
    daemon.start()
    system.launch()
    system.await_answer()
    done = system.await_jobs([job])
    assert done[job].exit_code == 4
    assert (tmp_path / "runs").read_text() == "run\n"
    assert "begun" in system.corral("logs", str(job))
    system.until(lambda: daemon.names() == [], "the container is removed")
