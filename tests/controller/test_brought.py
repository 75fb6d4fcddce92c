"""Plugins of others: from a plain file, and at arm's length when they fail."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from controller.config import ConfigRefused, load
from controller.core.events import JobPlaced, PluginFailed
from controller.core.outlets import Placed
from controller.hooks import Hooks
from controller.registry import build_pipeline
from tests.worlds import World, spec

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

USED = """
[plugins]
files = ["{file}"]
[scheduler.scorers]
cheap_power = {{ weight = 40, cheap = ["night"] }}
"""

BROKEN = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np

@dataclass(frozen=True)
class BadFilter:
    name: ClassVar[str] = "bad"
    how: str = "raise"
    def concerns(self, part): return True
    def explain(self, part): raise KeyError("zone")
    def keep(self, part, nodes, rows):
        if self.how == "raise": raise KeyError("zone")
        return [True]

@dataclass(frozen=True)
class BadScorer:
    name: ClassVar[str] = "bad"
    how: str = "raise"
    def score(self, part, nodes, rows):
        if self.how == "raise": raise ValueError("no idea")
        if self.how == "shape": return np.zeros(77)
        return np.full(len(nodes.open[rows]), np.nan)

@dataclass(frozen=True)
class BadPicker:
    name: ClassVar[str] = "bad"
    how: str = "raise"
    def pick(self, part, nodes, row, slots):
        if self.how == "raise": raise IndexError(row)
        return 99

@dataclass(frozen=True)
class BadOrder:
    name: ClassVar[str] = "bad"
    how: str = "raise"
    def rank(self, job):
        if self.how == "raise": raise AttributeError("rank")
        return ("first",)
"""


def configured(place: Path, text: str) -> Path:
    """A scheduler.toml."""
    path = place / "scheduler.toml"
    path.write_text(text)
    return path


def test_the_example_is_a_plugin_that_works(tmp_path: Path) -> None:
    pipeline = build_pipeline(load(configured(tmp_path, USED.format(file=EXAMPLES / "cheap_power.py"))))
    world = World(pipeline)
    world.join("gpu01", labels={"tariff": "day"})
    world.join("gpu02", labels={"tariff": "night"})
    job = world.submit(spec(1))
    world.tick()
    assert world.nodes_of(job) == ["gpu02"]
    assert not any(isinstance(event, PluginFailed) for event in world.events)


def test_a_file_is_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((EXAMPLES / "cheap_power.py").read_text())
    pipeline = build_pipeline(load(configured(tmp_path, USED.format(file="mine.py"))))
    assert [each.scorer.name for each in pipeline.scorers] == ["cheap_power"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (None, "is not there"),
        ("x = 1", "holds no plugin"),
        ("def broken(:", "SyntaxError"),
        ("\n\nraise RuntimeError('not today')", "RuntimeError: not today, line 3"),
    ],
)
def test_a_file_that_brings_nothing_is_refused_with_its_place(
    tmp_path: Path, code: str | None, told: str
) -> None:
    if code is not None:
        (tmp_path / "theirs.py").write_text(code)
    with pytest.raises(ConfigRefused) as refused:
        build_pipeline(load(configured(tmp_path, '[plugins]\nfiles = ["theirs.py"]\n')))
    (problem,) = refused.value.problems
    assert told in str(problem)
    assert "scheduler.toml:2" in str(problem)


def test_options_and_names_of_files_are_checked_like_any(tmp_path: Path) -> None:
    text = USED.format(file=EXAMPLES / "cheap_power.py").replace("cheap =", "chaep =")
    with pytest.raises(ConfigRefused, match="chaep"):
        build_pipeline(load(configured(tmp_path, text)))
    text = USED.format(file=EXAMPLES / "cheap_power.py").replace("cheap_power = {", "cheap_powr = {")
    with pytest.raises(ConfigRefused, match="cheap_power"):
        build_pipeline(load(configured(tmp_path, text)))


@pytest.mark.parametrize("how", ["raise", "wrong", "shape"])
@pytest.mark.parametrize("kind", ["filter", "scorer", "picker", "order"])
def test_a_plugin_that_fails_is_named_passed_over_and_given_up(tmp_path: Path, kind: str, how: str) -> None:
    (tmp_path / "bad.py").write_text(BROKEN)
    bad = f'{{ name = "bad", how = "{how}" }}'
    setting = {
        "filter": f'filters = ["available", "capacity", "gpu", {bad}]',
        "scorer": f'scorers = {{ bad = {{ weight = 1, how = "{how}" }} }}',
        "picker": f"picker = {bad}",
        "order": f"order = {bad}",
    }[kind]
    pipeline = build_pipeline(
        load(configured(tmp_path, f'[plugins]\nfiles = ["bad.py"]\n[scheduler]\n{setting}\n'))
    )
    world = World(replace(pipeline))
    world.join("gpu01")
    world.join("gpu02")
    jobs = []
    for turn in range(6):
        jobs.append(world.submit(spec(0.25, cpu_milli=1000 + turn)))
        world.tick()
    failures = [event for event in world.events if isinstance(event, PluginFailed)]
    assert {(event.kind, event.name) for event in failures} == {(kind, "bad")}
    assert [event.given_up for event in failures] == [False, False, True]
    assert all(event.why for event in failures)
    assert all(world.nodes_of(job) for job in jobs), "everybody starts all the same"


HOOKED = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np

TOLD = []

@dataclass(frozen=True)
class Listening:
    name: ClassVar[str] = "listening"
    def score(self, part, nodes, rows): return np.zeros(len(nodes.open[rows]))
    def on_placed(self, placed): TOLD.append(placed)
"""


def test_the_example_of_a_hook_writes_a_line_for_each_placement(tmp_path: Path) -> None:
    text = '[plugins]\nfiles = ["{}"]\nhooks = [{{ name = "placement_log", path = "{}" }}]\n'
    file, log = EXAMPLES / "placement_log.py", tmp_path / "log"
    hooks = Hooks(build_pipeline(load(configured(tmp_path, text.format(file, log)))).hooks)
    world = World()
    world.join("gpu01")
    job = world.submit(spec(2, project="vision"))
    world.now += 60
    world.tick()
    hooks.tell(world.events, world.state)
    hooks.close()
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["job"], line["project"], line["waited_s"]) == (str(job), "vision", 60)
    assert line["nodes"] == {"gpu01": 2}


def test_any_plugin_may_listen(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(HOOKED)
    text = '[plugins]\nfiles = ["theirs.py"]\n[scheduler.scorers]\nlistening = 1\n'
    pipeline = build_pipeline(load(configured(tmp_path, text)))
    (hook,) = pipeline.hooks
    hooks, world = Hooks(pipeline.hooks), World(pipeline)
    world.join("gpu01")
    jobs = [world.submit(spec(1)) for _ in range(3)]
    world.tick()
    hooks.tell(world.events, world.state)
    hooks.close()
    assert hook.name == "listening"
    assert [placed.job for placed in sys.modules["corral_plugins_theirs"].TOLD] == jobs


OUTSIDE = """
from dataclasses import dataclass
from typing import ClassVar
from controller.core.outlets import Sample

@dataclass(frozen=True)
class BadHook:
    name: ClassVar[str] = "bad"
    def on_placed(self, placed): raise OSError("no room")

@dataclass(frozen=True)
class BadStrategy:
    name: ClassVar[str] = "bad"
    def standing(self, job): raise KeyError("standing")
    def reach(self, job): return job.spec.priority

@dataclass(frozen=True)
class BadQuota:
    name: ClassVar[str] = "bad"
    def quota(self, scope, name): raise TimeoutError("nobody there")
    def names(self, scope): raise TimeoutError("nobody there")

@dataclass(frozen=True)
class BadMetrics:
    name: ClassVar[str] = "bad"
    def collect(self, state, now): return [Sample("corral_jobs", 1.0)]
"""


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("hook", 'hooks = ["bad"]'),
        ("metrics", 'metrics = ["bad"]'),
        ("preemption", '[preemption]\nstrategies = ["bad"]'),
        ("quota", '[quota]\nprovider = "bad"'),
    ],
)
def test_what_tells_the_outside_or_limits_is_at_arms_length_too(
    tmp_path: Path, kind: str, setting: str
) -> None:
    (tmp_path / "bad.py").write_text(OUTSIDE)
    text = f'[plugins]\nfiles = ["bad.py"]\n{setting}\n'
    pipeline = build_pipeline(load(configured(tmp_path, text)))
    world, told = World(pipeline), 0
    world.join("gpu01")
    for turn in range(6):
        world.submit(spec(4, cpu_milli=1000 + turn, priority=50 + turn))
        world.tick()
        for event in world.events[told:]:
            for hook in pipeline.hooks if isinstance(event, JobPlaced) else ():
                hook.on_placed(Placed(1, "1", "", "", "", "", 1, 0.0, 0.0, event.allocations))
        told = len(world.events)
        for each in pipeline.metrics:
            assert list(each.collect(world.state, world.now)) == []
    world.tick()
    failures = [event for event in world.events if isinstance(event, PluginFailed)]
    assert failures
    assert {(event.kind, event.name) for event in failures} == {(kind, "bad")}
    assert len(world.state.nodes.by_name["gpu01"].held) == 2, "those that fit start all the same"
