"""Queues that keep free GPUs for their next jobs ([queues.NAME] keep_free_gpus)."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from controller.config.load import load_text
from controller.core.explain.why_no_preemption import why_no_preemption
from controller.core.explain.why_pending import reason_of
from controller.core.forecast.forecast import forecast, fork
from controller.registry import build_pipeline
from tests.engine_harness import EngineHarness, spec
from wire.job.spec import JobSpec
from wire.names import Reason

HOUR_S = 3_600.0
BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 16, 12, tzinfo=BERLIN).timestamp()
"""Noon of a Monday."""
POLICY = """
[scheduler]
time_zone = "Europe/Berlin"
backfill = "{backfill}"
[queues.interactive]
priority = 100
keep_free_gpus = 2
keep_free_hours = ["mon-fri 08:00-18:00"]
[queues.service]
priority = 100
[queues.default]
"""


def lab(nodes: int = 1, *, now: float = NOON, backfill: str = "easy") -> EngineHarness:
    harness = EngineHarness(build_pipeline(load_text(POLICY.format(backfill=backfill), "s.toml")), now=now)
    for number in range(nodes):
        harness.join(f"n{number + 1}")
    return harness


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_narrow_jobs_leave_the_kept_gpus_free_for_the_queue(backfill: str) -> None:
    harness = lab(backfill=backfill)
    sweeps = [harness.submit(spec(1, time_limit_s=HOUR_S)) for _ in range(8)]
    harness.tick()
    assert [bool(harness.nodes_of(job)) for job in sweeps] == [True] * 6 + [False] * 2
    why = harness.why(sweeps[6])
    assert why.reason is Reason.KEPT_FREE
    assert why.sentence == (
        "queue 'interactive' keeps 2 free GPUs for its jobs for another 6h00m; 2 are free now"
    )
    notebook = harness.submit(spec(1, queue="interactive", time_limit_s=HOUR_S))
    harness.tick()
    assert harness.nodes_of(notebook)
    assert not harness.nodes_of(sweeps[6])


def test_explain_names_the_kept_gpus_as_the_reason_why_no_job_is_preempted() -> None:
    preempts = '[preemption]\nstrategies = ["priority"]\n'
    pipeline = build_pipeline(load_text(preempts + POLICY.format(backfill="easy"), "s.toml"))
    harness = EngineHarness(pipeline, now=NOON)
    harness.join("n1")
    waits = [harness.submit(spec(1, time_limit_s=HOUR_S)) for _ in range(7)][-1]
    harness.tick()
    cycle = harness.engine.profile_cycles.of(harness.job(waits))
    assert why_no_preemption(cycle, harness.job(waits), harness.now) == (
        "the free GPUs are kept for another queue, and no job is preempted for that"
    )


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_on_a_full_cluster_the_reason_is_that_all_gpus_are_in_use(backfill: str) -> None:
    harness = lab(backfill=backfill)
    harness.submit(spec(8, queue="interactive", time_limit_s=HOUR_S))
    harness.tick()
    sweep = harness.submit(spec(1, time_limit_s=HOUR_S))
    harness.tick()
    why = harness.why(sweep)
    assert why.reason is Reason.RESOURCES
    assert reason_of(harness.state, harness.job(sweep)) is Reason.RESOURCES
    assert why.sentence == (
        "needs 1 node with 1 GPU, 7 CPUs, 57G; 0 of 1 can give that now: no free GPU (n1); "
        "besides, queue 'interactive' keeps 2 free GPUs for its jobs for another 6h00m; 0 are free now"
    )


def test_a_gpu_that_becomes_free_is_kept_again() -> None:
    harness = lab()
    sweeps = [harness.submit(spec(1, time_limit_s=HOUR_S)) for _ in range(8)]
    harness.tick()
    harness.submit(spec(2, queue="interactive", time_limit_s=HOUR_S))
    harness.tick()
    for ended in sweeps[:3]:
        harness.exit(ended)
    harness.tick()
    assert [bool(harness.nodes_of(job)) for job in sweeps[6:]] == [True, False]


def test_the_kept_gpus_are_given_up_when_the_hours_are_over() -> None:
    harness = lab()
    sweeps = [harness.submit(spec(1, time_limit_s=20 * HOUR_S)) for _ in range(8)]
    harness.tick()
    evening = NOON + 6 * HOUR_S
    assert harness.engine.next_at == evening
    assert forecast(fork(harness.engine), harness.now, (), sweeps[7]).starts[sweeps[7]].at == evening
    harness.tick_at(evening)
    assert all(harness.nodes_of(job) for job in sweeps)


@pytest.mark.parametrize(
    ("notebooks", "job", "starts"),
    [
        ([8], spec(8, time_limit_s=HOUR_S), True),
        ([7, 7], spec(2, nodes=2, time_limit_s=HOUR_S), True),
        ([8, 8], spec(0, time_limit_s=HOUR_S), True),
        ([8], spec(7, time_limit_s=HOUR_S, queue="service"), True),
        ([8], spec(7, time_limit_s=HOUR_S), False),
    ],
    ids=["whole node", "gang", "no GPU", "queue of equal priority", "narrow"],
)
def test_the_rule_concerns_only_narrow_jobs_of_queues_with_a_lower_priority(
    notebooks: list[int], job: JobSpec, starts: bool
) -> None:
    """Running notebooks with these numbers of GPUs leave so few GPUs free that a narrow job may take none."""
    harness = lab(nodes=2)
    for gpus in notebooks:
        harness.submit(spec(gpus, queue="interactive", time_limit_s=HOUR_S))
    harness.tick()
    number = harness.submit(job)
    harness.tick()
    assert bool(harness.nodes_of(number)) == starts


def test_gpus_with_a_reservation_do_not_count_as_free_for_the_queue() -> None:
    policy = POLICY.format(backfill="easy") + '[profiles.urgent]\nqueues = ["service"]\n'
    harness = EngineHarness(build_pipeline(load_text(policy, "s.toml")), now=NOON)
    for node in ("n1", "n2"):
        harness.join(node)
    for gpus in (8, 5):
        harness.submit(spec(gpus, time_limit_s=HOUR_S))
    harness.tick()
    harness.submit(spec(16, nodes=2, time_limit_s=HOUR_S))
    sweep = harness.submit(spec(1, time_limit_s=HOUR_S / 2))
    harness.tick()
    why = harness.why(sweep)
    assert why.reason is Reason.KEPT_FREE
    assert why.sentence == (
        "queue 'interactive' keeps 2 free GPUs for its jobs for another 6h00m; "
        "3 are free now, 3 of them reserved for waiting jobs"
    )
