"""Due times of waiting jobs: dropped constraints, raised priorities, and ends by timeout."""

from __future__ import annotations

from dataclasses import replace

from controller.core.forecast.forecast import forecast, fork
from controller.core.model.inputs import job_inputs
from controller.core.model.wait_state import WaitRules
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState, Reason

T0 = 1_000.0
PROMOTING = replace(PIPELINE, waiting=WaitRules(promote_after_s=100, promote_by=15, promote_most=75))


def two_models() -> EngineHarness:
    harness = EngineHarness()
    harness.join("a", model="H100")
    harness.join("b", model="A100")
    return harness


def test_a_relaxable_constraint_is_dropped_after_its_time() -> None:
    harness = two_models()
    harness.submit(spec(8, gpu_models=("H100",)))
    job = harness.submit(spec(8, gpu_models=("H100",), relax=("gpu_models",), relax_after_s=60))
    harness.tick()
    assert harness.tick_at(T0 + 59) == []
    assert [start.job for start in harness.tick_at(T0 + 60)] == [job]
    assert harness.nodes_of(job) == ["b"]
    assert harness.job(job).spec.gpu_models == ("H100",)


def test_explain_names_dropped_constraints() -> None:
    harness = two_models()
    harness.submit(spec(8))
    harness.submit(spec(8))
    job = harness.submit(spec(8, gpu_models=("H100",), relax=("gpu_models",), relax_after_s=60))
    harness.tick()
    harness.tick_at(T0 + 60)
    assert harness.why(job).reason is Reason.RESOURCES
    assert harness.why(job).sentence.endswith("; no longer requires gpu_models")


def test_a_job_that_fits_only_relaxed_is_not_refused() -> None:
    harness = two_models()
    job = harness.submit(spec(1, selector={"disk": "tape"}, relax=("selector",), relax_after_s=60))
    assert harness.tick() == []
    assert forecast(fork(harness.engine), harness.now).starts[job].at == T0 + 60
    assert [start.job for start in harness.tick_at(T0 + 60)] == [job]
    assert harness.refuse(job_inputs.Submit(spec(1, selector={"disk": "tape"}), "ada")).code == "never_fits"


def test_a_dropped_constraint_stays_dropped_after_a_restart() -> None:
    harness = two_models()
    harness.submit(spec(8))
    harness.submit(spec(8))
    job = harness.submit(spec(8, gpu_models=("H100",), relax=("gpu_models",), relax_after_s=60))
    harness.tick()
    harness.tick_at(T0 + 60)
    assert fork(harness.engine).state.jobs[job].ask == harness.job(job).ask
    assert harness.job(job).ask.part.models == ()


def test_waiting_raises_the_priority_up_to_a_limit() -> None:
    harness = EngineHarness(PROMOTING)
    harness.join("a")
    harness.submit(spec(8))
    low = harness.submit(spec(8, priority=40))
    harness.tick()
    seen = []
    for step in range(1, 5):
        harness.tick_at(T0 + 100 * step)
        seen.append(harness.job(low).priority)
    assert seen == [55, 70, 75, 75]
    assert harness.why(low).sentence.endswith("its priority was raised from 40 to 75 for waiting")
    newer = harness.submit(spec(8, priority=60))
    harness.tell(job_inputs.Cancel(1, "ada"))
    harness.exit(1, None, signal=15)
    assert [start.job for start in harness.tick()] == [low]
    assert harness.job(newer).state is JobState.QUEUED


def test_time_behind_a_gate_does_not_count_as_waiting() -> None:
    harness = EngineHarness(PROMOTING)
    harness.join("a")
    harness.submit(spec(8))
    job = harness.submit(spec(8, begin_at=T0 + 250))
    harness.tick_at(T0 + 250)
    harness.tick_at(T0 + 349)
    assert harness.job(job).priority == 50
    harness.tick_at(T0 + 350)
    assert harness.job(job).priority == 65


def test_a_job_that_waited_for_a_timed_out_job_starts_in_the_same_pass() -> None:
    """No other input may arrive for a long time."""
    harness = EngineHarness()
    harness.join("a", gpus=8)
    harness.submit(spec(8))
    harness.tick()
    hopeless = harness.submit(spec(8, start_within_s=60))
    job = harness.submit(spec(0, after=(Dependency(Until.NOT_OK, str(hopeless)),)))
    assert [start.job for start in harness.tick_at(T0 + 60)] == [job]
