"""Synthetic workloads: as requested, like real users, and the same every time."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.sim.cluster import Cluster, nodes_of
from controller.sim.generate import Format, TooMany, Workload, WorkloadRequest, generate, lines
from controller.sim.generate.arrival_hours import DAY_S, DAYS, HOUR_S, arrival_rate, draw_arrival
from controller.sim.generate.jobs import GeneratedJob, capacity_of
from controller.sim.generate.random_numbers import RandomStream, zipf
from controller.sim.generate.users import ROUND_LIMITS, SIZES, draw_users
from controller.sim.logs.job_log import read_log
from controller.sim.logs.swf import SwfOptions
from tests.examples import examples

CLUSTER = nodes_of(16, 8, 64, 512 * 1024, "H100")


@cache
def crowd() -> Workload:
    """A workload with many users and days, so that one user has little effect on the statistics."""
    return generate(
        WorkloadRequest(nodes_of(64, 8, 64, 512 * 1024, "H100"), seed=5, users=1_000, days=28, load=0.8)
    )


def by_template(rows: list[GeneratedJob]) -> dict[tuple[str, str], list[GeneratedJob]]:
    found = defaultdict(list)
    for row in rows:
        found[row.user, row.name].append(row)
    return found


# --- when ---


def test_arrivals_follow_hours_of_the_day_and_days_of_the_week() -> None:
    """Chi-square over the 168 hours of a week: 99.9 % of fair samples stay below 230."""
    rng = RandomStream("a week")
    count = 40_000
    found = Counter(int(draw_arrival(rng, 7 * DAY_S) // HOUR_S) for _ in range(count))
    weights = [
        sum(arrival_rate((hour + (part + 0.5) / 20) * HOUR_S) for part in range(20)) for hour in range(168)
    ]
    expected = [count * weight / sum(weights) for weight in weights]
    chi_square = sum((found[hour] - expected[hour]) ** 2 / expected[hour] for hour in range(168))
    assert chi_square < 230


def test_chi_square_rejects_an_even_arrival_rate() -> None:
    rng = RandomStream("even")
    found = Counter(int(rng.uniform() * 168) for _ in range(40_000))
    weights = [arrival_rate((hour + 0.5) * HOUR_S) for hour in range(168)]
    expected = [40_000 * weight / sum(weights) for weight in weights]
    assert sum((found[hour] - expected[hour]) ** 2 / expected[hour] for hour in range(168)) > 2_000


def test_most_jobs_arrive_in_the_daytime_on_working_days() -> None:
    hours = Counter(int(row.submit % DAY_S // HOUR_S) for row in crowd().rows)
    days = Counter(int(row.submit // DAY_S) % 7 for row in crowd().rows)
    assert min(hours[hour] for hour in range(10, 18)) > 3 * max(hours[hour] for hour in range(2, 6))
    whole = sum(days.values())
    for day in range(7):
        assert days[day] / whole == pytest.approx(DAYS[day] / sum(DAYS), rel=0.15)


# --- how much ---


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("load", [0.3, 0.9, 1.5])
def test_requested_load_is_reached(seed: int, load: float) -> None:
    workload = generate(WorkloadRequest(CLUSTER, seed, days=7, load=load))
    asked = sum(row.gpus * min(row.duration, row.estimate) for row in workload.rows)
    assert asked / (16 * 8 * 7 * DAY_S) == pytest.approx(load, rel=0.01)
    assert workload.load == pytest.approx(load, rel=0.01)


def test_number_of_jobs_and_load_decide_the_time_span() -> None:
    workload = generate(WorkloadRequest(CLUSTER, jobs=2_000, load=0.5))
    assert len(workload.rows) == 2_000
    assert workload.load == pytest.approx(0.5)
    assert workload.rows[-1].submit <= workload.span_s


def test_number_of_jobs_and_days_decide_the_time_span() -> None:
    workload = generate(WorkloadRequest(CLUSTER, jobs=500, days=3))
    assert len(workload.rows) == 500
    assert workload.span_s == 3 * DAY_S


def test_implausible_request_is_refused() -> None:
    with pytest.raises(TooMany, match="1,000,000 jobs"):
        generate(WorkloadRequest(nodes_of(10_000, 8, 64, 512 * 1024, "H100"), days=3_650, load=1.0))


# --- jobs ---


def test_job_sizes_are_powers_of_two_in_their_usual_parts() -> None:
    everybody = draw_users(3, 4_000, [size for size, _ in SIZES], ())
    templates = [template for user in everybody.things for template in user.templates.things]
    found = Counter(template.gpus for template in templates)
    weights = dict(SIZES)
    for size in found:
        assert found[size] / len(templates) == pytest.approx(weights[size] / sum(weights.values()), abs=0.02)
    assert {row.gpus for row in crowd().rows} <= set(weights)


def test_every_job_fits_a_cluster_with_odd_node_sizes() -> None:
    cluster = nodes_of(5, 6, 10, 50 * 1024, "H100")
    for row in generate(WorkloadRequest(cluster, jobs=3_000, load=1.0)).rows:
        assert row.gpus <= 15
        assert row.nodes <= 5
        assert row.gpus % row.nodes == 0 or row.nodes == 1
        assert row.gpus / row.nodes <= 6
        assert 1 <= row.cpu <= 10
        assert 1 <= row.memory <= 50 * 1024


def test_cores_and_memory_grow_with_the_gpus() -> None:
    whole = [row for row in crowd().rows if row.gpus >= 1]
    for row in whole:
        here = row.gpus / row.nodes
        assert 2 * here <= row.cpu <= 8 * here
        assert 16 * 1024 * here <= row.memory <= 64 * 1024 * here


def test_run_times_of_a_template_are_log_normal() -> None:
    """Kolmogorov and Smirnov, on templates with many jobs: nearly all keep within the bounds of 1 %."""
    good = several = 0
    for rows in by_template([row for row in crowd().rows if row.code == 0]).values():
        logs = sorted(math.log(row.duration) for row in rows if row.duration < ROUND_LIMITS[-1])
        # With half the GPUs the run time is as it was: the template is its name.
        if len(logs) < 150 or statistics.median(logs) < math.log(60):
            continue
        several += 1
        shape = statistics.NormalDist(statistics.fmean(logs), statistics.stdev(logs))
        distance = max(abs((at + 0.5) / len(logs) - shape.cdf(value)) for at, value in enumerate(logs))
        good += distance < 1.035 / math.sqrt(len(logs))  # Lilliefors, 1 %
    assert several >= 40
    assert good >= 0.95 * several


def test_estimates_are_wrong_as_in_real_logs() -> None:
    rows = crowd().rows
    assert sum(row.estimate in ROUND_LIMITS for row in rows) > 0.6 * len(rows), "most write a round limit"
    assert 3 < statistics.median(row.estimate / row.duration for row in rows) < 15, "far too long"
    assert 0.01 < sum(row.duration > row.estimate for row in rows) / len(rows) < 0.08, "but some too short"


def test_a_template_has_one_estimate() -> None:
    for rows in by_template(list(crowd().rows)).values():
        assert len({row.estimate for row in rows}) == 1


def test_failures_are_early_and_have_an_exit_code() -> None:
    failed = [row for row in crowd().rows if row.code]
    fine = [row for row in crowd().rows if not row.code]
    assert 0.07 < len(failed) / len(crowd().rows) < 0.18
    assert (
        statistics.median(row.duration for row in failed)
        < statistics.median(row.duration for row in fine) / 5
    )
    assert Counter(row.code for row in failed).most_common(1)[0][0] == 1
    assert all(0 < row.code < 256 for row in failed)


def test_a_few_users_submit_most_jobs() -> None:
    by_user = Counter(
        row.user for row in generate(WorkloadRequest(CLUSTER, users=100, jobs=20_000, load=0.8)).rows
    )
    busiest = [jobs for _, jobs in by_user.most_common()]
    assert sum(busiest[:10]) > 0.45 * 20_000
    assert by_user["ada"] > 5 * by_user["claude"], "the first before the twenty-second"


def test_job_names_repeat_in_bursts() -> None:
    rows = crowd().rows
    assert len(by_template(list(rows))) < len(rows) / 5
    by_user = defaultdict(list)
    for row in rows:
        by_user[row.user].append(row.submit)
    gaps = [after - before for times in by_user.values() for before, after in pairwise(times)]
    # Evenly spread, the jobs of a user would be 28 days / count apart.
    even = statistics.median(28 * DAY_S / len(times) for times in by_user.values())
    assert statistics.median(gaps) < even / 10


def test_some_jobs_ask_for_a_gpu_model() -> None:
    rows = generate(WorkloadRequest(CLUSTER, jobs=5_000, load=0.8, users=200, models=("A100", "H100"))).rows
    found = Counter(row.model for row in rows)
    assert set(found) == {"", "A100", "H100"}
    assert 0.5 < found[""] / len(rows) < 0.8
    assert {row.model for row in crowd().rows} == {""}


# --- the same every time ---


def text_of(wish: WorkloadRequest, form: Format = Format.CSV) -> str:
    return "".join(lines(generate(wish), form))


def test_generated_bytes_are_the_same_in_another_process() -> None:
    program = (
        "import sys; from controller.sim.generate import *; from controller.sim.cluster import nodes_of\n"
        "wish = WorkloadRequest(nodes_of(16, 8, 64, 512 * 1024, 'H100'), 11, days=2, load=0.7)\n"
        "sys.stdout.writelines(lines(generate(wish), Format.CSV))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert printed.stdout == text_of(WorkloadRequest(CLUSTER, 11, days=2, load=0.7))
    assert printed.stdout != text_of(WorkloadRequest(CLUSTER, 12, days=2, load=0.7))


def test_first_jobs_of_a_seed_never_change() -> None:
    """A later version must make the same jobs from the same seed."""
    first = text_of(WorkloadRequest(CLUSTER, 1, jobs=1_000, days=7)).splitlines()[:4]
    assert first == GOLDEN


GOLDEN = [
    "submit,duration,estimate,user,gpus,nodes,cpu,memory,model,name,code",
    "1566,1651,5400,barbara,1,1,8,16384,,llm-sft-ablation,0",
    "1569,2770,5400,barbara,1,1,8,16384,,llm-sft-ablation,0",
    "1571,1712,5400,barbara,1,1,8,16384,,llm-sft-ablation,0",
]


def test_more_users_do_not_change_the_first_ones() -> None:
    def templates(count: int) -> dict[str, set[str]]:
        crowd = draw_users(1, count, [1.0, 2.0, 4.0], ())
        return {user.name: {template.name for template in user.templates.things} for user in crowd.things}

    few, many = templates(5), templates(50)
    assert few == {name: many[name] for name in few}


# --- any request ---

CLUSTERS = st.builds(
    nodes_of,
    st.integers(1, 40),
    st.integers(1, 16),
    st.integers(1, 256),
    st.integers(16 * 1024, 2**20),
    st.just("H100"),
)


@settings(max_examples=examples(90))
@given(CLUSTERS, st.integers(), st.integers(1, 60), st.integers(1, 400), st.floats(0.05, 3), st.booleans())
def test_any_valid_request_is_generated(
    cluster: Cluster, seed: int, users: int, jobs: int, amount: float, by_load: bool
) -> None:
    wish = WorkloadRequest(
        cluster, seed, users, jobs, None if by_load else amount, amount if by_load else None
    )
    workload = generate(wish)
    room = capacity_of(cluster)
    assert len(workload.rows) == jobs
    assert [row.submit for row in workload.rows] == sorted(row.submit for row in workload.rows)
    for row in workload.rows:
        assert 0 <= row.submit <= workload.span_s
        assert row.duration >= 1
        assert row.estimate >= 1
        assert row.nodes <= room.nodes
        assert row.gpus / row.nodes <= room.gpus
        assert row.gpus == int(row.gpus) or row.nodes == 1
        assert 1 <= row.cpu <= room.cores
        assert 1 <= row.memory <= room.memory_mib
    if by_load:
        assert workload.load == pytest.approx(amount)


@settings(max_examples=examples(36))
@given(st.integers(1, 8), st.integers(1, 8), st.integers(), st.floats(0.05, 1.5), st.floats(0.05, 3))
def test_requested_load_is_never_exceeded(nodes: int, gpus: int, seed: int, load: float, days: float) -> None:
    workload = generate(WorkloadRequest(nodes_of(nodes, gpus, 64, 2**19, "H100"), seed, days=days, load=load))
    assert workload.load <= load * 1.000001


def test_zipf_frequencies_match_the_distribution() -> None:
    rng, odds = RandomStream("zipf"), zipf(range(1, 11))
    found = Counter(odds.draw(rng) for _ in range(50_000))
    whole = sum(1 / rank for rank in range(1, 11))
    for rank in range(1, 11):
        assert found[rank] / 50_000 == pytest.approx(1 / rank / whole, rel=0.08)


# --- as text ---


def test_csv_has_the_columns_and_every_job() -> None:
    workload = generate(WorkloadRequest(CLUSTER, jobs=300, load=0.8))
    rows = [*csv.DictReader(io.StringIO("".join(lines(workload, Format.CSV))))]
    assert ",".join(rows[0]) == GOLDEN[0]
    assert [float(row["gpus"]) for row in rows] == [row.gpus for row in workload.rows]
    assert [int(row["duration"]) for row in rows] == [row.duration for row in workload.rows]


def test_json_lines_have_the_same_jobs() -> None:
    workload = generate(WorkloadRequest(CLUSTER, jobs=300, load=0.8))
    rows = [json.loads(line) for line in lines(workload, Format.JSONL)]
    assert rows[7]["user"] == workload.rows[7].user
    assert [(row["submit"], row["gpus"], row["code"]) for row in rows] == [
        (row.submit, row.gpus, row.code) for row in workload.rows
    ]


@pytest.mark.parametrize("form", [Format.CSV, Format.JSONL])
def test_simulator_reads_every_generated_job_unchanged(form: Format, tmp_path: Path) -> None:
    workload = generate(WorkloadRequest(CLUSTER, jobs=400, load=0.8, models=("A100", "H100")))
    path = tmp_path / f"jobs.{form}"
    path.write_text("".join(lines(workload, form)))
    log = read_log(path)
    work, dropped = log.work(CLUSTER, SwfOptions())
    assert not dropped
    assert not log.unread
    for each, row in zip(work, workload.rows, strict=True):
        spec = each.spec
        assert (each.submit_s, each.runtime_s, each.user, each.code) == (
            row.submit,
            row.duration,
            row.user,
            row.code,
        )
        assert (spec.gpus, spec.nodes, spec.time_limit_s) == (row.gpus, row.nodes, row.estimate)
        assert (spec.cpu_milli, spec.memory_mib) == (row.cpu * 1_000, row.memory)
        assert (spec.name, "|".join(spec.gpu_models)) == (row.name, row.model)


def test_swf_counts_gpus_as_processors(tmp_path: Path) -> None:
    workload = generate(WorkloadRequest(CLUSTER, jobs=400, load=0.8))
    path = tmp_path / "jobs.swf"
    path.write_text("".join(lines(workload, Format.SWF)))
    log = read_log(path)
    assert log.processors == 128
    for line, row in zip(log.lines, workload.rows, strict=True):
        assert (line.submit_s, line.estimate_s) == (row.submit, row.estimate)
        assert line.run_s == min(row.duration, row.estimate)
        assert line.size == math.ceil(row.gpus)
