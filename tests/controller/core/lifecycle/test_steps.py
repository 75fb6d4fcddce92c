"""Steps of srun become a fact with the end of the attempt, and cost other jobs nothing."""

from __future__ import annotations

from controller.core.model.events.attempts import AttemptExited, StepsRecorded
from controller.core.model.events.kinds import body_of
from controller.core.model.inputs import agent_inputs
from controller.core.state.job_and_node_rows import job_row
from tests.engine_harness import EngineHarness, default_pipeline, spec
from wire.agent.reports import AttemptStatus
from wire.job.steps import MAX_STEPS, Step
from wire.names import JobState

STEPS = (
    Step(0, "one", "n1", ended_at=6.0, code=3),
    Step(1, "two", "n1", started_at=9e9, ended_at=9e9, signal=9),
)


def running() -> tuple[EngineHarness, int]:
    harness = EngineHarness(default_pipeline())
    harness.join("n1")
    job = harness.submit(spec())
    harness.tick()
    harness.start(job)
    return harness, job


def test_steps_are_recorded_once_and_survive_a_restart() -> None:
    harness, job = running()
    status = AttemptStatus(job, 1, 99, 1.0, 2.0, code=0, steps=STEPS)
    decision = harness.tell(agent_inputs.AgentReported("n1", status))
    kinds = [type(event) for event in decision.events]
    assert kinds[:2] == [StepsRecorded, AttemptExited]
    [member] = harness.job(job).members.values()
    assert [(step.number, step.code, step.signal) for step in member.steps] == [(0, 3, 0), (1, 0, 9)]
    assert max(step.ended_at or 0.0 for step in member.steps) <= harness.now, "no time is in the future"
    again = harness.tell(agent_inputs.AgentReported("n1", status))
    assert again.events == (), "the agent repeats its report until it is settled"
    [restored] = harness.restarted().job(job).members.values()
    assert restored.steps == member.steps
    assert harness.job(job).state is JobState.COMPLETED


def test_a_job_without_steps_writes_nothing_about_them() -> None:
    harness, job = running()
    decision = harness.tell(agent_inputs.AgentReported("n1", AttemptStatus(job, 1, 99, 1.0, 2.0, code=0)))
    assert not any(isinstance(event, StepsRecorded) for event in decision.events)
    assert "steps" not in body_of(next(each for each in decision.events if isinstance(each, AttemptExited)))
    assert "steps" not in job_row(harness.job(job), with_spec=False).body


def test_an_agent_cannot_record_more_steps_than_allowed() -> None:
    harness, job = running()
    steps = tuple(Step(number, ended_at=1.0) for number in range(MAX_STEPS + 10))
    harness.tell(agent_inputs.AgentReported("n1", AttemptStatus(job, 1, 99, 1.0, 2.0, code=0, steps=steps)))
    [member] = harness.job(job).members.values()
    assert len(member.steps) == MAX_STEPS
