"""Simulated preemption: start and end of each job, repeated work, and counts."""

from __future__ import annotations

from dataclasses import replace

from controller.config import Config
from controller.sim.cluster import nodes_of
from controller.sim.run import Policy, RunTask, run, with_exact_estimate
from controller.sim.trace_job import TraceJob
from wire.job.gangs import Gang
from wire.job.spec import JobSpec

HOUR = 3_600.0
OPEN = Policy("open", Config(preemption={"strategies": ["priority"], "min_runtime_s": 0.0}))
PLAIN = Policy("plain", Config())


def job(number: int, submit: float, gpus: int, hours: float, priority: int, saves: bool = False) -> TraceJob:
    signal = "USR1" if saves else ""
    spec = JobSpec(("true",), gpus=gpus, priority=priority, time_limit_s=9 * HOUR, checkpoint_signal=signal)
    return TraceJob(number, submit, spec, hours * HOUR)


def outcome(policy: Policy, *work: TraceJob) -> tuple[dict[int, tuple[float, float]], int, float]:
    """(start, end) in hours by job, preemptions, GPU-hours lost."""
    found = run(RunTask(policy, nodes_of(1, 8, 64, 524_288, "H100"), list(work)))
    rows = {row.job: (row.start / HOUR, row.end / HOUR) for row in found.rows}
    return rows, found.figures.preemptions, found.figures.gpu_hours_lost


LOW, HIGH = job(1, 0.0, 8, 3.0, 25), job(2, HOUR, 4, 1.0, 75)


def test_no_job_is_preempted_without_strategies() -> None:
    assert outcome(PLAIN, LOW, HIGH) == ({1: (0.0, 3.0), 2: (3.0, 4.0)}, 0, 0.0)


def test_unsaved_work_is_repeated_after_a_preemption() -> None:
    assert outcome(OPEN, LOW, HIGH) == ({2: (1.0, 2.0), 1: (2.0, 5.0)}, 1, 8.0)


def test_saved_work_is_not_repeated_after_a_preemption() -> None:
    saving = job(1, 0.0, 8, 3.0, 25, saves=True)
    assert outcome(OPEN, saving, HIGH) == ({2: (1.0, 2.0), 1: (2.0, 4.0)}, 1, 0.0)


def test_saved_work_of_a_gang_is_counted_once() -> None:
    spec = JobSpec(("true",), gpus=8, nodes=2, priority=0, time_limit_s=9 * HOUR, checkpoint_signal="USR1")
    gang = TraceJob(1, 0.0, spec, 4 * HOUR)
    found = run(RunTask(OPEN, nodes_of(2, 4, 64, 524_288, "H100"), [gang, job(2, HOUR, 4, 1.0, 75)]))
    assert {row.job: (row.start / HOUR, row.end / HOUR) for row in found.rows} == {
        2: (1.0, 2.0),
        1: (2.0, 5.0),
    }


def test_preemption_waits_for_the_minimum_runtime() -> None:
    guarded = Policy("guarded", Config(preemption={"strategies": ["priority"], "min_runtime_s": 2 * HOUR}))
    assert outcome(guarded, LOW, HIGH)[0] == {2: (2.0, 3.0), 1: (3.0, 6.0)}


def test_an_elastic_job_that_shrinks_ends_at_its_original_time() -> None:
    """The simulator does not know how much longer the work takes on fewer nodes, so the run time stays."""
    gang = Gang(min_nodes=1, elastic=True)
    spec = JobSpec(("true",), gpus=16, nodes=2, priority=0, time_limit_s=9 * HOUR, gang=gang)
    work = [TraceJob(1, 0.0, spec, 4 * HOUR), job(2, HOUR, 8, 1.0, 75)]
    found = run(RunTask(OPEN, nodes_of(3, 8, 64, 524_288, "H100"), [*work, job(3, 0.0, 8, 1.5, 90)]))
    rows = {row.job: (row.start / HOUR, row.end / HOUR) for row in found.rows}
    assert rows == {3: (0.0, 1.5), 2: (1.0, 2.0), 1: (0.0, 4.0)}
    assert found.figures.preemptions == 0


def test_each_start_costs_the_overhead_and_only_work_is_saved() -> None:
    """Job 1 works from 0.5 h to 1 h. After its preemption it works from 2.5 h on, for the other 2.5 h."""
    saving = replace(job(1, 0.0, 8, 3.0, 25, saves=True), start_overhead_s=0.5 * HOUR)
    rows, preemptions, lost = outcome(OPEN, saving, HIGH)
    assert rows == {2: (1.0, 2.0), 1: (2.0, 5.0)}
    assert (preemptions, lost) == (1, 8 * 0.5)


def test_a_job_that_is_stopped_in_its_overhead_has_saved_nothing() -> None:
    saving = replace(job(1, 0.0, 8, 3.0, 25, saves=True), start_overhead_s=2 * HOUR)
    rows, _, lost = outcome(OPEN, saving, HIGH)
    assert rows == {2: (1.0, 2.0), 1: (2.0, 7.0)}
    assert lost == 8 * 1.0


def test_the_exact_estimate_includes_the_overhead() -> None:
    known = with_exact_estimate(replace(LOW, start_overhead_s=HOUR))
    assert known.spec.time_limit_s == 4 * HOUR
    assert outcome(PLAIN, known)[0] == {1: (0.0, 4.0)}
    cut = with_exact_estimate(replace(job(1, 0.0, 8, 30.0, 25), start_overhead_s=HOUR))
    assert (cut.runtime_s, cut.spec.time_limit_s) == (8 * HOUR, 9 * HOUR)
