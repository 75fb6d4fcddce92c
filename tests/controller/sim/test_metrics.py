"""Every figure is compared with a figure that was computed by hand."""

from __future__ import annotations

import pytest

from controller.config import Config
from controller.sim.cluster import nodes_of, pool_of
from controller.sim.job_results import SimulatedJob
from controller.sim.metrics import Figures, figures_of
from controller.sim.run import RunTask, policy_of, run, simulate
from controller.sim.trace_job import TraceJob
from tests.controller.sim.logs.swf_lines import Given
from wire.job.spec import JobSpec
from wire.names import JobState

POOL = pool_of(4)


def figures(jobs: list[Given], policy: str = "fcfs", users: str = "") -> Figures:
    """Return the figures of these jobs on a pool of four processors. `users` has one letter for each job."""
    work = [
        TraceJob(number, submit, POOL.spec(size, estimate), time, user or "a")
        for (number, submit, time, size, estimate), user in zip(jobs, users or [""] * len(jobs), strict=True)
    ]
    return run(RunTask(policy_of(policy, Config()), POOL, work)).figures


def test_waits_flow_times_and_slowdowns() -> None:
    # Waits 0, 100, 105 and 0 s; runs 100, 5, 20 and 2 s.
    found = figures([(1, 0, 100, 4, 100), (2, 0, 5, 4, 5), (3, 0, 20, 4, 20), (4, 500, 2, 1, 2)])
    assert found.jobs == 4
    assert found.mean_wait_s == (0 + 100 + 105 + 0) / 4
    assert (found.p50_wait_s, found.p95_wait_s) == (0, 105)
    assert found.mean_flow_s == (100 + 105 + 125 + 2) / 4
    assert (found.p99_flow_s, found.max_flow_s) == (125, 125)
    # Jobs shorter than ten seconds count as ten, and no slowdown is below 1.
    assert found.avebsld == pytest.approx((1 + 105 / 10 + 125 / 20 + 1) / 4)
    assert found.max_bsld == 10.5
    assert found.makespan_s == 502


def test_utilisation_is_work_done_over_capacity() -> None:
    found = figures([(1, 100, 100, 2, 100), (2, 150, 100, 1, 100)])
    assert found.utilisation == pytest.approx((2 * 100 + 1 * 100) / (4 * 150))
    assert found.fragmentation == 0  # no job waited


def test_fragmentation_counts_idle_processors_while_a_job_waits() -> None:
    # From 10 to 100 the second job waits beside one idle processor; under FCFS the third job waits too.
    jobs: list[Given] = [(1, 0, 100, 3, 100), (2, 10, 10, 2, 10), (3, 10, 10, 1, 10)]
    assert figures(jobs).fragmentation == pytest.approx(90 * 1 / (90 * 4))
    # Under EASY the third runs from 10 to 20.
    assert figures(jobs, "easy").fragmentation == pytest.approx(80 * 1 / (90 * 4))


def test_fairness_compares_users_and_not_jobs() -> None:
    # Slowdowns: a 1 and 1; b 2.
    jobs: list[Given] = [(1, 0, 100, 4, 100), (2, 0, 100, 4, 100), (3, 500, 10, 1, 10)]
    assert figures(jobs, users="aba").fairness == pytest.approx((1 + 2) ** 2 / (2 * (1 + 4)))
    assert figures(jobs, users="aaa").fairness == 1


def test_cluster_with_gpus_is_measured_by_its_gpus() -> None:
    cluster = nodes_of(2, 4, 64, 4096, "H100")
    spec = JobSpec(("true",), gpus=3, time_limit_s=100)
    work = [TraceJob(number, 0.0, spec, 100.0) for number in (1, 2, 3)]
    found = run(RunTask(policy_of("easy", Config()), cluster, work)).figures
    assert found.makespan_s == 200
    assert found.utilisation == pytest.approx(3 * 3 * 100 / (8 * 200))
    # One GPU of each node was idle while the third job waited: too scattered.
    assert found.fragmentation == pytest.approx(2 / 8)


def test_jobs_without_gpus_are_measured_by_their_cpus() -> None:
    cluster = nodes_of(1, 4, 4, 4096, "H100")
    work = [TraceJob(1, 0.0, cluster.spec(2, 100), 100.0)]
    assert run(RunTask(policy_of("easy", Config()), cluster, work)).figures.utilisation == 0.5


def test_full_pool_of_fractional_jobs_counts_as_full() -> None:
    # The fractions sum up to a little more than the pool.
    found = figures([(number, number / 10, 0.3, 4, 0.3) for number in range(20)])
    assert 0 <= found.fragmentation < 1e-9


def test_preemptions_and_lost_hours_are_summed() -> None:
    def record(job: int, requeues: int, lost: float) -> SimulatedJob:
        return SimulatedJob(
            job, "a", "p", 1.0, 1_000, None, 0.0, job, 0.0, 10.0, JobState.COMPLETED,
            requeues=requeues, lost_gpu_s=lost,
        )  # fmt: skip

    found = figures_of([record(1, 2, 7_200.0), record(2, 1, 1_800.0)], POOL)
    assert (found.preemptions, found.gpu_hours_lost) == (3, 2.5)


def test_metrics_without_jobs_are_zero() -> None:
    found = figures_of([], POOL)
    assert (found.jobs, found.avebsld, found.utilisation, found.fairness) == (0, 0, 0, 0)


def test_records_carry_the_job_number_of_the_log() -> None:
    work = [TraceJob(number, 0.0, POOL.spec(1, 10), 10.0) for number in (17, 4)]
    _, records, _ = simulate(RunTask(policy_of("easy", Config()), POOL, work))
    assert [record.number for record in records.ran()] == [17, 4]
