"""The placement benchmark: arrivals, measured figures, and each strategy on known cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.placement.allocation import (
    PlacementRun,
    allocated_at,
    draw_arrivals,
    engine_of,
    place_pod,
    run,
    summaries,
    tasks_of,
)
from benchmarks.placement.openb_traces import Pod, read_nodes, read_pods
from benchmarks.placement.strategies import PlacementStrategy, strategy_of
from controller.config import Config
from controller.core.invariants import find_violations
from controller.plugins.backfill.kinds import NoBackfill
from controller.registry import build_pipeline, installed_plugins
from controller.sim.cluster import Cluster
from controller.sim.errors import SimulationRefused
from tests.examples import examples
from wire.job.spec import JobSpec

OPENB = Path(__file__).parents[3] / "shared" / "data" / "openb"
NODES = "sn,cpu_milli,memory_mib,gpu,model"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"
STRATEGIES = sorted({"default", "best-fit", "random", "least-loaded", *installed_plugins("scorer")})
Placed = tuple[str, list[int]] | None
"""Node and GPUs of a pod."""


class Trace:
    """Writes lists line by line and reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def nodes(self, *lines: str) -> Cluster:
        return read_nodes(self._write("nodes.csv", NODES, *lines))

    def pods(self, *lines: str) -> list[Pod]:
        return read_pods(self._write("pods.csv", PODS, *lines))

    def _write(self, name: str, *lines: str) -> Path:
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        return path


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(tmp_path)


def trial(strategy: str, cluster: Cluster, pods: list[Pod], seed: int = 42) -> PlacementRun:
    (task,) = tasks_of([strategy_of(strategy)], [seed], cluster, pods)
    return run(task)


def places(strategy: PlacementStrategy, cluster: Cluster, pods: list[Pod]) -> list[Placed]:
    """The node and GPUs of every pod, in this order."""
    engine = engine_of(cluster, strategy.make(Random(0)))
    found: list[Placed] = []
    for pod in pods:
        if not strategy.steady:
            engine.placer.clear_rankings()
        placed = place_pod(engine, pod.spec)
        if placed is None:
            found.append(None)
            continue
        (allocation,) = placed.allocations
        found.append((allocation.node, [int(gpu.uuid.rpartition("-")[2]) for gpu in allocation.gpus]))
    assert not find_violations(engine.state)
    assert not len(engine.state.queue)
    return found


# --- arrivals ---


def crowd(count: int, milli: int = 1000) -> list[Pod]:
    return [Pod(f"p{number:03}", JobSpec(("true",)), milli) for number in range(count)]


def names(pods: Iterable[Pod]) -> Counter[str]:
    return Counter(pod.name for pod in pods)


def test_every_pod_arrives_once_in_random_order_before_any_is_repeated() -> None:
    pods = crowd(100)
    coming = draw_arrivals(pods, capacity=100_000, seed=42)
    dice = Random(42)
    shuffled = list(pods)
    dice.shuffle(shuffled)
    assert coming[:100] == shuffled
    assert coming[100:] == [pods[dice.randrange(100)] for _ in range(30)]
    assert max(names(coming[100:]).values()) > 1  # drawn with replacement


def test_order_of_the_pod_list_does_not_matter() -> None:
    pods = crowd(50)
    assert draw_arrivals(pods[::-1], 50_000, 7) == draw_arrivals(pods, 50_000, 7)
    assert draw_arrivals(pods, 50_000, 8) != draw_arrivals(pods, 50_000, 7)


@given(st.lists(st.sampled_from([0, 50, 460, 1000, 8000]), min_size=1).filter(any), st.integers(1, 20))
def test_arrivals_stop_before_130_percent_of_capacity(amounts: list[int], gpus: int) -> None:
    pods = [Pod(f"p{number}", JobSpec(("true",)), milli) for number, milli in enumerate(amounts)]
    capacity = gpus * 1000
    coming = draw_arrivals(pods, capacity, 1)
    asked = sum(pod.milli for pod in coming)
    assert 10 * asked <= 13 * capacity
    if 10 * sum(amounts) <= 13 * capacity:
        assert names(coming[: len(pods)]) == names(pods)
        assert 10 * (asked + max(amounts)) > 13 * capacity  # the next might be too much
    else:
        assert not names(coming) - names(pods)  # some are left out, and none arrives twice


def test_pods_beyond_capacity_are_left_out_one_by_one() -> None:
    pods = crowd(10)
    coming = draw_arrivals(pods, capacity=5_000, seed=3)
    assert len(coming) == 6
    assert set(names(coming).values()) == {1}


# --- measured figures ---


def test_allocation_is_the_mean_over_the_pods_that_arrive_just_then() -> None:
    curve = [(994, 900), (995, 910), (1000, 950), (1004, 960), (1006, 990), (1300, 995)]
    assert allocated_at(100, curve, 1000) == pytest.approx((91 + 95 + 96) / 3)
    assert allocated_at(130, curve, 1000) == 99.5
    # No pod arrives at 120 %: the figure is that after the last pod before.
    assert allocated_at(120, curve, 1000) == 99.0
    assert allocated_at(99, curve[1:], 1000) == 0.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trace_worked_out_by_hand(trace: Trace, strategy: str) -> None:
    """Two of four pods fit under any strategy: the second node has GPUs, but no CPUs for them."""
    cluster = trace.nodes("n1,8000,65536,2,T4", "n2,2000,65536,2,T4")
    pods = trace.pods(*(f"p{number},4000,1024,1,1000," for number in range(4)))
    found = trial(strategy, cluster, pods)
    # 25, 50, 75, 100, 125 % requested; a sixth pod would make 150 %.
    assert (found.pods, found.accepted, found.failed) == (5, 2, 3)
    assert (found.allocated_at_100, found.allocated_at_130) == (50.0, 50.0)


def test_shares_worked_out_by_hand(trace: Trace) -> None:
    """Pods of four thousandths: 249, 250 and 251 of them are 100 %, the last of which finds nothing."""
    cluster = trace.nodes("n1,64000,65536,1,T4")
    pods = trace.pods(*(f"p{number:03},10,10,1,4," for number in range(250)))
    found = trial("default", cluster, pods)
    assert (found.pods, found.accepted) == (325, 250)
    assert found.allocated_at_100 == pytest.approx((99.6 + 100 + 100) / 3)
    assert found.allocated_at_130 == 100.0


def test_pods_without_gpus_use_cpus_and_count_nothing(trace: Trace) -> None:
    cluster = trace.nodes("n1,4000,65536,1,T4")
    pods = trace.pods("a,4000,1024,0,1000,", "b,1000,1024,1,500,", "c,1000,1024,1,500,")
    comes_first = {seed: draw_arrivals(pods, 1000, seed)[0].name for seed in range(20)}
    for seed, first in comes_first.items():
        found = trial("best-fit", cluster, pods, seed)
        assert found.allocated_at_100 == (0.0 if first == "a" else 100.0)
    assert "a" in comes_first.values()
    assert set(comes_first.values()) != {"a"}


def test_summaries_are_means_over_seeds() -> None:
    runs = [
        PlacementRun("a", 1, 10, 8, 2, 90.0, 95.0, 1.0, 8.0),
        PlacementRun("a", 2, 20, 10, 10, 92.0, 97.0, 2.0, 5.0),
        PlacementRun("b", 1, 10, 1, 9, 10.0, 11.0, 0.5, 2.0),
    ]
    first, second = summaries(runs)
    assert (first.strategy, first.allocated_at_100, first.allocated_at_130) == ("a", 91.0, 96.0)
    assert (first.pods, first.accepted, first.failed, first.cpu_s) == (15, 9, 6, 1.5)
    assert first.placements_per_s == 6.0
    assert first.deviation_at_130 == pytest.approx(2**0.5)
    assert (second.strategy, second.deviation_at_130, second.runs) == ("b", 0.0, runs[2:])


# --- placement ---


def test_gpu_model_matches_by_exact_name(trace: Trace) -> None:
    cluster = trace.nodes(
        "n1,64000,65536,1,A100",
        "n2,64000,65536,1,A10",
        "n3,64000,65536,1,A10-24G",
        "n4,64000,65536,1,V100M32",
    )
    pods = trace.pods(
        "a,1000,1024,1,1000,A10",
        "b,1000,1024,1,1000,A10",
        "c,1000,1024,1,1000,V100M16",
        "d,1000,1024,1,1000,V100",
        "e,1000,1024,1,1000,V100M16|V100M32",
        "f,1000,1024,1,100,A100 | A10-24G",
        "g,1000,1024,1,950,A100|A10-24G",
        "h,1000,1024,1,950,A100|A10-24G",
        "i,1000,1024,0,0,H100",
    )
    found = places(strategy_of("best-fit"), cluster, pods)
    nodes = [place and place[0] for place in found]
    assert nodes[:5] == ["n2", None, None, None, "n4"]
    assert nodes[5:8] == ["n1", "n3", None]
    assert found[8] is not None  # without a GPU the model does not matter


def test_several_gpus_are_whole_gpus_of_one_node(trace: Trace) -> None:
    cluster = trace.nodes("n1,64000,65536,4,T4", "n2,64000,65536,3,T4")
    pods = trace.pods(
        "a,1000,1024,1,100,",
        "b,1000,1024,3,1000,",
        "c,1000,1024,4,1000,",
        "d,1000,1024,2,500,",
        "e,1,1,1,500,",
    )
    # Best fit: the share goes to the smaller node, so that the other node keeps three whole GPUs.
    assert places(strategy_of("best-fit"), cluster, pods) == [
        ("n2", [0]),
        ("n1", [0, 1, 2]),
        None,
        ("n2", [1, 2]),
        ("n2", [0]),
    ]


# --- best fit against the formula ---


def by_formula(nodes: list[tuple[str, int, int, int, str]], pods: list[Pod]) -> list[Placed]:
    """Best fit by the rule of the paper, in the simplest form."""
    free = {name: [cpu, memory, [1000] * gpus, model] for name, cpu, memory, gpus, model in nodes}
    found: list[Placed] = []
    for pod in pods:
        spec = pod.spec
        count, milli = (1, round(spec.gpus * 1000)) if 0 < spec.gpus < 1 else (int(spec.gpus), 1000)
        best: tuple[int, str] | None = None
        for name in sorted(free):
            cpu, memory, gpus, model = free[name]
            if cpu < spec.cpu_milli or memory < spec.memory_mib:
                continue
            if sum(gpu >= milli for gpu in gpus) < count or (
                count and spec.gpu_models and model not in spec.gpu_models
            ):
                continue
            left = 0.5 * (cpu - spec.cpu_milli) / 128_000 + 0.5 * (sum(gpus) - count * milli) / 8_000
            score = int(100 * (1 - left))
            if best is None or score > best[0]:
                best = score, name
        if best is None:
            found.append(None)
            continue
        node = free[best[1]]
        fitting = [slot for slot, gpu in enumerate(node[2]) if gpu >= milli] if count else []
        chosen = sorted(fitting, key=lambda slot: (node[2][slot], slot))[:count]
        node[0] -= spec.cpu_milli
        node[1] -= spec.memory_mib
        for slot in chosen:
            node[2][slot] -= milli
        found.append((best[1], sorted(chosen)))
    return found


a_node = st.tuples(
    st.sampled_from([4_000, 32_000, 64_000, 96_000, 128_000, 300_000]),
    st.sampled_from([16_384, 262_144]),
    st.sampled_from([0, 1, 2, 4, 8]),
    st.sampled_from(["T4", "G2", "V100M16"]),
)
a_pod = st.tuples(
    st.sampled_from([0, 1_000, 3_152, 8_000, 12_000, 88_000]),
    st.sampled_from([0, 1_024, 15_258, 65_536]),
    st.sampled_from([0, 1, 1, 1, 2, 4, 8]),
    st.sampled_from([50, 320, 460, 810, 1000]),
    st.sampled_from(["", "", "T4", "G2|V100M16", "V100M32"]),
)


@settings(max_examples=examples(90), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(a_node, min_size=1, max_size=12), st.lists(a_pod, min_size=1, max_size=40))
def test_best_fit_chooses_the_node_of_its_formula(
    trace: Trace, kinds: list[tuple[int, int, int, str]], asked: list[tuple[int, int, int, int, str]]
) -> None:
    nodes = [(f"n{number}", *kind) for number, kind in enumerate(kinds)] + [("m", 8_000, 8_192, 1, "T4")]
    cluster = trace.nodes(*(",".join(map(str, node)) for node in nodes))
    lines = [
        f"p{number},{cpu},{memory},{count},{1000 if count > 1 else milli},{models}"
        for number, (cpu, memory, count, milli, models) in enumerate([*asked, (1, 1, 1, 500, "")])
    ]
    pods = trace.pods(*lines)
    assert places(strategy_of("best-fit"), cluster, pods) == by_formula(nodes, pods)


# --- strategies ---


def test_default_strategy_is_the_default_configuration() -> None:
    product = build_pipeline(Config())
    assert strategy_of("default").make(Random(0)) == replace(product, backfill=NoBackfill())


def test_a_strategy_may_be_a_configuration(tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('[scheduler]\npicker = "tightest"\nscorers = { fit = { weight = 3, gpu = 0.5 } }\n')
    pipeline = strategy_of(str(config)).make(Random(0))
    assert pipeline.picker.name == "tightest"
    assert [(each.scorer.name, each.weight) for each in pipeline.scorers] == [("fit", 3.0)]


def test_an_unknown_strategy_is_refused_with_the_nearest() -> None:
    with pytest.raises(SimulationRefused, match="there is no strategy 'bestfit'") as refused:
        strategy_of("bestfit")
    assert refused.value.hint.startswith("Did you mean 'best-fit'? Name one of default, best-fit, random,")


def test_each_seed_is_an_independent_repeatable_run(trace: Trace) -> None:
    cluster = trace.nodes(*(f"n{number},16000,65536,{number},T4" for number in range(1, 5)))
    pods = trace.pods(*(f"p{number},{number * 300},1024,1,{number * 37 % 1000}," for number in range(1, 30)))
    for name in STRATEGIES:
        first, again, other = (
            replace(trial(name, cluster, pods, seed), cpu_s=0, placements_per_s=0) for seed in (1, 1, 2)
        )
        assert first == again
        assert replace(first, seed=2) != other


def test_random_strategy_is_fair_to_nodes_and_gpus(trace: Trace) -> None:
    cluster = trace.nodes(*(f"n{number},9000000,9000000,4,T4" for number in range(4)))
    pods = trace.pods(*(f"p{number:04},1,1,1,1," for number in range(4_000)))
    found = [place for place in places(strategy_of("random"), cluster, pods) if place]
    assert len(found) == 4_000
    spots = Counter((node, gpu) for node, (gpu,) in found)
    assert len(spots) == 16
    assert all(200 < count < 300 for count in spots.values())
    # The probability of a node does not depend on the node chosen before.
    again = sum(here[0] == there[0] for here, there in pairwise(found))
    assert 900 < again < 1_100


def test_spread_chooses_the_emptiest_and_fit_the_fullest_node(trace: Trace) -> None:
    cluster = trace.nodes("n1,64000,65536,2,T4", "n2,64000,65536,2,T4")
    pods = trace.pods(*(f"p{number},1000,1024,1,300," for number in range(4)))
    apart = places(strategy_of("spread"), cluster, pods)
    assert apart == [("n1", [0]), ("n2", [0]), ("n1", [1]), ("n2", [1])]
    together = places(strategy_of("fit"), cluster, pods)
    assert together == [("n1", [0]), ("n1", [0]), ("n1", [0]), ("n1", [1])]


def test_balanced_places_cpu_jobs_beside_gpu_jobs(trace: Trace) -> None:
    cluster = trace.nodes("n1,64000,65536,4,T4", "n2,64000,65536,4,T4")
    pods = trace.pods("a,1,1,4,1000,", "b,48000,49152,0,0,", "c,1,1,3,1000,")
    assert [place and place[0] for place in places(strategy_of("balanced"), cluster, pods)] == [
        "n1",
        "n1",
        "n2",
    ]


# --- the published figures ---


@pytest.fixture(scope="module")
def openb() -> Cluster:
    if not OPENB.is_dir():
        pytest.skip(f"the openb traces are not at {OPENB}")
    return read_nodes(OPENB / "openb_node_list_gpu_node.csv")


@pytest.mark.parametrize(
    ("name", "strategy", "least", "most"),
    [
        # FGD's published means, which the default has to reach without knowing the trace beforehand.
        ("default", "default", 95.39, 100.0),
        ("cpu050", "default", 95.21, 100.0),
        ("cpu200", "default", 95.05, 100.0),
        # The mean of ten seeds is within 0.4 of the published one; one seed is within three deviations.
        ("default", "best-fit", 93.08 - 0.8, 93.08 + 0.8),
        ("cpu200", "random", 83.77 - 1.2, 83.77 + 1.2),
    ],
)
def test_a_seed_of_the_published_traces(
    openb: Cluster, name: str, strategy: str, least: float, most: float
) -> None:
    found = trial(strategy, openb, read_pods(OPENB / f"openb_pod_list_{name}.csv"))
    assert least <= found.allocated_at_130 <= most
