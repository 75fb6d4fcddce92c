"""Plugins of a site: loaded from a plain file, and disabled when they fail."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cli.exit_codes import USAGE
from cli.main import main
from controller.config import ConfigRefused, load
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.controller import PluginFailed
from controller.core.pipeline.hooks import Placed
from controller.registry import build_pipeline
from controller.watchers.placement_hooks import PlacementHooks
from tests.engine_harness import EngineHarness, spec

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


def test_example_plugin_works(tmp_path: Path) -> None:
    pipeline = build_pipeline(load(configured(tmp_path, USED.format(file=EXAMPLES / "cheap_power.py"))))
    harness = EngineHarness(pipeline)
    harness.join("gpu01", labels={"tariff": "day"})
    harness.join("gpu02", labels={"tariff": "night"})
    job = harness.submit(spec(1))
    harness.tick()
    assert harness.nodes_of(job) == ["gpu02"]
    assert not any(isinstance(event, PluginFailed) for event in harness.events)


def test_plugin_file_is_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((EXAMPLES / "cheap_power.py").read_text())
    pipeline = build_pipeline(load(configured(tmp_path, USED.format(file="mine.py"))))
    assert [each.scorer.name for each in pipeline.scorers] == ["cheap_power"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "is not there"),
        ("x = 1", "contains no plugin"),
        ("def broken(:", "SyntaxError"),
        ("\n\nraise RuntimeError('not today')", "RuntimeError: not today, line 3"),
    ],
)
def test_file_without_a_plugin_is_refused_with_its_path(
    tmp_path: Path, code: str | None, message: str
) -> None:
    if code is not None:
        (tmp_path / "theirs.py").write_text(code)
    with pytest.raises(ConfigRefused) as refused:
        build_pipeline(load(configured(tmp_path, '[plugins]\nfiles = ["theirs.py"]\n')))
    (problem,) = refused.value.problems
    assert message in str(problem)
    assert "scheduler.toml:2" in str(problem)


def test_options_and_names_of_plugin_files_are_checked(tmp_path: Path) -> None:
    text = USED.format(file=EXAMPLES / "cheap_power.py").replace("cheap =", "chaep =")
    with pytest.raises(ConfigRefused, match="chaep"):
        build_pipeline(load(configured(tmp_path, text)))
    text = USED.format(file=EXAMPLES / "cheap_power.py").replace("cheap_power = {", "cheap_powr = {")
    with pytest.raises(ConfigRefused, match="cheap_power"):
        build_pipeline(load(configured(tmp_path, text)))


@pytest.mark.parametrize("how", ["raise", "wrong", "shape"])
@pytest.mark.parametrize("kind", ["filter", "scorer", "picker", "order"])
def test_failing_plugin_is_named_skipped_and_disabled(tmp_path: Path, kind: str, how: str) -> None:
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
    harness = EngineHarness(replace(pipeline))
    harness.join("gpu01")
    harness.join("gpu02")
    jobs = []
    for turn in range(6):
        jobs.append(harness.submit(spec(0.25, cpu_milli=1000 + turn)))
        harness.tick()
    failures = [event for event in harness.events if isinstance(event, PluginFailed)]
    assert {(event.kind, event.name) for event in failures} == {(kind, "bad")}
    assert [event.given_up for event in failures] == [False, False, True]
    assert all(event.why for event in failures)
    assert [bool(harness.nodes_of(job)) for job in jobs] == [kind != "filter"] * len(jobs)
    if kind == "filter":
        assert "the filter bad fails (" in str(harness.why(jobs[0]))


@pytest.mark.parametrize("how", ["raise", "wrong", "shape"])
def test_failing_filter_is_skipped_if_on_error_is_pass(tmp_path: Path, how: str) -> None:
    (tmp_path / "bad.py").write_text(BROKEN)
    bad = f'{{ name = "bad", how = "{how}", on_error = "pass" }}'
    text = f'[plugins]\nfiles = ["bad.py"]\n[scheduler]\nfilters = ["available", "capacity", "gpu", {bad}]\n'
    harness = EngineHarness(build_pipeline(load(configured(tmp_path, text))))
    harness.join("gpu01")
    for _ in range(5):
        job = harness.submit(spec(0.25))
        harness.tick()
        assert harness.nodes_of(job) == ["gpu01"]
    assert [event.given_up for event in harness.events if isinstance(event, PluginFailed)] == [
        False,
        False,
        True,
    ]


def test_invalid_on_error_is_refused_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BROKEN)
    bad = '{ name = "bad", how = "raise", on_error = "ignore" }'
    text = f'[plugins]\nfiles = ["bad.py"]\n[scheduler]\nfilters = ["available", "capacity", "gpu", {bad}]\n'
    with pytest.raises(ConfigRefused, match="on_error = 'ignore'; write 'wait' or 'pass'"):
        build_pipeline(load(configured(tmp_path, text)))


MOODY = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np

MOOD = {"good": True}

@dataclass(frozen=True)
class Moody:
    name: ClassVar[str] = "moody"
    static: ClassVar[bool] = STATIC
    def keep(self, part, nodes, rows):
        if not MOOD["good"]:
            raise AttributeError("names")
        return np.ones(len(nodes.open[rows]), dtype=np.bool_)
    def concerns(self, part):
        if not MOOD["good"] and not STATIC:
            raise AttributeError("names")
        return True
    def explain(self, part): return "moody"
"""


@pytest.mark.parametrize("static", [True, False])
def test_jobs_wait_while_a_filter_fails_and_start_when_it_works_again(tmp_path: Path, static: bool) -> None:
    """Submits are accepted too: the answer of a failing filter says nothing about the nodes."""
    (tmp_path / "moody.py").write_text(MOODY.replace("STATIC", str(static)))
    text = (
        '[plugins]\nfiles = ["moody.py"]\n[scheduler]\nfilters = ["available", "capacity", "gpu", "moody"]\n'
    )
    pipeline = build_pipeline(load(configured(tmp_path, text)))
    harness = EngineHarness(pipeline)
    mood = sys.modules[type(pipeline.filters[-1].plugin).__module__].MOOD
    harness.join("gpu01")
    mood["good"] = False
    job = harness.submit(spec(1))
    assert harness.tick() == []
    mood["good"] = True
    assert [start.job for start in harness.tick()] == [job]
    assert [event.given_up for event in harness.events if isinstance(event, PluginFailed)] == [False, False]


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


def test_example_hook_writes_a_line_for_each_placement(tmp_path: Path) -> None:
    text = '[plugins]\nfiles = ["{}"]\nhooks = [{{ name = "placement_log", path = "{}" }}]\n'
    file, log = EXAMPLES / "placement_log.py", tmp_path / "log"
    hooks = PlacementHooks(build_pipeline(load(configured(tmp_path, text.format(file, log)))).hooks)
    harness = EngineHarness()
    harness.join("gpu01")
    job = harness.submit(spec(2, project="vision"))
    harness.now += 60
    harness.tick()
    hooks.tell(harness.events, harness.state)
    hooks.close()
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["job"], line["project"], line["waited_s"]) == (str(job), "vision", 60)
    assert line["nodes"] == {"gpu01": 2}


def test_any_plugin_may_be_a_hook(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(HOOKED)
    text = '[plugins]\nfiles = ["theirs.py"]\n[scheduler.scorers]\nlistening = 1\n'
    pipeline = build_pipeline(load(configured(tmp_path, text)))
    (hook,) = pipeline.hooks
    hooks, harness = PlacementHooks(pipeline.hooks), EngineHarness(pipeline)
    harness.join("gpu01")
    jobs = [harness.submit(spec(1)) for _ in range(3)]
    harness.tick()
    hooks.tell(harness.events, harness.state)
    hooks.close()
    assert hook.name == "listening"
    assert [placed.job for placed in sys.modules["corral_plugins_theirs"].TOLD] == jobs


OUTSIDE = """
from dataclasses import dataclass
from typing import ClassVar
from controller.core.pipeline.hooks import Sample

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
def test_failing_metrics_and_quota_plugins_are_isolated(tmp_path: Path, kind: str, setting: str) -> None:
    (tmp_path / "bad.py").write_text(OUTSIDE)
    text = f'[plugins]\nfiles = ["bad.py"]\n{setting}\n'
    pipeline = build_pipeline(load(configured(tmp_path, text)))
    harness, message = EngineHarness(pipeline), 0
    harness.join("gpu01")
    for turn in range(6):
        harness.submit(spec(4, cpu_milli=1000 + turn, priority=50 + turn))
        harness.tick()
        for event in harness.events[message:]:
            for hook in pipeline.hooks if isinstance(event, JobPlaced) else ():
                hook.on_placed(Placed(1, "1", "", "", "", "", 1, 0.0, 0.0, event.allocations))
        message = len(harness.events)
        for each in pipeline.metrics:
            assert list(each.collect(harness.state, harness.now)) == []
    harness.tick()
    failures = [event for event in harness.events if isinstance(event, PluginFailed)]
    assert failures
    assert {(event.kind, event.name) for event in failures} == {(kind, "bad")}
    assert len(harness.state.nodes.by_name["gpu01"].held) == 2, "those that fit start all the same"


@pytest.mark.parametrize("how", ["raise", "wrong"])
def test_config_check_names_a_failing_plugin(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.py").write_text(BROKEN)
    bad = f'{{ name = "bad", how = "{how}" }}'
    text = f'[plugins]\nfiles = ["bad.py"]\n[scheduler]\nfilters = ["available", "capacity", "gpu", {bad}]\n'
    assert main(["config", "check", "--quiet", str(configured(tmp_path, text))]) == USAGE
    assert "a plugin fails for an example node: filter bad: " in capsys.readouterr().err
