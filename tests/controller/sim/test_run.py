"""The start of every job is compared with cases made by hand, and with a simple simulator without code of
Corral.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config import Config
from controller.sim.cluster import Cluster, nodes_of, pool_of
from controller.sim.errors import SimulationRefused
from controller.sim.run import (
    Policy,
    RunTask,
    SameSecond,
    name_of,
    policy_of,
    run,
    simulate,
    with_exact_estimate,
    with_order_and_backfill,
)
from controller.sim.trace_job import TraceJob
from tests.controller.sim import pool_reference
from tests.controller.sim.logs.swf_lines import Given
from tests.examples import examples
from wire.job.spec import JobSpec
from wire.names import Reason

CONFIG = Config()
POLICIES = ["fcfs", "sjf", "easy", "easy-sjbf", "conservative"]
CORE_NODE = {"gpus": 0, "cpus": 1, "memory_mib": 64, "model": ""}


def work_of(jobs: list[Given], cluster: Cluster) -> list[TraceJob]:
    return [
        TraceJob(number, submit, cluster.spec(size, estimate), time)
        for number, submit, time, size, estimate in jobs
    ]


def starts(
    jobs: list[Given],
    cluster: Cluster,
    policy: str,
    same_second: SameSecond = SameSecond.HOUSE,
    clairvoyant: bool = False,
) -> dict[int, float]:
    """When every job started, by number."""
    task = RunTask(policy_of(policy, CONFIG), cluster, work_of(jobs, cluster), clairvoyant, same_second)
    return {row.job: row.start for row in run(task).rows}


# (number, submit, run, processors, estimate), then the starts under each policy.
CASES: dict[str, tuple[int, list[Given], dict[str, list[float]]]] = {
    "what ends exactly when the first can start may pass it": (
        4,
        [(1, 0, 100, 3, 100), (2, 1, 50, 4, 50), (3, 2, 98, 1, 98), (4, 3, 10, 1, 97)],
        {"easy": [0, 100, 2, 150], "fcfs": [0, 100, 150, 150]},
    ),
    "one second longer may not": (
        4,
        [(1, 0, 100, 3, 100), (2, 1, 50, 4, 50), (3, 2, 98, 1, 99)],
        {"easy": [0, 100, 150], "conservative": [0, 100, 150]},
    ),
    "all that is given back in that second counts": (
        10,
        [(1, 0, 100, 5, 100), (2, 0, 100, 3, 100), (3, 1, 50, 6, 50), (4, 2, 500, 2, 500)],
        {"easy": [0, 0, 100, 2]},
    ),
    "shortest first goes by estimate, then by submit": (
        4,
        [
            (1, 0, 100, 3, 100),
            (2, 0, 10, 1, 10),
            (3, 1, 10, 4, 10),
            (4, 2, 60, 1, 60),
            (5, 3, 30, 1, 60),
            (6, 4, 20, 1, 20),
        ],
        {"easy": [0, 0, 100, 10, 110, 70], "easy-sjbf": [0, 0, 100, 30, 110, 10]},
    ),
    "shortest job first does not pass what does not fit": (
        4,
        [(1, 0, 100, 3, 100), (2, 1, 10, 2, 10), (3, 2, 50, 1, 50), (4, 3, 10, 4, 10)],
        {"sjf": [0, 100, 120, 110], "fcfs": [0, 100, 100, 150]},
    ),
    "a promise that begins now is not given up": (
        4,
        [(1, 0, 20, 2, 20), (2, 0, 20, 2, 60), (3, 1, 30, 4, 30), (4, 3, 10, 2, 10)],
        {"conservative": [0, 0, 30, 20], "easy": [0, 0, 20, 50]},
    ),
    "promises move forward in one pass a second": (
        4,
        [(1, 0, 20, 2, 60), (2, 0, 40, 4, 60), (3, 0, 20, 3, 20), (4, 0, 20, 1, 40)],
        {"conservative": [0, 20, 60, 0]},
    ),
    "every waiting job has a promise": (
        4,
        [(1, 1, 10, 3, 50), (2, 1, 30, 4, 30), (3, 1, 10, 1, 10), (4, 1, 20, 1, 20)],
        {"conservative": [1, 31, 1, 11], "easy": [1, 11, 1, 41]},
    ),
    "a job that runs for no time ends in its second, and the next one starts in it": (
        1,
        [(1, 0, 0, 1, 60), (2, 0, 10, 1, 10)],
        {"fcfs": [0, 0], "easy": [0, 0], "conservative": [0, 0], "sjf": [10, 0]},
    ),
    "a job ends at its estimate at the latest": (
        1,
        [(1, 0, 100, 1, 60), (2, 0, 10, 1, 10)],
        {"fcfs": [0, 60]},
    ),
    "who comes first is first, whatever its line": (
        1,
        [(1, 5, 10, 1, 10), (2, 0, 10, 1, 10), (3, 0, 10, 1, 10)],
        {"fcfs": [20, 0, 10]},
    ),
}


@pytest.mark.parametrize("shape", ["pool", "nodes"])
@pytest.mark.parametrize("case", CASES)
def test_schedule_worked_out_by_hand(case: str, shape: str) -> None:
    processors, jobs, expected = CASES[case]
    cluster = pool_of(processors) if shape == "pool" else nodes_of(processors, **CORE_NODE)
    for policy, wanted in expected.items():
        assert list(dict(sorted(starts(jobs, cluster, policy).items())).values()) == wanted, policy


SAME_SECOND: dict[str, tuple[int, list[Given], str, list[float], list[float]]] = {
    "an early end and an arrival": (
        10,
        [(1, 0, 50, 6, 100), (2, 1, 10, 8, 10), (3, 50, 40, 4, 40)],
        "easy",
        [0, 50, 60],
        [0, 90, 50],
    ),
    "two early ends": (
        10,
        [(1, 0, 50, 5, 100), (2, 0, 50, 5, 100), (3, 1, 10, 8, 10), (4, 2, 30, 5, 30)],
        "easy",
        [0, 0, 50, 60],
        [0, 0, 80, 50],
    ),
    "two arrivals, shortest first": (
        4,
        [(1, 0, 100, 3, 100), (2, 1, 10, 4, 10), (3, 5, 60, 1, 60), (4, 5, 20, 1, 20)],
        "easy-sjbf",
        [0, 100, 25, 5],
        [0, 100, 5, 65],
    ),
    "an end at the estimate frees its room for what arrives in that second": (
        4,
        [(1, 0, 50, 4, 50), (2, 50, 10, 4, 10), (3, 50, 5, 4, 5)],
        "fcfs",
        [0, 50, 60],
        [0, 50, 60],
    ),
}


@pytest.mark.parametrize("shape", ["pool", "nodes"])
@pytest.mark.parametrize("case", SAME_SECOND)
def test_order_of_events_within_one_second(case: str, shape: str) -> None:
    processors, jobs, policy, house, sc15 = SAME_SECOND[case]
    cluster = pool_of(processors) if shape == "pool" else nodes_of(processors, **CORE_NODE)
    for same_second, wanted in ((SameSecond.HOUSE, house), (SameSecond.SC15, sc15)):
        found = starts(jobs, cluster, policy, same_second)
        assert [found[number] for number in sorted(found)] == wanted, same_second


@st.composite
def logs(draw: st.DrawFn) -> tuple[int, list[Given]]:
    """A small machine and a log for it, with many events in the same second; of fractions none is exact."""
    processors = draw(st.integers(1, 8))
    tick = draw(st.sampled_from([1, 5, 0.37]))
    count = draw(st.integers(1, 25))
    jobs: list[Given] = []
    for number in range(1, count + 1):
        ticks = draw(st.integers(1, 12))
        estimate = ticks * tick
        ran = draw(st.one_of(st.just(estimate), st.integers(0, ticks).map(lambda n: n * tick)))
        submit = draw(st.integers(0, 20)) * tick
        jobs.append((number, submit, ran, draw(st.integers(1, processors)), estimate))
    return processors, jobs


def plain_starts(
    log: tuple[int, list[Given]], policy: str, same_second: SameSecond, clairvoyant: bool
) -> dict[int, float]:
    """Return the starts of all jobs, computed by the simple simulator."""
    processors, jobs = log
    plain = [
        pool_reference.Job(number, submit, ran, size, (ran or 1) if clairvoyant else estimate)
        for number, submit, ran, size, estimate in jobs
    ]
    simulated = pool_reference.Pool(plain, processors, policy)
    return simulated.simulate() if same_second is SameSecond.HOUSE else simulated.simulate_one_by_one()


@pytest.mark.parametrize("policy", POLICIES)
@given(log=logs(), clairvoyant=st.booleans())
@settings(max_examples=examples(120))
def test_starts_on_a_pool_equal_those_of_a_plain_simulator(
    policy: str, log: tuple[int, list[Given]], clairvoyant: bool
) -> None:
    found = starts(log[1], pool_of(log[0]), policy, clairvoyant=clairvoyant)
    assert found == plain_starts(log, policy, SameSecond.HOUSE, clairvoyant)


# Conservative reservations name their nodes, so a job may have to wait for its own node.
@pytest.mark.parametrize("policy", POLICIES[:-1])
@given(log=logs(), same_second=st.sampled_from(SameSecond), clairvoyant=st.booleans())
@settings(max_examples=examples(120))
def test_starts_on_one_processor_nodes_equal_those_of_a_plain_simulator(
    policy: str, log: tuple[int, list[Given]], same_second: SameSecond, clairvoyant: bool
) -> None:
    cluster = nodes_of(log[0], **CORE_NODE)
    found = starts(log[1], cluster, policy, same_second, clairvoyant)
    assert found == plain_starts(log, policy, same_second, clairvoyant)


def test_job_wider_than_a_node_is_spread_evenly_over_the_fewest_nodes() -> None:
    cluster = nodes_of(3, 0, 4, 64, "")
    spec = cluster.spec(5, 60)
    assert (spec.nodes, spec.cpu_milli) == (2, 3_000)
    # 3 of 4 CPUs of two nodes are in use: 3 more fit on the third node, then 1 and 1 beside the first job.
    jobs: list[Given] = [(1, 0, 60, 5, 60), (2, 0, 60, 3, 60), (3, 0, 60, 1, 60), (4, 0, 60, 2, 60)]
    assert starts(jobs, cluster, "easy") == {1: 0, 2: 0, 3: 0, 4: 60}


def test_pool_wider_than_the_largest_node_counts_every_processor() -> None:
    cluster = pool_of(93_312)
    jobs: list[Given] = [(1, 0, 60, 93_311, 60), (2, 0, 60, 1, 60), (3, 0, 60, 1, 60)]
    assert starts(jobs, cluster, "fcfs") == {1: 0, 2: 0, 3: 60}


def test_end_state_does_not_depend_on_rounding() -> None:
    work = [TraceJob(n, n / 10, JobSpec(("true",), time_limit_s=n / 3), n / 3) for n in range(1, 200)]
    work.append(TraceJob(200, 0.1, JobSpec(("true",), time_limit_s=0.3), 0.3000001))
    _, records, _ = simulate(RunTask(policy_of("easy", CONFIG), pool_of(4), work))
    assert {record.reason for record in records.ran() if record.number != 200} == {Reason.NONE}
    assert [record.reason for record in records.ran() if record.number == 200] == [Reason.TIME_LIMIT]


def test_job_refused_by_the_engine_is_counted_with_its_reason() -> None:
    work = [TraceJob(1, 0.0, JobSpec(("true",), gpus=8), 10.0), TraceJob(2, 0.0, JobSpec(("true",)), 10.0)]
    outcome = run(RunTask(policy_of("easy", Config()), pool_of(4), work))
    assert [row.job for row in outcome.rows] == [2]
    assert list(outcome.refused.values()) == [1]
    assert "8 GPUs" in next(iter(outcome.refused))


def test_exact_estimates_never_lengthen_a_run() -> None:
    work = TraceJob(1, 0.0, JobSpec(("true",), time_limit_s=60.0), 100.0)
    assert with_exact_estimate(work).runtime_s == with_exact_estimate(work).spec.time_limit_s == 60.0
    boundless = TraceJob(1, 0.0, JobSpec(("true",)), 100.0)
    assert with_exact_estimate(boundless).spec.time_limit_s == 100.0
    short = TraceJob(1, 0.0, JobSpec(("true",), time_limit_s=60.0), 0.25)
    assert with_exact_estimate(short).spec.time_limit_s == 0.25
    at_once = TraceJob(1, 0.0, JobSpec(("true",), time_limit_s=60.0), 0.0)
    assert with_exact_estimate(at_once).spec.time_limit_s == 1.0  # a limit of 0 is not valid


@pytest.mark.parametrize(
    ("policy", "starts_h"),
    [
        (Policy("shipped", CONFIG), {1: 0, 2: 40, 3: 30}),
        (policy_of("fcfs", CONFIG), {1: 0, 2: 30, 3: 40}),
        (policy_of("easy", CONFIG), {1: 0, 2: 30, 3: 40}),
        (Policy("flag", with_order_and_backfill(CONFIG, "fifo", "")), {1: 0, 2: 30, 3: 40}),
        (Policy("fair", with_order_and_backfill(CONFIG, "fair", "")), {1: 0, 2: 40, 3: 30}),
    ],
    ids=lambda value: value.name if isinstance(value, Policy) else "",
)
def test_gang_after_a_long_wait_comes_first_except_in_policies_of_the_literature(
    policy: Policy, starts_h: dict[int, int]
) -> None:
    cluster = nodes_of(2, gpus=8, cpus=64, memory_mib=1 << 20, model="H100")
    jobs = ((1, 2, 30.0), (2, 1, 10.0), (3, 2, 10.0))
    work = [
        TraceJob(number, float(number), JobSpec(("true",), gpus=8 * nodes, nodes=nodes), run_h * 3_600)
        for number, nodes, run_h in jobs
    ]
    ran = run(RunTask(policy, cluster, work)).rows
    assert {row.job: int(row.start / 3_600) for row in ran} == starts_h


def test_policies_have_names() -> None:
    for name in POLICIES:
        policy = policy_of(name, Config())
        assert policy.name == name_of(policy.config) == name
    assert name_of(Config()) == "easy"
    assert name_of(with_order_and_backfill(Config(), "sjf", "easy")) == "shortest+easy"
    with pytest.raises(SimulationRefused, match="no policy 'eazy'") as refused:
        policy_of("eazy", Config())
    assert "Did you mean 'easy'?" in refused.value.hint


def _gpu_work(seed: int) -> list[TraceJob]:
    """Jobs of several sizes for 4 nodes of 8 GPUs, more than the nodes can run at once."""
    rng, work = Random(seed), []
    for number in range(1, 300):
        gpus = rng.choice([0.5, 0.5, 1, 1, 2, 4, 8, 16])
        limit = rng.choice([600.0, 3_600.0, 14_400.0])
        asked = JobSpec(("true",), gpus=gpus, nodes=2 if gpus == 16 else None, time_limit_s=limit)
        user = rng.choice(("ann", "bob", "eve"))
        work.append(TraceJob(number, number * 300.0, asked, limit * rng.uniform(0.1, 1.1), user=user))
    return work


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_accounting_changes_no_decision(backfill: str) -> None:
    cluster = nodes_of(4, gpus=8, cpus=64, memory_mib=1 << 20, model="H100")
    task = RunTask(policy_of(backfill, Config()), cluster, _gpu_work(5))
    accounted = run(replace(task, count_gpu_hours=True))
    assert accounted.accounted is not None
    assert len(accounted.accounted.waste.idle) > 2
    plain = run(task)
    assert plain.accounted is None
    assert plain.rows == accounted.rows


def test_reports_cover_the_whole_run() -> None:
    cluster = nodes_of(4, gpus=8, cpus=64, memory_mib=1 << 20, model="H100")
    outcome = run(RunTask(policy_of("easy", Config()), cluster, _gpu_work(1), count_gpu_hours=True))
    assert outcome.accounted is not None
    waste, users = outcome.accounted.waste, outcome.accounted.users
    begin, end = min(row.submit for row in outcome.rows), max(row.end for row in outcome.rows)
    assert waste.gpu_hours == pytest.approx(32 * (end - begin) / 3_600)
    assert waste.used + sum(each.gpu_hours for each in waste.idle) == pytest.approx(waste.gpu_hours, abs=1e-3)
    assert waste.used == pytest.approx(outcome.figures.utilisation * waste.gpu_hours)
    assert {row.name for row in users.rows} == {"ann", "bob", "eve"}
    assert sum(row.got for row in users.rows) == pytest.approx(waste.used)
