"""Plugins are found by name, from any package, and every mistake in a plugin is reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.config import ConfigRefused, load
from controller.core.pipeline.pipeline import Pipeline
from controller.plugins.isolation import IsolatedScorer
from controller.registry import build_pipeline, installed_plugins

Install = Callable[[str, str], None]

GOOD = """
from dataclasses import dataclass
from typing import ClassVar, Literal
import numpy as np

@dataclass(frozen=True, slots=True)
class Rack:
    name: ClassVar[str] = "rack"
    label: str = "rack"
    near: tuple[str, ...] = ()
    how: Literal["same", "different"] = "same"
    bonus: float = 0.5

    def __post_init__(self):
        if not 0 <= self.bonus <= 1:
            raise ValueError("bonus must lie between 0 and 1")

    def score(self, part, nodes, rows):
        return np.full(len(nodes.cpu_free[rows]), self.bonus)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Makes an installed distribution with a module and its entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = []

    def make(code: str, points: str) -> None:
        module = f"somebody_{tmp_path.name.replace('-', '_')}_{len(modules)}"
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(code)
        home = tmp_path / f"{module}-1.0.dist-info"
        home.mkdir()
        (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (home / "entry_points.txt").write_text(points.format(module=module))
        installed_plugins.cache_clear()

    yield make
    installed_plugins.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)


def pipeline(directory: Path, text: str) -> Pipeline:
    path = directory / "scheduler.toml"
    path.write_text(text)
    return build_pipeline(load(path))


def refusal(directory: Path, text: str) -> str:
    with pytest.raises(ConfigRefused) as caught:
        pipeline(directory, text)
    (problem,) = caught.value.problems
    return str(problem).removeprefix(f"{directory}/")


def test_the_plugins_come_in_the_order_and_with_the_weights_asked(tmp_path: Path) -> None:
    made = pipeline(
        tmp_path,
        '[scheduler]\norder = "fifo"\nfilters = ["gpu", "capacity", "available"]\n'
        "[scheduler.scorers]\nload = 1\nfit = { weight = 2.5, gpu = 0.25 }\n",
    )
    assert made.order.name == "fifo"
    assert [each.name for each in made.filters] == ["gpu", "capacity", "available"]
    assert [(each.scorer.name, each.weight) for each in made.scorers] == [("load", 1), ("fit", 2.5)]
    assert made.scorers[1].scorer.gpu == 0.25  # type: ignore[attr-defined]


SHARES = "[fair_share]\nweights = { vision = 2, speech = 1 }\n"


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("", "priority"),
        ("[fair_share]\nweights = { vision = 2, 'vision/ada' = 3 }\n", "priority"),
        (SHARES, "ranked"),
        ("[fair_share]\norganisations = { uni = ['vision', 'speech'] }\n", "ranked"),
        ("[quota.projects.vision]\ngpus = 4\n[quota.projects.'*']\ngpus = 2\n", "priority"),
        ("[quota.projects.vision]\ngpus = 4\n[quota.projects.speech]\ngpus = 2\n", "ranked"),
        ("[scheduler]\norder = 'priority'\n" + SHARES, "priority"),
        ("[scheduler]\nthen = 'fifo'\n" + SHARES, "ranked"),
    ],
)
def test_shares_decide_by_default_if_several_projects_are_named(
    tmp_path: Path, text: str, order: str
) -> None:
    made = pipeline(tmp_path, text).order
    assert made.name == order
    if order == "ranked":
        assert made.first.name == "priority"  # type: ignore[attr-defined]
        assert made.second.name == ("fifo" if "then" in text else "fair")  # type: ignore[attr-defined]


def test_somebody_elses_plugin_gets_its_options_from_the_file(tmp_path: Path, install: Install) -> None:
    install(GOOD, "[corral.scorer]\nrack = {module}:Rack\n")
    text = '[scheduler.scorers.rack]\nweight = 5\nlabel = "row"\nnear = ["a", "b"]\nbonus = 1\n'
    (rack,) = pipeline(tmp_path, text).scorers
    assert isinstance(rack.scorer, IsolatedScorer)
    assert (rack.scorer.plugin.label, rack.scorer.plugin.near) == ("row", ("a", "b"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("label = 3", ":3: scheduler.scorers.rack.label: must be text in quotes"),
        ('near = ["a", 3]', ":3: scheduler.scorers.rack.near[1]: must be text in quotes"),
        ('how = "near"', ":3: scheduler.scorers.rack.how: must be 'same' or 'different'"),
        ("bonus = true", ":3: scheduler.scorers.rack.bonus: must be a number"),
        ("bonus = 3", ":1: scheduler.scorers.rack: bonus must lie between 0 and 1"),
        ("boni = 3", ":3: scheduler.scorers.rack.boni: there is no such key. Did you mean 'bonus'?"),
        ('name = "x"', ":3: scheduler.scorers.rack.name: there is no such key."),
        ("bonus = 1979-05-27", ":3: scheduler.scorers.rack.bonus: must be a number"),
    ],
)
def test_wrong_options_are_named_by_key_and_line(
    tmp_path: Path, install: Install, options: str, message: str
) -> None:
    install(GOOD, "[corral.scorer]\nrack = {module}:Rack\n")
    text = f"[scheduler.scorers.rack]\nweight = 5\n{options}\n"
    assert refusal(tmp_path, text).startswith(f"scheduler.toml{message}")


FROZEN = (
    "from dataclasses import dataclass\nfrom typing import ClassVar\n@dataclass(frozen=True)\nclass It:\n"
)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nowhere_at_all", "cannot be loaded (ModuleNotFoundError: No module named 'nowhere_at_all')"),
        ("It = 3", "is not a dataclass"),
        ("class It: name = 'it'", "is not a dataclass"),
        (FROZEN.replace("(frozen=True)", "") + " pass\n", "is not frozen"),
        (FROZEN + " pass\n", "has no `name: ClassVar[str]`"),
        (
            FROZEN + " name: ClassVar[str] = 'it'\n def keep(self): ...\n def concerns(self): ...\n",
            "has no method 'explain'",
        ),
        (
            FROZEN + " name: ClassVar[str] = 'it'\n def keep(self): ...\n"
            " def concerns(self): ...\n def explain(self): ...\n"
            " def __post_init__(self): 1 / 0\n",
            "cannot be created (ZeroDivisionError: division by zero)",
        ),
    ],
)
def test_what_is_no_plugin_is_refused_by_name(
    tmp_path: Path, install: Install, code: str, message: str
) -> None:
    install(code, "[corral.filter]\nit = {module}:It\n")
    refused = refusal(tmp_path, '[scheduler]\nfilters = ["available", "capacity", "gpu", "it"]\n')
    assert refused.startswith("scheduler.toml:2: scheduler.filters[3]: the filter 'it' ")
    assert message in refused


def test_two_packages_with_the_same_plugin_are_not_chosen_from(tmp_path: Path, install: Install) -> None:
    install(GOOD, "[corral.scorer]\nfit = {module}:Rack\n")
    refused = refusal(tmp_path, "[scheduler.scorers]\nfit = 1\n")
    assert "two plugins provide the scorer 'fit'" in refused
    assert "controller.plugins.scorers.resource_use:FitScorer" in refused


def test_slices_need_an_order_by_which_jobs_take_turns(tmp_path: Path) -> None:
    refused = refusal(tmp_path, "[scheduler]\nslice_s = 3600\n")
    assert refused.startswith("scheduler.toml:2: scheduler.slice_s: the order 'priority' cannot let jobs")
    assert "expected-remaining" in refused
