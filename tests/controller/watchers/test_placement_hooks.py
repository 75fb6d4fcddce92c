"""Hooks are called after placements are on disk, and delay nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from controller.core.pipeline.hooks import Placed
from controller.watchers import placement_hooks
from controller.watchers.placement_hooks import PlacementHooks
from tests.controller.api.running_controller import start_controller
from tests.engine_harness import EngineHarness, spec

EXAMPLE = Path(__file__).parent.parent.parent.parent / "examples" / "placement_log.py"


async def test_running_controller_calls_placement_hooks(tmp_path: Path) -> None:
    log = tmp_path / "placements.jsonl"
    plugins = {"files": [str(EXAMPLE)], "hooks": [{"name": "placement_log", "path": str(log)}]}
    async with start_controller(plugins=plugins) as api:
        await api.join("gpu01")
        job = await api.submit(gpus=2, project="vision")
        assert await api.placed(job) == ["gpu01"]
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["job"], line["project"], line["nodes"]) == (str(job), "vision", {"gpu01": 2})


class Stuck:
    """A hook that waits until the test releases it."""

    name = "stuck"

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.in_it, self.let_go = threading.Event(), threading.Event()

    def on_placed(self, placed: Placed) -> None:
        self.calls.append(placed.job)
        self.in_it.set()
        self.let_go.wait()


def test_stuck_hook_misses_placements_and_delays_no_other_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement_hooks, "MOST_WAITING", 3)
    monkeypatch.setattr(placement_hooks, "END_S", 0.0)
    harness, stuck = EngineHarness(), Stuck()
    harness.join("gpu01")
    first, *others = [harness.submit(spec(1)) for _ in range(8)]
    harness.tick()
    calls = PlacementHooks([stuck])
    placed = [event for event in harness.events if getattr(event, "job", 0) == first]
    calls.tell(placed, harness.state)
    stuck.in_it.wait()
    calls.tell([event for event in harness.events if getattr(event, "job", 0) in others], harness.state)
    calls.close()
    stuck.let_go.set()
    assert calls.thread is not None
    calls.thread.join()
    assert stuck.calls[0] == first
    assert set(stuck.calls[1:]) < set(others)
    assert len(stuck.calls) <= 4
