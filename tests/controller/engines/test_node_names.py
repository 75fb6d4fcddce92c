"""Names of the nodes of engines: no two nodes have the same name, and a node keeps its name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.controller.api.running_controller import RunningController, start_controller

LISTING_ENGINE = """
from dataclasses import dataclass
from typing import ClassVar

from controller.engines.contract import ForeignNode
from tests.controller.engines.fake_engine import FakeEngine, World
from wire.agent.reports import NodeFacts

@dataclass(frozen=True, slots=True)
class ListingEngineType:
    name: ClassVar[str] = "listing"
    nodes: tuple[str, ...] = ()

    def connect(self, scope):
        world = World()
        world.nodes = [ForeignNode(name, NodeFacts(1_000, 1_024)) for name in self.nodes]
        return FakeEngine(world)
"""


def sections(directory: Path, **engines: list[str]) -> dict[str, Any]:
    """Tables of scheduler.toml with an engine for each name, which lists these nodes."""
    file = directory / "listing_engine.py"
    file.write_text(LISTING_ENGINE)
    tables = {
        name.replace("_", "-"): {"type": "listing", "interval_s": 0.5, "nodes": nodes}
        for name, nodes in engines.items()
    }
    return {"plugins": {"files": [str(file)]}, "engines": tables}


@asynccontextmanager
async def with_engines(directory: Path | None, **tables: Any) -> AsyncIterator[RunningController]:
    """A running controller with its engines."""
    async with start_controller(directory, **tables) as api:
        api.daemon.engines.open()
        yield api


async def names(api: RunningController, count: int) -> dict[str, tuple[str, str | None]]:
    """The engine and the foreign name of each node, when all engines together have this number of nodes."""
    drivers = api.daemon.engines.drivers
    await api.until(lambda: sum(node.up for node in api.daemon.state.nodes) == count)
    found = [(name, engine) for engine in drivers for name in drivers[engine].nodes.names]
    assert len(found) == count, "two engines have a node of the same name"
    return {name: (engine, drivers[engine].nodes.foreign_name(name)) for name, engine in found}


async def test_nodes_of_two_engines_have_different_names_also_after_a_restart(tmp_path: Path) -> None:
    both = sections(tmp_path, a=["b-c", "n1"], a_b=["c", "n1"])
    state = tmp_path / "state"
    state.mkdir()
    async with with_engines(state, **both) as api:
        found = await names(api, 4)
        assert sorted(found.values()) == [("a", "b-c"), ("a", "n1"), ("a-b", "c"), ("a-b", "n1")]
        assert {"a-b-c", "a-n1", "a-b-n1"} < set(found)
    for _ in range(3):
        async with with_engines(state, **both) as api:
            assert await names(api, 4) == found
    # The node that has the other name keeps it while it is alone in the cluster.
    (other,) = set(found) - {"a-b-c", "a-n1", "a-b-n1"}
    engine, foreign = found[other]
    alone = sections(tmp_path, **{engine.replace("-", "_"): [foreign or ""]})
    async with with_engines(state, **alone) as api:
        await api.until(lambda: (node := api.daemon.state.nodes.get(other)) is not None and node.up)
        assert api.daemon.engines.drivers[engine].nodes.names == [other]


async def test_foreign_names_that_are_no_node_names_stay_different(tmp_path: Path) -> None:
    foreign = ["gpu:1", "gpu/1", "gpu-1", "x" * 70 + "1", "x" * 70 + "2"]
    async with with_engines(None, **sections(tmp_path, pool=foreign)) as api:
        found = await names(api, 5)
    assert sorted(name or "" for _, name in found.values()) == sorted(foreign)
    assert found["pool-gpu-1"] == ("pool", "gpu-1"), "a node name is not changed"
