"""Gangs without --topology get nodes that are near each other in the network of the site ([topology])."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.cluster.network_tree import NetworkTopology, NetworkTree
from controller.core.framework.interfaces import Backfill
from controller.plugins.backfill.kinds import Conservative, Easy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.gangs import Gang
from wire.job.placement.gpu_requirements import Topology
from wire.job.placement.job_affinity import JobTerm
from wire.job.spec import JobSpec

RACKS = {
    **dict.fromkeys("abcde", ("x", "r1")),
    **dict.fromkeys("fghi", ("x", "r2")),
    **dict.fromkeys("jklm", ("y", "r3")),
    **dict.fromkeys("no", ("y", "r4")),
}
"""Spine x has the racks r1 (5 nodes) and r2 (4), spine y the racks r3 (4) and r4 (2)."""
TOPOLOGY = NetworkTopology(paths=RACKS)
MODES = [Easy(), Conservative()]


def tree_of(paths: Mapping[str, tuple[str, ...]] = RACKS, weight: float = 100.0) -> NetworkTree:
    return NetworkTree(NetworkTopology(paths=paths, weight=weight), [{"node": name} for name in paths])


def chosen(free: str, nodes: int, scores: Mapping[str, float] | None = None, weight: float = 100.0) -> str:
    """The nodes that a gang gets of these free nodes."""
    names = list(RACKS)
    rows = np.array([names.index(name) for name in free], dtype=np.intp)
    points = None
    if scores is not None:
        points = np.array([scores.get(name, 0.0) for name in names])
    return "".join(names[row] for row in tree_of(weight=weight).choose(rows, points, nodes))


ALL = "".join(RACKS)


@pytest.mark.parametrize(
    ("free", "nodes", "expected"),
    [
        pytest.param(ALL, 5, "abcde", id="the only rack that is large enough"),
        pytest.param(ALL, 2, "no", id="the smallest rack, so that large ones stay whole"),
        pytest.param(ALL, 4, "jklm", id="of equal racks the one on the spine with the fewest free nodes"),
        pytest.param("abcjklm", 3, "abc", id="the rack with the fewest free nodes, not the smallest rack"),
        pytest.param("abfgjn", 4, "abfg", id="a spine, if no rack is large enough"),
        pytest.param(ALL, 6, "jklmno", id="the spine that is filled exactly"),
        pytest.param("abcdefghjk", 6, "abcdef", id="a whole rack first, then the rest"),
        pytest.param("abcdfghn", 7, "abcdfgh", id="below one spine"),
        pytest.param("afjn", 4, "afjn", id="no common switch is no reason to wait"),
        pytest.param("afj", 4, "", id="too few nodes"),
    ],
)
def test_the_smallest_subtree_is_chosen(free: str, nodes: int, expected: str) -> None:
    assert chosen(free, nodes) == expected
    assert chosen(free, nodes, {}) == expected


def test_scores_and_nearness_are_weighed() -> None:
    liked = {"b": 30.0, "k": 30.0}
    assert chosen("abcjkl", 2, liked, weight=10.0) == "bk"
    assert chosen("abcjkl", 2, liked, weight=100.0) == "ab"
    assert chosen("abcjkl", 2, {"c": 1.0}) == "ac"  # within the rack by score


def test_distance_counts_levels() -> None:
    tree, names = tree_of(), list(RACKS)
    pairs = {"aa": 0, "ab": 0, "af": 1, "aj": 2, "jn": 1}
    assert {pair: tree.distance(names.index(pair[0]), names.index(pair[1])) for pair in pairs} == pairs
    assert tree.depth == 2


@given(st.randoms(use_true_random=False), st.integers(1, 15))
def test_a_gang_fits_exactly_if_enough_nodes_are_free(random: Random, nodes: int) -> None:
    """And no other rack could hold the whole gang if it is spread over several."""
    free = "".join(sorted(random.sample(ALL, random.randint(0, len(ALL)))))
    found = chosen(free, nodes, {name: random.random() / 1_000 for name in ALL})
    assert len(found) == (nodes if nodes <= len(free) else 0)
    assert set(found) <= set(free)
    racks = [sum(RACKS[name] == rack for name in free) for rack in set(RACKS.values())]
    if found and max(racks, default=0) >= nodes:
        assert len({RACKS[name] for name in found}) == 1


def harness_of(names: str, topology: NetworkTopology | None, mode: Backfill = Easy()) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, network=topology, backfill=mode))
    for name in names:
        labels = dict(zip(("spine", "rack"), RACKS[name], strict=True))
        harness.join(name, labels=labels)
    return harness


def place(harness: EngineHarness, asked: JobSpec) -> str:
    job = harness.submit(asked)
    harness.tick()
    return "".join(harness.nodes_of(job))


@pytest.mark.parametrize("mode", MODES)
def test_only_the_topology_changes_where_a_gang_runs(mode: Backfill) -> None:
    """The same cluster and queue: without [topology] the first nodes by name, with it one rack."""
    asked = spec(16, nodes=2, time_limit_s=60)
    plain, near = (harness_of("aefno", topology, mode) for topology in (None, TOPOLOGY))
    assert place(plain, asked) == "ae"
    assert place(near, spec(24, nodes=3, time_limit_s=60)) == "aef"  # below one spine
    assert place(near, asked) == "no"
    by_label = harness_of("aefno", NetworkTopology(("spine", "rack")), mode)
    assert place(by_label, asked) == "no"
    assert place(by_label, asked) == "ae"


def test_a_topology_that_the_job_requires_comes_first() -> None:
    harness = harness_of("aefno", TOPOLOGY)
    assert place(harness, spec(16, nodes=2, topology=Topology("spine", domains=None))) == "an"


def test_a_backfilled_gang_is_near_too() -> None:
    """It runs beside the reservation of the first job, on nodes that this job does not need."""
    harness = harness_of("abfgno", TOPOLOGY)
    for name in "af":
        harness.submit(spec(8, selector={"node": name}, time_limit_s=1_000))
    harness.tick()
    first = harness.submit(spec(8 * 6, nodes=6, time_limit_s=100))
    gang = harness.submit(spec(16, nodes=2, time_limit_s=500))
    harness.tick()
    assert harness.nodes_of(first) == []
    assert harness.nodes_of(gang) == ["n", "o"]


def test_a_gang_takes_spare_nodes_near_each_other_beside_a_reservation() -> None:
    """A job that outlasts the reservation may use as many of its nodes as it has to spare. Nearness is
    considered among the others only.
    """
    harness = harness_of("abfgno", TOPOLOGY)
    harness.submit(spec(8, selector={"node": "a"}, time_limit_s=1_000))
    harness.tick()
    term = {"rack": "r1"}
    first = harness.submit(spec(16, nodes=2, selector=term, time_limit_s=100))
    gang = harness.submit(spec(16, nodes=2, time_limit_s=5_000))
    harness.tick()
    assert harness.nodes_of(first) == []
    assert harness.nodes_of(gang) in (["f", "g"], ["n", "o"])
    last = harness.submit(spec(16, nodes=2, time_limit_s=5_000))
    harness.tick()
    assert set(harness.nodes_of(gang) + harness.nodes_of(last)) == {*"fgno"}


def test_an_elastic_job_grows_near_its_nodes() -> None:
    harness = harness_of("bjk", TOPOLOGY)
    for name in "k":
        busy = harness.submit(spec(8, selector={"node": name}))
    harness.tick()
    elsewhere = harness.submit(spec(8, selector={"node": "b"}))
    harness.tick()
    job = harness.submit(spec(16, nodes=2, gang=Gang(1, elastic=True)))
    harness.tick()
    assert harness.nodes_of(job) == ["j"]
    harness.start(job)
    harness.exit(elsewhere)
    harness.exit(busy)
    harness.tick()
    assert harness.nodes_of(job) == ["j", "k"]


def test_a_gang_of_one_gpu_model_is_near_too() -> None:
    harness = EngineHarness(replace(PIPELINE, network=TOPOLOGY))
    for name, model in zip("abfgno", ("A100", "H100", "A100", "H100", "H100", "H100"), strict=True):
        harness.join(name, model=model)
    assert place(harness, spec(16, nodes=2, gpu_models=("A100", "H100"))) == "no"


def test_explain_names_nodes_scores_and_the_switch() -> None:
    harness = harness_of("aefno", TOPOLOGY)
    job = harness.submit(spec(16, nodes=2))
    why = harness.why(job)
    assert any(
        "n, o, all below switch r4: 100.0 = 1.00 × 100 points (topology)" in note for note in why.notes
    )
    assert [each.node for each in why.nodes] == ["a", "e", "f", "n", "o"]
    assert [part.name for part in why.nodes[0].parts] == ["fit", "load"]
    assert why.nodes[0].points == pytest.approx(sum(part.points for part in why.nodes[0].parts))
    harness.tick()
    harness.start(job)
    assert harness.why(job).sentence == "running on n, o, all below switch r4"


def test_without_a_topology_no_tree_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placement costs nothing more on clusters without [topology]."""

    def fail(*_: object) -> None:
        raise AssertionError("the network tree was used")

    monkeypatch.setattr(NetworkTree, "__init__", fail)
    monkeypatch.setattr(NetworkTopology, "path", fail)
    harness = harness_of("aefno", None)
    assert place(harness, spec(16, nodes=2)) == "ae"
    assert harness.why(harness.submit(spec(16, nodes=2))).nodes


def test_nodes_without_a_switch_are_far_from_all_others() -> None:
    tree = tree_of({"a": ("r1",), "b": ("r1",), "c": (), "d": ()})
    assert tree.choose(np.array([0, 1, 2, 3]), np.array([0.0, 0.0, 9.0, 9.0]), 2) == [0, 1]
    assert tree.choose(np.array([0, 2, 3]), None, 3) == [0, 2, 3]
    assert tree.distance(2, 3) == tree.depth == 1


def test_near_is_stronger_than_the_network() -> None:
    """A required affinity to other jobs is a filter, and stays one."""
    harness = harness_of("abno", TOPOLOGY)
    harness.submit(spec(0, labels={"app": "db"}, selector={"node": "a"}))
    harness.tick()
    near = (JobTerm("app", "db", "rack"),)
    assert place(harness, spec(16, nodes=2, company=near)) == "ab"
