"""The outcome of a job, from what its agents report about the end of its processes."""

from __future__ import annotations

import pytest

from controller.core.model.inputs import agent_inputs
from tests.engine_harness import EngineHarness, spec
from wire.agent.reports import AttemptStatus
from wire.names import JobState, Reason

MORE = "it needed more than its 100 MiB"


@pytest.mark.parametrize(
    ("why", "code", "number", "reason", "detail"),
    [
        ("", 3, None, Reason.EXIT_NONZERO, "exit code 3"),
        ("", None, 11, Reason.SIGNAL, "killed by signal 11"),
        (f"out_of_memory: {MORE}", None, 9, Reason.OUT_OF_MEMORY, MORE),
        # A child was ended for want of memory, and the program noticed by itself.
        (f"out_of_memory: {MORE}", 1, None, Reason.OUT_OF_MEMORY, MORE),
    ],
)
def test_failure_reason_and_detail_name_the_cause(
    why: str, code: int | None, number: int | None, reason: Reason, detail: str
) -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(1))
    harness.tick()
    harness.start(job)
    harness.exit(job, code, why=why, signal=number)
    ended = harness.job(job)
    assert (ended.state, ended.reason, ended.detail) == (JobState.FAILED, reason, detail)
    assert (ended.code, ended.signal) == (code, number)


@pytest.mark.parametrize("nodes", [1, 2])
def test_exit_reported_without_a_start_ends_the_job(nodes: int) -> None:
    """A supervisor reports both; an agent that reports only the end must not stop the controller."""
    harness = EngineHarness()
    harness.join("a")
    harness.join("b")
    job = harness.submit(spec(nodes, nodes=nodes))
    harness.tick()
    for node in harness.nodes_of(job):
        harness.tell(agent_inputs.AgentReported(node, AttemptStatus(job, 1, ended_at=harness.now, code=0)))
    ended = harness.job(job)
    assert (ended.state, ended.code) == (JobState.COMPLETED, 0)
    assert ended.started_at is not None
