"""[topology] in scheduler.toml: switches by host list or by label, mistakes, and what a gang gets."""

from __future__ import annotations

from itertools import combinations
from random import Random
from statistics import mean

import pytest

from controller.config import Config, ConfigRefused, load_text
from controller.core.cluster.network_tree import NetworkTree
from controller.registry import build_pipeline, policy_warnings
from controller.registry.topology import network_of, topology_sentence
from controller.sim.cluster import nodes_of
from controller.sim.run import Policy, RunTask, run
from controller.sim.trace_job import TraceJob
from wire.job.spec import JobSpec

TREE = """
[topology.switches]
rack1 = "n[01-04]"
rack2 = { nodes = "n[05-08]" }
spine1 = { switches = "rack[1-2]" }
[queues.default]
default_time_limit_s = 60
"""
NODES = "[nodes.n01]\n[nodes.n02]\n"


def test_switches_by_host_list() -> None:
    topology = network_of(load_text(TREE, "scheduler.toml"))
    assert topology is not None
    assert topology.path({"node": "n02"}) == ("spine1", "rack1")
    assert topology.path({"node": "n08"}) == ("spine1", "rack2")
    assert topology.path({"node": "n09"}) == ()
    assert topology.weight == 100.0
    sentence = "gangs are placed near each other: 8 nodes below 3 switches on 2 levels"
    assert topology_sentence(load_text(TREE, "scheduler.toml")) == sentence


def test_switches_by_labels() -> None:
    config = load_text('[topology]\nlevels = ["spine", "rack"]\nweight = 5', "scheduler.toml")
    topology = network_of(config)
    assert topology is not None
    assert topology.path({"node": "n1", "spine": "x", "rack": "1"}) == ("x", "1")
    assert topology.path({"node": "n1", "rack": "1"}) == ()
    tree = NetworkTree(topology, [{"spine": "x", "rack": "1"}, {"spine": "y", "rack": "1"}])
    assert tree.distance(0, 1) == 2  # racks of two spines with one name are two racks
    assert "spine, rack" in topology_sentence(config)


@pytest.mark.parametrize("text", ["", "[topology]\nweight = 0\nlevels = ['rack']"])
def test_no_topology(text: str) -> None:
    config = load_text(text, "scheduler.toml")
    assert network_of(config) is None
    assert build_pipeline(config).network is None
    assert topology_sentence(config) == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("levels = ['a']\nswitches = { r = 'n1' }", "has both levels and switches"),
        ("levels = ['a', 'a']", "names a label twice"),
        ("switches = { r = 'n[1-' }", "is not a list of hosts; write gpu[01-16]"),
        ("switches = { r = ['n1'] }", 'topology.switches.r: must be one text, such as "gpu[01-16]"'),
        ("switches = { r = {} }", "needs either nodes"),
        ("switches = { r = { nodes = 'a', switches = 'b' } }", "needs either nodes"),
        ("switches = { r = 'n[1-2]', s = 'n2' }", "node 'n2' is below switch 'r' already"),
        ("switches = { rack1 = 'n1', x = { switches = 'rak1' } }", "no switch 'rak1'. Did you mean 'rack1'?"),
        (
            "switches = { r = 'n1', x = { switches = 'r' }, y = { switches = 'r' } }",
            "switch 'r' is below switch 'x' already",
        ),
        ("switches = { x = { switches = 'y' }, y = { switches = 'x' } }", "this switch is below itself"),
        ("weights = 3", "there is no such key. Did you mean 'weight'?"),
        ("weight = -1", "must be greater than or equal to 0"),
    ],
)
def test_mistakes(text: str, told: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        build_pipeline(load_text(f"[topology]\n{text}", "scheduler.toml"))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[topology]\nweight = 3", "topology.weight: has no effect, because no switches are named"),
        ("[topology]\nweight = 0\nlevels = ['rack']", "topology.weight: has no effect, because weight is 0"),
        (
            "[topology]\nlevels = ['rak']\n[nodes.n01]\nlabels = { rack = 'a' }",
            "topology.levels[0]: no node of this file has the label 'rak'. Did you mean 'rack'?",
        ),
        (TREE + NODES, "topology.switches.rack1: this file has no nodes n03, n04"),
        (TREE + NODES + "[nodes.n99]", "topology: node n99 is below no switch"),
        (
            "[topology]\nlevels = ['rack']\n[nodes.n01]\nlabels = { rack = 'a' }\n[nodes.n02]",
            "topology: node n02 is below no switch, so no gang is near it",
        ),
    ],
)
def test_dead_keys_and_names_that_match_nothing(text: str, told: str) -> None:
    config = load_text(text, "scheduler.toml")
    found = [str(each) for each in policy_warnings(config, build_pipeline(config))]
    assert any(told in each for each in found), found


def test_a_complete_topology_has_no_warning() -> None:
    nodes = "".join(f"[nodes.n0{number}]\n" for number in range(1, 9))
    config = load_text(TREE + nodes, "scheduler.toml")
    assert policy_warnings(config, build_pipeline(config)) == ()


WEEK_S = 7 * 86_400.0
CLUSTER = nodes_of(32, 8, 64, 512 * 1024, "H100")
RACKS = "\n".join(f'rack{rack} = "n[{8 * rack + 1:02}-{8 * rack + 8:02}]"' for rack in range(4))


def week(seed: int) -> list[TraceJob]:
    """A week of jobs on 1 to 6 nodes, and of jobs on parts of nodes, for 32 nodes."""
    random, jobs = Random(seed), []
    at = 0.0
    while at < WEEK_S:
        at += random.expovariate(1 / 1_000)
        nodes = random.choice([1, 1, 1, 2, 2, 3, 4, 6])
        gpus = 8 * nodes if nodes > 1 else random.choice([1, 2, 4, 8])
        run_s = random.choice([600, 3_600, 3 * 3_600, 6 * 3_600]) * random.uniform(0.5, 1.5)
        spec = JobSpec(
            command=("true",),
            gpus=gpus,
            nodes=nodes,
            cpu_milli=4_000,
            memory_mib=1_024,
            time_limit_s=2 * run_s,
            grace_s=0.0,
        )
        jobs.append(TraceJob(len(jobs) + 1, at, spec, run_s))
    return jobs


@pytest.mark.parametrize("seed", [1, 2])
def test_gangs_of_a_week_are_nearer_and_nothing_else_changes(seed: int) -> None:
    config = Config()
    near = load_text(f"[topology.switches]\n{RACKS}", "scheduler.toml")
    jobs, found = week(seed), {}
    topology = network_of(near)
    assert topology is not None
    names = sorted(CLUSTER.nodes)
    tree = NetworkTree(topology, [{"node": name} for name in names])
    for name, each in (("plain", config), ("near", near)):
        outcome = run(RunTask(Policy(name, each), CLUSTER, jobs, keep_records=True))
        gangs = [[names.index(each.node) for each in job.allocations] for job in outcome.records]
        distances = [
            mean(tree.distance(*pair) for pair in combinations(rows, 2)) for rows in gangs if len(rows) > 1
        ]
        found[name] = outcome.figures, mean(distances)
    (plain, far), (nearer, distance) = found["plain"], found["near"]
    assert plain.jobs == nearer.jobs == len(jobs)
    assert distance < 0.4 * far
    assert nearer.utilisation == pytest.approx(plain.utilisation, rel=0.01)
    assert nearer.mean_wait_s == pytest.approx(plain.mean_wait_s, rel=0.05)
    assert nearer.makespan_s == pytest.approx(plain.makespan_s, rel=0.01)
