"""Counts the representations of a job between the command line and the supervisor that runs the job."""

from __future__ import annotations

import pytest

from controller.core.model.decision.effects import StartAttempt
from controller.core.model.events.queued import JobQueued
from controller.core.model.inputs import controller_inputs, job_inputs
from tests.engine_harness import EngineHarness, spec
from wire.agent.orders import Start
from wire.codec import decode, encode
from wire.job.spec import JobSpec


def place(submitted: JobSpec) -> tuple[JobQueued, StartAttempt, JobSpec]:
    """Submit the job to an idle node. Return the event, the effect and the spec in the state."""
    harness = EngineHarness()
    harness.join("n1")
    harness.tick()
    first = harness.engine.handle(job_inputs.Submit(submitted, user="ada", key="k"), harness.now)
    second = harness.engine.handle(controller_inputs.Tick(), harness.now)
    queued = next(event for event in first.events if isinstance(event, JobQueued))
    started = next(effect for effect in second.effects if isinstance(effect, StartAttempt))
    return queued, started, harness.engine.state.jobs[queued.job].spec


def test_input_event_state_and_effect_have_the_same_spec_object() -> None:
    sent = decode(JobSpec, encode(spec(gpus=1, cpu_milli=1_000, memory_mib=512)))

    queued, started, kept = place(sent)

    assert queued.spec is sent
    assert kept is sent
    assert started.spec is sent
    assert [type(order.frame) for order in started.orders()] == [Start]


@pytest.mark.parametrize("size", ["cpu_milli", "memory_mib"])
def test_default_sizes_copy_the_spec_once(size: str) -> None:
    sent = spec(gpus=1, **{"cpu_milli": 1_000, "memory_mib": 512, size: 0})

    queued, started, kept = place(sent)

    assert queued.spec is not sent
    assert size in queued.spec.by_default
    assert kept is queued.spec
    assert started.spec is queued.spec
