"""The rates at which jobs end, and the expected run time for each end."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from controller.core.estimates.service_rates import BINS, ServiceRates, bin_of, run_s_of
from controller.core.model.inputs import job_inputs
from controller.core.state.job_and_node_rows import job_row, load_job
from controller.plugins.orders.by_service import AttainedServiceOrder
from tests.engine_harness import EngineHarness, spec

HOUR = 3_600.0


def index(rates: ServiceRates, run_s: float, gpus: float = 1.0, extra_s: float = 0.0) -> float:
    return rates.seconds_per_end(gpus, run_s, extra_s, HOUR)


def test_bins_begin_at_ten_minutes_and_double() -> None:
    assert [bin_of(run_s) for run_s in (0, 599, 600, 1_199, 1_200, 2_400, 1e30)] == [
        0,
        0,
        1,
        1,
        2,
        3,
        BINS - 1,
    ]


def test_seconds_and_ends_are_counted_in_the_bins_that_an_attempt_crosses() -> None:
    rates = ServiceRates()
    rates.learn(4.0, 300.0, 1_500.0, ended=False)
    rates.learn(4.0, 1_500.0, 1_600.0, ended=True)
    assert rates.seconds[4.0][:4] == [300.0, 600.0, 400.0, 0.0]
    assert rates.ends[4.0][:4] == [0, 0, 1, 0]
    assert rates.seconds[0.0] == rates.seconds[4.0]


def test_without_ends_jobs_that_have_run_least_come_first() -> None:
    rates = ServiceRates()
    found = [index(rates, 600.0 * 2**power) for power in range(-1, 14)]
    assert found == sorted(found)
    assert len(set(found)) > 10


def test_an_index_by_hand() -> None:
    """All jobs end in the first bin: the rate is (1000 + 1) / (1000 * 300 + 1 / (0.5 / 300))."""
    rates = ServiceRates()
    for _ in range(1_000):
        rates.learn(1.0, 0.0, 300.0, ended=True)
    all_jobs = 1_001 / (300_000.0 + 600.0)
    rate = 1_003 / (300_000.0 + 3 / all_jobs)
    # The horizon is one hour: 600 s in the first bin, 600 s, 1,200 s and half of the fourth bin. The later
    # bins have no run time and no ends, so their rates are 0.5 / 900, 0.5 / 1,800 and 0.5 / 3,600.
    seconds, alive = 0.0, 1.0
    for per_s, length_s in ((rate, 600), (0.5 / 900, 600), (0.5 / 1_800, 1_200), (0.5 / 3_600, 1_200)):
        seconds += alive * (1 - math.exp(-per_s * length_s)) / per_s
        alive *= math.exp(-per_s * length_s)
    assert index(rates, 0.0) == pytest.approx(seconds / (1 - alive))


def test_run_time_before_an_edit_of_the_gpus_stays_the_same() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(8))
    harness.tick()
    harness.start(job)
    harness.now += HOUR
    harness.tell(job_inputs.Requeue(job, "root"))
    harness.exit(job, None, signal=15, why="requeued")
    assert run_s_of(harness.job(job), harness.now) == HOUR
    order = AttainedServiceOrder()
    attained = order.group(harness.job(job), ())
    harness.tell(job_inputs.Edit(job, "ada", {"gpus": 2.0}))
    assert run_s_of(harness.job(job), harness.now) == HOUR
    assert order.group(harness.job(job), ()) == attained
    assert run_s_of(harness.restarted().job(job), harness.now) == HOUR


def test_the_row_of_an_older_version_gives_the_run_time_of_its_gpus() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(4))
    row = job_row(harness.job(job), with_spec=True)
    body = {**json.loads(row.body), "attempt": 1, "spent_gpu_s": 4 * HOUR}
    assert run_s_of(load_job(replace(row, body=json.dumps(body))), harness.now) == HOUR


def test_the_restart_cost_makes_the_index_higher() -> None:
    rates = ServiceRates()
    assert index(rates, 0.0, extra_s=300.0) > index(rates, 0.0)


def test_sizes_differ_when_their_jobs_do() -> None:
    rates = ServiceRates()
    for _ in range(50):
        rates.learn(1.0, 0.0, 1_000.0, ended=True)
        rates.learn(8.0, 0.0, 90_000.0, ended=True)
    assert index(rates, 0.0, gpus=1.0) < 5_000.0 < index(rates, 0.0, gpus=8.0)
    # A job that has outlived the short ones is rated by the jobs that ran as long.
    assert index(rates, 0.0, gpus=1.0) < index(rates, 20_000.0, gpus=1.0)


def test_equal_attempts_give_equal_rates() -> None:
    one, other = ServiceRates(), ServiceRates()
    for rates in (one, other):
        for number in range(40):
            rates.learn(1.0 + number % 3, 0.0, 100.0 * number, ended=number % 2 == 0)
    loaded = ServiceRates()
    for size, seconds in one.seconds.items():
        loaded.load(size, seconds, one.ends[size])
    for run_s in (0.0, 1_000.0, 50_000.0):
        assert index(one, run_s, 2.0) == index(other, run_s, 2.0) == index(loaded, run_s, 2.0)
