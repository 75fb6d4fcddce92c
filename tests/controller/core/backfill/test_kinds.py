"""The kinds of backfill are plugins: found by name, with their options, and open to kinds of a site."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.config import ConfigRefused, load
from controller.core.framework.interfaces import Backfill
from controller.core.model.events.controller import PluginFailed
from controller.plugins.backfill.kinds import Aggressive, Conservative, Easy
from controller.registry import build_pipeline, installed_plugins
from tests.engine_harness import BACKFILLS, EngineHarness, spec

HOUR = 3600.0

LONGEST_FIRST = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class LongestFirst:
    name: ClassVar[str] = "longest-first"

    def candidate_key(self, runtime_s: float) -> float:
        return -runtime_s

@dataclass(frozen=True)
class Failing:
    name: ClassVar[str] = "failing"

    def candidate_key(self, runtime_s: float) -> float:
        raise ZeroDivisionError
"""


def configured(folder: Path, text: str) -> Path:
    path = folder / "scheduler.toml"
    path.write_text(text)
    return path


def world_with(folder: Path, name: str) -> EngineHarness:
    (folder / "kinds.py").write_text(LONGEST_FIRST)
    text = f'[plugins]\nfiles = ["kinds.py"]\n[scheduler]\nbackfill = "{name}"\n'
    harness = EngineHarness(build_pipeline(load(configured(folder, text))))
    harness.join("m", cpus=8, gpus=0)
    return harness


def backfilled(harness: EngineHarness) -> list[int]:
    """5 of 8 CPUs are busy for 2 h, and the first waiting job needs 6. Jobs 3 (1 h) and 4 (2 h) need 3."""
    harness.submit(spec(0, cpu_milli=5000, time_limit_s=2 * HOUR))
    harness.submit(spec(0, cpu_milli=6000, time_limit_s=5 * HOUR))
    harness.tick()
    harness.submit(spec(0, cpu_milli=3000, time_limit_s=HOUR))
    harness.submit(spec(0, cpu_milli=3000, time_limit_s=2 * HOUR))
    return [start.job for start in harness.tick()]


def test_all_kinds_are_installed() -> None:
    assert installed_plugins("backfill").keys() == BACKFILLS.keys()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", Easy()),
        ("backfill = 'conservative'\nbackfill_depth = 7", Conservative(depth=7)),
        ("backfill = 'conservative'", Conservative(depth=100)),
        ("backfill = 'aggressive'\nbackfill_delay_s = 5", Aggressive(max_delay_s=5.0)),
        ("backfill = 'easy'\nbackfill_delay_s = 5", Easy()),
    ],
)
def test_keys_become_options_of_the_kind_that_has_them(tmp_path: Path, text: str, kind: Backfill) -> None:
    path = configured(tmp_path, f"[scheduler]\n{text}\n")
    assert build_pipeline(load(path)).backfill == kind


@pytest.mark.parametrize("table", ["scheduler", "profiles.x"])
def test_an_unknown_kind_is_refused_with_the_nearest_name(tmp_path: Path, table: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        build_pipeline(load(configured(tmp_path, f"[{table}]\nbackfill = 'conservativ'\n")))
    (problem,) = refused.value.problems
    assert "scheduler.toml:2" in str(problem)
    assert f"{table}.backfill: there is no backfill 'conservativ'. Did you mean 'conservative'?" in str(
        problem
    )


def test_a_kind_of_a_site_orders_the_candidates(tmp_path: Path) -> None:
    assert backfilled(world_with(tmp_path, "longest-first")) == [4]


def test_a_kind_that_fails_is_reported_and_keeps_queue_order(tmp_path: Path) -> None:
    harness = world_with(tmp_path, "failing")
    assert backfilled(harness) == [3]
    failures = [event for event in harness.events if isinstance(event, PluginFailed)]
    assert {(event.kind, event.name) for event in failures} == {("backfill", "failing")}
