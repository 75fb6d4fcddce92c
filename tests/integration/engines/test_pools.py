"""A machine pool with a real controller, real SSH servers and real agents, on a cloud with faults."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.integration.engines.virtual_machines import VirtualMachines, lacking, virtual_machines
from tests.systems import System
from wire.names import JobState

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking() or "everything is there")


@pytest.fixture
def machines(build: Callable[..., System]) -> Iterator[VirtualMachines]:
    system = build("gpu01")
    place = system.place / "cloud"
    place.mkdir()
    with virtual_machines(place) as made:
        made.system = system  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def system(machines: VirtualMachines) -> System:
    made: System = machines.system  # type: ignore[attr-defined]
    made.sections["engines"] = {"burst": machines.options()}
    return made


def submit(system: System, *command: str, flags: tuple[str, ...] = ()) -> int:
    base = ("submit", "--engine", "burst", "--gpus", "8", "--workdir", "/")
    return int(system.corral(*base, *flags, "--", *command).split()[-1])


def pool(system: System) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(system.corral("engines", "show", "burst", "-o", "json"))["pool"]
    return found


def test_a_waiting_job_gets_a_machine_that_ends_when_idle(system: System, machines: VirtualMachines) -> None:
    engines = system.sections.pop("engines")
    system.start()
    system.sections["engines"] = engines
    system.config.write_text(tomli_w.dumps(system.sections))
    system.corral("config", "apply", "--yes")
    held = submit(system, "true", flags=("--hold",))
    job = submit(system, "sh", "-c", "echo here; exit 3")
    assert system.await_jobs([job])[job].exit_code == 3
    assert system.corral("logs", str(job)).split() == ["here"]
    [instance] = machines.cloud.instances.values()
    with system.client() as client:
        [node] = [each for each in client.nodes().nodes if each.name.startswith("burst-")]
    labels = node.labels
    assert (labels["region"], labels["zone"], labels["cost"]) == ("north", "north-a", "2")
    assert "2/h" in system.corral("engines", "show", "burst")
    system.until(lambda: instance.state == "terminated", "the idle machine is ended")
    system.until(lambda: "burst-" not in system.corral("nodes"), "its node is removed")
    assert len(machines.cloud.instances) == 1
    assert pool(system)["spent_today"] > 0
    assert system.jobs()[held].state is JobState.QUEUED


@pytest.mark.engines
def test_a_spot_notice_moves_a_job_and_a_lost_machine_loses_it(
    system: System, machines: VirtualMachines
) -> None:
    system.sections["engines"]["burst"]["spot"] = True
    system.start()
    flags = ("--grace", "1s", "--on-node-lost", "requeue-after-lease")
    job = submit(system, "sh", "-c", "trap 'exit 1' TERM; while :; do sleep 0.1; done", flags=flags)
    system.await_jobs([job], JobState.RUNNING)
    [first] = machines.cloud.instances.values()
    first.notice_at = time.time() - 100.0  # EC2 interrupts the instance in 20 s
    system.until(lambda: len(machines.cloud.instances) == 2, "another machine is ordered")
    system.until(lambda: first.state == "terminated", "the empty machine is ended")
    system.until(lambda: system.jobs()[job].state is JobState.RUNNING, "the job runs again")
    second = list(machines.cloud.instances.values())[1]
    machines.cloud.end(second)
    system.until(lambda: len(machines.cloud.instances) == 3, "a third machine is ordered")
    system.until(lambda: system.jobs()[job].state is JobState.RUNNING, "the job runs again")
    system.corral("job", "cancel", str(job))
    system.until(lambda: machines.cloud.alive == [], "all machines are ended")


@pytest.mark.engines
def test_kills_of_the_controller_lose_and_double_no_machine(
    system: System, machines: VirtualMachines, tmp_path: Path
) -> None:
    chance, runs = random.Random(5), tmp_path / "runs"
    machines.cloud.full.add(("g5.large", "north-a"))
    system.start()
    command = f"echo $CORRAL_JOB_ID >> {runs}; sleep 1; exit 3"
    jobs = [submit(system, "sh", "-c", command) for _ in range(6)]
    for number in range(10):
        time.sleep(chance.uniform(0.2, 2.0))
        machines.cloud.lose_answers = number % 3
        system.kill()
        system.launch()
        system.await_answer()
    machines.cloud.lose_answers = 0
    done = system.await_jobs(jobs)
    assert {view.exit_code for view in done.values()} == {3}
    assert Counter(map(int, runs.read_text().split())) == dict.fromkeys(jobs, 1)
    system.until(lambda: machines.cloud.alive == [], "all machines are ended")
    tokens = Counter(each.tags["corral-machine"] for each in machines.cloud.instances.values())
    assert max(tokens.values()) == 1
