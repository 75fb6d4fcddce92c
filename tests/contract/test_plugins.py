"""The contract of every plugin, run on all that are installed."""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.config import Source
from controller.core.cluster.dataset_reads import DatasetReads
from controller.core.cluster.gpus.gpu_requirements import GpuType
from controller.core.cluster.gpus.gpu_topology import GpuTopology
from controller.core.cluster.job_affinity import JobAffinityIndex
from controller.core.cluster.node_table import ABSENT, ALL_ROWS, NodeTable
from controller.core.framework.interfaces import Filter, Picker, Scorer, Strategy
from controller.core.model.events.queued import JobQueued
from controller.core.model.job import Job
from controller.core.model.request import PerNodeRequest, request_of
from controller.core.pipeline.hooks import MetricsSource, sample_problem
from controller.core.preemption.fairshare_reclaim import ReclaimStrategy
from controller.core.queue.order import DynamicOrder, Order
from controller.core.quota.quota_config import QuotaProvider
from controller.core.state.apply import apply
from controller.core.state.order_view import position_key
from controller.core.state.state import State
from controller.plugins.orders.fixed import FifoOrder
from controller.registry import METHODS, installed_plugins, make_plugin
from tests.examples import examples
from wire.agent.reports import GpuFacts
from wire.cluster.quota import ANY_NAME, SCOPES
from wire.cluster.quota import quota_problems as problems_of_quota
from wire.job.placement.affinity import parse_preference, parse_taint, parse_term, parse_toleration
from wire.job.placement.gpu_requirements import GpuWish
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec
from wire.names import WHOLE_GPU

TAINTS = [parse_taint(text) for text in ("gpu=big:NoSchedule", "old:PreferNoSchedule", "broken:NoExecute")]
MODELS = ["H100", "A100-SXM4-80GB", "L4"]
WISHES = [
    GpuWish(numa="require"),
    GpuWish(nvlink="prefer", numa="prefer"),
    GpuWish(nvlink="require", numa="require"),
    GpuWish(memory_mib=30_000),
    GpuWish(mig="2g.20gb"),
    GpuWish(least_mib=40_000, compute="8.5"),
]
KINDS = [GpuType("H100", 81_920, "9.0"), GpuType("A100-SXM4-80GB", 20_480, "8.0", "2g.20gb"), GpuType("L4")]
LABELS = [{"rack": "r1", "cost": "2.5", "data/mnist": ""}, {}, {"zone": "a"}, {"zone": "b", "disk": "nvme"}]
ARRAYS = [
    each.name
    for each in dataclasses.fields(NodeTable)
    if each.name
    not in (
        "dataset_reads",
        "labels",
        "models",
        "taints",
        "runtimes",
        "image_gpus",
        "gpu_value",
        "gpu_types",
        "gpu_needs_cache",
        "gpu_topology",
        "job_affinity",
        "domain_cache",
        "row_cache",
    )
]


def plugins(kind: str) -> list[Any]:
    """All installed plugins of a kind, with the options they have by default."""
    return [
        pytest.param(make_plugin(kind, name, {}, ("scheduler",), Source()), id=name)
        for name in sorted(installed_plugins(kind))
    ]


def companions() -> JobAffinityIndex:
    """A job on n0 and n1."""
    found = JobAffinityIndex()
    found.add(
        PerNodeRequest(1, 1, labels=(("app", "x"),), company=(parse_job_term("app=x on zone", None),)), "n0"
    )
    found.add(PerNodeRequest(1, 1, labels=(("app", "y"),)), "n1")
    return found


def reads() -> DatasetReads:
    """Jobs that have read data sets on n0 and n1."""
    found = DatasetReads()
    found.note(["mnist", "c4"], "n0", 100.0, 0.0)
    found.note(["mnist"], "n1", 100.0, found.policy.retention_s / 2)
    found.advance(found.policy.retention_s / 2)
    return found


def links(count: int) -> list[GpuFacts]:
    """`count` GPUs on two NUMA nodes, each linked with its neighbour."""
    return [GpuFacts(slot, str(slot), "H100", 0, numa=slot // 2, links=(slot ^ 1,)) for slot in range(count)]


@st.composite
def clusters(draw: st.DrawFn) -> NodeTable:
    """Clusters for the tests: without nodes, without GPUs, full, with faulty GPUs, with drained nodes."""
    height, width = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    counts = draw(st.lists(st.integers(0, width), min_size=height, max_size=height))
    free = np.full((height, width), ABSENT, dtype=np.int64)
    model = np.full((height, width), ABSENT, dtype=np.int64)
    for row, count in enumerate(counts):
        for slot in range(count):
            model[row, slot] = draw(st.integers(0, len(MODELS) - 1))
            free[row, slot] = draw(st.sampled_from([ABSENT, 0, 250, 500, WHOLE_GPU]))

    def amounts(most: int) -> tuple[Any, Any]:
        total = [draw(st.integers(0, most)) for _ in range(height)]
        return np.array(total, dtype=np.int64), np.array(
            [draw(st.integers(0, each)) for each in total], dtype=np.int64
        )

    cpu_total, cpu_free = amounts(256_000)
    memory_total, memory_free = amounts(2_097_152)
    return NodeTable(
        labels=[{**draw(st.sampled_from(LABELS)), "node": f"n{row}"} for row in range(height)],
        models=list(MODELS),
        gpu_types=list(KINDS),
        gpu_topology=partial(GpuTopology, [links(count) for count in counts], width),
        job_affinity=draw(st.sampled_from([None, companions])),
        dataset_reads=draw(st.sampled_from([None, reads])),
        last_placement=np.array([draw(st.integers(0, 9)) for _ in range(height)], dtype=np.int64),
        open=np.array([draw(st.booleans()) for _ in range(height)], dtype=np.bool_),
        cpu_total=cpu_total,
        cpu_free=cpu_free,
        memory_total=memory_total,
        memory_free=memory_free,
        scratch_total=cpu_total,
        scratch_free=cpu_free,
        gpu_free=free,
        gpu_model=model,
        gpu_count=np.array(counts, dtype=np.int64),
        taints=[tuple(draw(st.sets(st.sampled_from(TAINTS)))) for _ in range(height)],
        runtimes=[draw(st.sampled_from(["", "podman 4.9.3"])) for _ in range(height)],
        image_gpus=[draw(st.sampled_from(["", "no CDI entry"])) for _ in range(height)],
    )


specs = st.builds(
    JobSpec,
    command=st.just(("true",)),
    cpu_milli=st.integers(1, 256_000),
    memory_mib=st.integers(1, 2_097_152),
    gpus=st.one_of(st.integers(0, 16).map(float), st.sampled_from([0.25, 0.5])),
    gpu_models=st.sampled_from([(), ("H100",), ("A100", "L4"), ("V100",)]),
    gpu=st.sampled_from([None, *WISHES]),
    labels=st.sampled_from([{}, {"app": "x"}]),
    company=st.sampled_from(
        [(), (parse_job_term("app=x on zone", 1),), (parse_job_term("app=y on rack:prefer", None),)]
    ),
    datasets=st.sampled_from([(), ("mnist",), ("mnist:1G", "c4:3G")]),
    image=st.sampled_from(["", "python:3.12"]),
    selector=st.sampled_from([{}, {"zone": "a"}, {"node": "n1"}, {"none": "such"}]),
    affinity=st.sampled_from(
        [(), (parse_term("zone in a,c"),), (parse_term("zone exists"), parse_term("disk missing"))]
    ),
    preferences=st.sampled_from(
        [(), (parse_preference("zone in a"), parse_preference("disk exists weight 20"))]
    ),
    tolerations=st.sampled_from(
        [(), (parse_toleration("*"),), (parse_toleration("gpu=big"), parse_toleration("old"))]
    ),
    priority=st.integers(0, 100),
    time_limit_s=st.none() | st.floats(1, 1e6),
)
parts = specs.map(lambda spec: request_of(spec).part)


@st.composite
def choices(draw: st.DrawFn) -> tuple[NodeTable, Any]:
    """A cluster and some of its rows."""
    columns = draw(clusters())
    rows = draw(st.lists(st.integers(0, columns.height - 1), unique=True)) if columns.height else []
    return columns, np.array(rows, dtype=np.intp)


def read_only(columns: NodeTable) -> NodeTable:
    """Return a copy of the node table whose arrays are read-only."""
    frozen = copy.deepcopy(columns)
    for name in ARRAYS:
        getattr(frozen, name).flags.writeable = False
    return frozen


def full(columns: NodeTable) -> NodeTable:
    """The same nodes without free resources."""
    none = {name: np.minimum(getattr(columns, name), 0) for name in ("cpu_free", "memory_free", "gpu_free")}
    return dataclasses.replace(columns, open=np.zeros_like(columns.open), **none)


def same(left: NodeTable, right: NodeTable) -> bool:
    arrays = all(np.array_equal(getattr(left, name), getattr(right, name)) for name in ARRAYS)
    lists = (left.labels, left.models, left.taints) == (right.labels, right.models, right.taints)
    return arrays and lists


@pytest.mark.parametrize("plugin", plugins("filter"))
@settings(max_examples=examples(150))
@given(chosen=choices(), part=parts)
def test_filter_answer_for_all_rows_equals_single_rows(
    plugin: Filter, chosen: tuple[NodeTable, Any], part: PerNodeRequest
) -> None:
    columns, rows = chosen
    shown = read_only(columns)
    assume(plugin.concerns(part))  # a filter is asked only about jobs that it concerns
    kept = plugin.keep(part, shown, ALL_ROWS)
    assert kept.dtype == np.bool_
    assert kept.shape == (columns.height,)
    assert np.array_equal(plugin.keep(part, shown, ALL_ROWS), kept)
    assert np.array_equal(plugin.keep(part, shown, rows), kept[rows])
    if getattr(plugin, "static", False):  # then allocations make no difference
        assert np.array_equal(plugin.keep(part, full(shown), ALL_ROWS), kept)
    assert same(shown, columns)


@pytest.mark.parametrize("plugin", plugins("filter"))
@settings(max_examples=examples(150))
@given(part=parts)
def test_filter_explains_a_lost_node_in_one_line(plugin: Filter, part: PerNodeRequest) -> None:
    told = plugin.explain(part)
    assert isinstance(told, str)
    assert "\n" not in told
    assert plugin.explain(part) == told


@pytest.mark.parametrize("plugin", plugins("scorer"))
@settings(max_examples=examples(150))
@given(chosen=choices(), part=parts)
def test_scorer_returns_a_number_from_0_to_1_for_every_row(
    plugin: Scorer, chosen: tuple[NodeTable, Any], part: PerNodeRequest
) -> None:
    columns, rows = chosen
    shown = read_only(columns)
    scores = plugin.score(part, shown, ALL_ROWS)
    assert scores.dtype == np.float64
    assert scores.shape == (columns.height,)
    assert not np.isnan(scores).any()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert np.array_equal(plugin.score(part, shown, ALL_ROWS), scores)
    assert np.array_equal(plugin.score(part, shown, rows), scores[rows])
    assert same(shown, columns)


@pytest.mark.parametrize("plugin", plugins("picker"))
@settings(max_examples=examples(150))
@given(columns=clusters(), data=st.data())
def test_picker_chooses_one_of_the_offered_gpus(
    plugin: Picker, columns: NodeTable, data: st.DataObject
) -> None:
    part = PerNodeRequest(1_000, 1_024, share=250)
    having = [row for row in range(columns.height) if (columns.gpu_free[row] >= part.share).any()]
    assume(having)
    row = data.draw(st.sampled_from(having))
    slots = np.flatnonzero(columns.gpu_free[row] >= part.share).tolist()
    shown = read_only(columns)
    picked = plugin.pick(part, shown, row, slots)
    assert picked in slots
    assert plugin.pick(part, shown, row, slots) == picked
    assert same(shown, columns)


@pytest.mark.parametrize("plugin", plugins("order"))
@settings(max_examples=examples(150))
@given(first=specs, second=specs, at=st.floats(0, 1e12))
def test_order_ranks_jobs_by_stable_numbers(
    plugin: Order, first: JobSpec, second: JobSpec, at: float
) -> None:
    jobs = [
        Job(id=number, spec=spec, user="ada", ask=request_of(spec), submitted_at=at + number)
        for number, spec in enumerate((first, second), 1)
    ]
    before = copy.deepcopy(jobs)
    ranks = [plugin.rank(job) for job in jobs]
    assert all(isinstance(part, int | float) and not math.isnan(part) for rank in ranks for part in rank)
    assert len(ranks[0]) == len(ranks[1])
    assert [plugin.rank(job) for job in jobs] == ranks
    assert jobs == before


@pytest.mark.parametrize(
    "plugin", [each for each in plugins("order") if isinstance(each.values[0], DynamicOrder)]
)
@settings(max_examples=examples(150))
@given(
    asked=st.lists(st.tuples(specs, st.sampled_from("ab"), st.floats(0, 1e6)), min_size=2, max_size=6),
    later=st.floats(0, 1e7),
)
def test_changing_order_keeps_the_order_within_a_group(
    plugin: DynamicOrder, asked: list[tuple[JobSpec, str, float]], later: float
) -> None:
    state, at = State(cast(Order, plugin)), 1e9
    for number, (spec, user, wait) in enumerate(asked, 1):
        at += wait
        apply(state, JobQueued(number, at, replace(spec, hold=False), user))
    moment = position_key(state, state.queues[""], at + later)
    assert moment is not None
    for lane in state.queue:
        places = [moment(entry) for entry in lane]
        assert places == sorted(places)
        numbers = [part for rank, _ in places for part in rank]
        assert all(isinstance(part, int | float) and not math.isnan(part) for part in numbers)
        assert places == [moment(entry) for entry in lane]


@pytest.mark.parametrize(
    "plugin", [each for each in plugins("preemption") if not isinstance(each.values[0], ReclaimStrategy)]
)
@settings(max_examples=examples(150))
@given(running=specs, waiting=specs)
def test_preemption_strategy_lets_no_two_jobs_preempt_each_other(
    plugin: Strategy, running: JobSpec, waiting: JobSpec
) -> None:
    """Otherwise two jobs would preempt each other in turn. For strategies that compare tenants see
    test_fairshare_reclaim.py.
    """
    one, other = (
        Job(id=number, spec=spec, user="ada", ask=request_of(spec), submitted_at=0.0)
        for number, spec in enumerate((running, waiting), 1)
    )
    before = copy.deepcopy([one, other])
    reaches, back = plugin.reach(other), plugin.reach(one)
    if reaches is not None and plugin.standing(one) <= reaches:
        assert back is None or plugin.standing(other) > back
    own = plugin.reach(one)
    assert own is None or plugin.standing(one) > own
    assert [plugin.reach(other), plugin.reach(one)] == [reaches, back]
    assert [one, other] == before


@pytest.mark.parametrize("plugin", plugins("quota"))
@settings(max_examples=examples(150))
@given(scope=st.sampled_from(SCOPES), name=st.sampled_from(["ada", "vision", ANY_NAME]))
def test_quota_provider_is_deterministic_and_valid(plugin: QuotaProvider, scope: str, name: str) -> None:
    for each in (name, *plugin.names(scope)):
        stated = plugin.quota(scope, each)
        assert stated is None or problems_of_quota(scope, stated) == []
        assert plugin.quota(scope, each) == stated
    assert list(plugin.names(scope)) == list(plugin.names(scope))
    assert ANY_NAME not in plugin.names(scope)


@pytest.mark.parametrize("plugin", plugins("metrics"))
@settings(max_examples=examples(150))
@given(asked=st.lists(st.tuples(specs, st.sampled_from(["ada", 'b"o'])), max_size=5))
def test_metrics_source_returns_numbers_and_changes_nothing(
    plugin: MetricsSource, asked: list[tuple[JobSpec, str]]
) -> None:
    state = State(cast(Order, FifoOrder()))
    for number, (spec, user) in enumerate(asked, 1):
        apply(state, JobQueued(number, 1e9, replace(spec, hold=False), user))
    before = copy.deepcopy(state.jobs)
    samples = list(plugin.collect(state, 1e9))
    assert [sample_problem(each) for each in samples] == [""] * len(samples)
    told = [(each.name, tuple(sorted(each.labels.items()))) for each in samples]
    assert len(set(told)) == len(told)
    assert list(plugin.collect(state, 1e9)) == samples
    assert state.jobs == before


@pytest.mark.parametrize("kind", METHODS)
def test_plugin_name_equals_its_installed_name(kind: str) -> None:
    """The class has the name, because some plugins, such as engines, cannot be made without options."""
    installed = installed_plugins(kind)
    assert {name: [point.load().name for point in points] for name, points in installed.items()} == {
        name: [name] for name in installed
    }
