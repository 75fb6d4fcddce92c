"""Time slices in simulations: jobs take turns although the scheduler knows no run times."""

from __future__ import annotations

import random
from dataclasses import replace

from controller.config import Config
from controller.sim.cluster import nodes_of
from controller.sim.run import Policy, RunTask, policy_of, run, with_slices
from controller.sim.trace_job import TraceJob, saving, without_time_limit
from wire.job.spec import JobSpec

HOUR = 3_600.0
CLUSTER = nodes_of(2, 4, 64, 524_288, "H100")


def jobs(count: int = 120) -> list[TraceJob]:
    """Many short jobs and a few long ones, on 1 to 8 GPUs, without time limits."""
    draw = random.Random(5)
    return [
        saving(
            TraceJob(
                number,
                number * 600.0,
                JobSpec(("true",), gpus=draw.choice((1, 1, 2, 4, 8))),
                draw.choice((0.1, 0.3, 0.5, 30.0)) * HOUR,
                start_overhead_s=60.0,
            )
        )
        for number in range(1, count + 1)
    ]


def sliced(name: str) -> Policy:
    return with_slices(policy_of(name, Config()), HOUR)


def test_jobs_that_take_turns_end_sooner_on_average() -> None:
    flows = {
        policy.name: run(RunTask(policy, CLUSTER, jobs())).figures
        for policy in (policy_of("fcfs", Config()), sliced("attained-service"), sliced("expected-remaining"))
    }
    assert {each.jobs for each in flows.values()} == {120}
    assert flows["expected-remaining"].mean_flow_s < 0.6 * flows["fcfs"].mean_flow_s
    assert flows["attained-service"].mean_flow_s < 0.8 * flows["fcfs"].mean_flow_s
    assert flows["fcfs"].preemptions == 0 < flows["expected-remaining"].preemptions
    assert 0 < flows["expected-remaining"].gpu_hours_lost < 50


def test_the_same_jobs_give_the_same_starts() -> None:
    one, other = (run(RunTask(sliced("expected-remaining"), CLUSTER, jobs())) for _ in range(2))
    assert one.rows == other.rows


def test_no_job_gives_way_twice_within_a_slice_or_without_saving() -> None:
    unsaved = [replace(job, spec=replace(job.spec, checkpoint_signal="")) for job in jobs()]
    assert run(RunTask(sliced("expected-remaining"), CLUSTER, unsaved)).figures.preemptions == 0


def test_other_policies_are_unchanged_by_slices() -> None:
    assert sliced("easy") == policy_of("easy", Config())


def test_hidden_limits_are_removed_and_nothing_else() -> None:
    job = TraceJob(1, 0.0, JobSpec(("true",), gpus=1, time_limit_s=60.0), 100.0)
    hidden = without_time_limit(job)
    assert hidden.spec.time_limit_s is None
    assert replace(hidden, spec=job.spec) == job
