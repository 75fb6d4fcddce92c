"""Jobs that read a data set (--data) prefer nodes on which jobs have read it lately ([datasets])."""

from __future__ import annotations

from dataclasses import replace
from itertools import starmap

import pytest

from controller.config import Config, load_text
from controller.core.cluster.dataset_reads import MOST_DATASETS, DatasetPolicy, DatasetReads
from controller.core.engine import Engine
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.event import Event
from controller.core.model.inputs import controller_inputs, node_inputs
from controller.core.state.state import State
from controller.registry import build_pipeline
from controller.sim.cluster import nodes_of
from controller.sim.replay.history import history_of
from controller.sim.replay.replayer import Replay
from controller.sim.simulation import Simulation
from controller.sim.trace_job import TraceJob
from tests.engine_harness import EngineHarness, spec
from wire.job.datasets import MOST, dataset_problems, parse_dataset
from wire.job.placement.affinity import parse_preference

HOUR = 3_600.0
DAY = 24 * HOUR


def harness_of(text: str = "") -> EngineHarness:
    """Nodes a to d with eight GPUs each, under the default scorers."""
    harness = EngineHarness(build_pipeline(load_text(text, "scheduler.toml")))
    for name in "abcd":
        harness.join(name)
    return harness


def place(harness: EngineHarness, gpus: int = 1, **more: object) -> str:
    """The nodes of a job after a pass."""
    job = harness.submit(spec(gpus, cpu_milli=1_000, memory_mib=1_024, time_limit_s=DAY, **more))
    harness.tick()
    return "".join(harness.nodes_of(job))


def read(harness: EngineHarness, node: str, *datasets: str, ran_s: float = HOUR) -> None:
    """A job reads the data sets on a node and ends."""
    asked = spec(0, cpu_milli=1_000, memory_mib=1_024, datasets=datasets, selector={"node": node})
    job = harness.submit(asked)
    harness.tick()
    harness.start(job)
    harness.now += ran_s
    harness.exit(job)


def test_a_job_goes_where_its_data_was_read() -> None:
    harness = harness_of()
    read(harness, "c", "imagenet:150G")
    assert place(harness) == "a"
    assert place(harness, datasets=("imagenet",)) == "c"
    assert place(harness, datasets=("mnist",)) == "a"


def test_a_full_node_is_no_reason_to_wait() -> None:
    harness = harness_of()
    read(harness, "c", "imagenet")
    assert place(harness, 8, selector={"node": "c"}) == "c"
    assert place(harness, datasets=("imagenet",)) == "a"


def test_other_scores_may_weigh_more() -> None:
    harness = harness_of()
    harness.tell(node_inputs.MarkNode("b", "root", labels={"disk": "nvme"}))
    read(harness, "c", "imagenet")
    wish = (parse_preference("disk exists"),)
    assert place(harness, datasets=("imagenet",), preferences=wish) == "b"
    heavier = harness_of("[scheduler.scorers]\nthrift = 100\naffinity = 100\ndata = 500")
    heavier.tell(node_inputs.MarkNode("b", "root", labels={"disk": "nvme"}))
    read(heavier, "c", "imagenet")
    assert place(heavier, datasets=("imagenet",), preferences=wish) == "c"


def test_the_larger_part_of_the_data_wins() -> None:
    harness = harness_of()
    read(harness, "c", "small:1G")
    read(harness, "d", "large:100G")
    assert place(harness, datasets=("small:1G", "large:100G")) == "d"
    assert place(harness, datasets=("small:100G", "large:1G")) == "c"
    read(harness, "b", "small", "large")
    assert place(harness, datasets=("small", "large")) == "b"


def test_the_later_read_wins_until_the_retention_is_over() -> None:
    harness = harness_of("[datasets]\nretention_s = 86400")
    read(harness, "d", "imagenet")
    harness.now += 6 * HOUR
    read(harness, "c", "imagenet")
    assert place(harness, datasets=("imagenet",)) == "c"
    levels = harness.state.nodes.datasets.levels("imagenet")
    assert levels["d"] == pytest.approx(1 - 7 / 24, abs=1 / 64)
    harness.now += 19 * HOUR
    assert place(harness, datasets=("imagenet",)) == "c"
    assert "d" not in harness.state.nodes.datasets.levels("imagenet")
    harness.now += 6 * HOUR
    assert place(harness, datasets=("imagenet",)) == "a"


@pytest.mark.parametrize(
    ("table", "ran_s"),
    [("", 59.0), ("least_run_s = 7200", HOUR), ("retention_s = 0", HOUR)],
    ids=["a short run", "a short run by the configuration", "switched off"],
)
def test_what_is_not_remembered(table: str, ran_s: float) -> None:
    harness = harness_of(f"[datasets]\n{table}")
    read(harness, "c", "imagenet", ran_s=ran_s)
    assert harness.state.nodes.datasets.by_dataset == {}
    assert place(harness, datasets=("imagenet",)) == "a"


def test_a_gang_has_read_its_data_on_all_its_nodes() -> None:
    harness = harness_of()
    gang = harness.submit(spec(16, nodes=2, datasets=("c4",), affinity=()))
    harness.tick()
    harness.start(gang)
    harness.now += HOUR
    nodes = harness.nodes_of(gang)
    harness.exit(gang)
    assert sorted(harness.state.nodes.datasets.levels("c4")) == nodes


def test_the_same_after_a_restart_and_after_a_new_configuration() -> None:
    harness = harness_of()
    read(harness, "c", "imagenet")
    read(harness, "d", "c4:1T", "mnist")
    before = harness.state.nodes.datasets
    after = harness.restarted()
    assert after.state.nodes.datasets.by_dataset == before.by_dataset
    assert after.state.nodes.datasets.by_node == before.by_node
    for name in "abcd":
        after.join(name)
    assert place(after, datasets=("imagenet",)) == "c"
    new = build_pipeline(load_text("[datasets]\nnodes = 1", "scheduler.toml"))
    harness.tell(controller_inputs.ApplyConfig("digest", "root", new))
    assert harness.state.nodes.datasets.by_dataset == before.by_dataset
    assert harness.state.nodes.datasets.changed == before.changed
    read(harness, "a", "imagenet")
    assert list(harness.state.nodes.datasets.by_dataset["imagenet"]) == ["a"]


def test_replay_of_a_journal_gives_the_same_placements() -> None:
    """Jobs read three data sets on four nodes; the data scorer decides where each one goes."""
    config = Config()
    pipeline = build_pipeline(config)
    cluster = nodes_of(4, 8, 64, 512 * 1024, "H100")
    asked = [
        spec(8, cpu_milli=1_000, memory_mib=1_024, time_limit_s=2 * HOUR, datasets=(f"d{number * 7 % 3}",))
        for number in range(120)
    ]
    jobs = starmap(
        TraceJob,
        (
            (number + 1, 700.0 * number, each, 600.0 + 97.0 * (number % 11))
            for number, each in enumerate(asked)
        ),
    )
    journal: list[Event] = []
    simulation = Simulation(Engine(pipeline, State(pipeline.order)), journal.append)
    for name, facts in cluster.nodes.items():
        simulation.add_node(name, facts)
    simulation.add_work(jobs)
    simulation.run()
    again: list[Event] = []
    Replay(history_of(journal), build_pipeline(config), observe=again.append).run()
    assert again == journal
    without = replace(pipeline, datasets=DatasetPolicy(retention_s=0.0))
    other: list[Event] = []
    Replay(history_of(journal), without, observe=other.append).run()
    places = [
        [each.allocations[0].node for each in events if isinstance(each, JobPlaced)]
        for events in (journal, other)
    ]
    assert places[0] != places[1]  # the data decided some of them


def test_explain_shows_the_points_for_data() -> None:
    harness = harness_of()
    read(harness, "c", "imagenet")
    job = harness.submit(spec(1, cpu_milli=1_000, memory_mib=1_024, datasets=("imagenet",)))
    why = harness.why(job)
    best = why.nodes[0]
    [data] = [each for each in best.parts if each.name == "data"]
    assert (best.node, data.factor, data.weight) == ("c", 1.0, 50)
    assert why.nodes[1].points < best.points


def test_the_lists_are_bounded() -> None:
    reads = DatasetReads()
    reads.policy = DatasetPolicy(nodes=3)
    for number in range(5):
        reads.note(["x"], f"n{number}", HOUR, 100.0 + number)
    assert list(reads.by_dataset["x"]) == ["n2", "n3", "n4"]
    for number in range(MOST_DATASETS):
        reads.note([f"d{number}"], "n9", HOUR, 200.0 + number)
    assert len(reads.by_dataset) == MOST_DATASETS
    assert "x" not in reads.by_dataset
    assert "x" in reads.changed  # so that its row is deleted
    assert set(reads.by_node) == {"n9"}
    assert [name for name, _ in reads.on_node("n9", 1_300.0)[:2]] == ["d999", "d998"]
    assert reads.on_node("n9", 10 * DAY) == []


@pytest.mark.parametrize(
    ("text", "parsed"), [("c4", ("c4", 0)), ("a/b-c.d:2T", ("a/b-c.d", 2 << 20)), ("x:800M", ("x", 800))]
)
def test_data_sets_of_a_job(text: str, parsed: tuple[str, int]) -> None:
    assert parse_dataset(text) == parsed


@pytest.mark.parametrize(
    ("datasets", "told"),
    [
        (("a b",), "'a b' is not a name of letters"),
        (("c4:much",), "cannot read 'much' as memory"),
        (("c4:",), "cannot read '' as memory"),
        (("c4:1G", "c4:2G"), "names 'c4' twice"),
        (tuple(map(str, range(MOST + 1))), f"at most {MOST} data sets"),
    ],
)
def test_mistakes_in_data_sets(datasets: tuple[str, ...], told: str) -> None:
    assert [told in message for _, message in dataset_problems(datasets)] == [True]
