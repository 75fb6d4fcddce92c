"""Services for tests of the engine, and agents that carry out its orders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.core.engine import Engine
from controller.core.model.inputs import agent_inputs, controller_inputs
from controller.core.model.job import Job
from controller.core.model.services import LABEL, Service
from controller.core.pipeline.pipeline import Pipeline
from tests.engine_harness import PIPELINE, EngineHarness
from wire.agent.reports import AttemptStatus
from wire.job.health import HealthCheck
from wire.job.placement.job_affinity import JobTerm
from wire.job.spec import JobSpec
from wire.job.start_conditions import Restart, RestartWhen
from wire.names import JobState

HEALTH = HealthCheck(("true",))


def service(name: str = "web", **more: Any) -> Service:
    """A service of user ada with 4 GPUs for each replica, on separate nodes if possible."""
    own = {key: more.pop(key) for key in ("replicas", "max_unavailable", "ready_after_s") if key in more}
    spec = JobSpec(
        command=("serve",),
        gpus=4,
        labels={LABEL: name},
        company=(JobTerm(LABEL, name, domains=None, prefer=True),),
        restart=Restart(RestartWhen.ALWAYS, None),
        grace_s=0.0,
    )
    return Service(name, "ada", replace(spec, **more), **own)


def pipeline_with(*services: Service) -> Pipeline:
    return replace(PIPELINE, services=services)


def replicas(harness: EngineHarness, name: str = "web") -> list[Job]:
    """The jobs of the service that have not ended, in the order of their numbers."""
    found = [job for job in harness.state.live() if job.replica is not None and job.replica.service == name]
    return sorted(found, key=lambda job: (job.replica.number if job.replica else 0, job.id))


def act(harness: EngineHarness) -> bool:
    """Let the agents do one ordered thing: end a stopped job, start a placed one, or report health."""
    for job in list(harness.state.live()):
        if job.stopping is not None and job.unended:
            harness.exit(job.id, None, signal=15, why="cancelled")
            return True
        if job.state is JobState.SCHEDULED:
            harness.start(job.id)
            return True
        if job.state is JobState.RUNNING and job.spec.health is not None and job.healthy is None:
            harness.tell(agent_inputs.HealthReported(job.id, job.attempt, healthy=True))
            return True
    return False


def settle(harness: EngineHarness, wait_s: float = 60.0) -> None:
    """Let scheduling cycles and agents act until nothing happens any more within `wait_s` seconds."""
    until = harness.now + wait_s
    while True:
        harness.tick()
        if act(harness):
            continue
        if harness.engine.next_at > until:
            return
        harness.now = max(harness.now, harness.engine.next_at)


def reconnect(harness: EngineHarness) -> EngineHarness:
    """The controller is killed and started again; every agent connects and reports its attempts."""
    other = harness.restarted()
    other.engine = Engine(harness.engine.pipeline, other.state)
    other.tell(controller_inputs.ControllerStarted(tuple(node.name for node in harness.state.nodes)))
    for node in harness.state.nodes:
        other.join(node.name, running_on(harness, node.name))
    return other


def running_on(harness: EngineHarness, node: str) -> tuple[AttemptStatus, ...]:
    """What the agent of the node reports about its attempts."""
    return tuple(
        AttemptStatus(job.id, job.attempt, 100 + job.id, member.started_at)
        for job in map(harness.job, sorted(harness.state.nodes.by_name[node].held))
        if (member := job.members[node]).started_at is not None
    )
