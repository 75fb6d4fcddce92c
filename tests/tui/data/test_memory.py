"""Settings that the terminal UI keeps over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui.data import saved_settings
from tui.data.lists.cluster_lists import job_listing, node_listing
from tui.data.presets import Preset, from_json
from tui.views.nodes import NodesView
from tui.views.plan import PlanView
from tui.views.queue import QueueView

PRESETS = {
    "mine": Preset("queue", "user:bob", "user", True, ("project",)),
    "the plan": Preset("plan", "gpus:>=8"),
}


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "corral" / "tui.json"


def test_saved_settings_restore_lists_and_colours(state: Path) -> None:
    views = [QueueView(job_listing()), NodesView(node_listing())]
    views[0].listing.arrange("user", reverse=True)
    views[0].listing.narrow("user:bob !dpo")
    views[0].table.hide({"project", "id", "nonsense"})
    saved_settings.save_settings(views, "horizon", PRESETS)
    again = [QueueView(job_listing()), NodesView(node_listing())]
    kept = saved_settings.load()
    saved_settings.apply_settings(again, kept)
    assert kept["theme"] == "horizon"
    assert (again[0].listing.sort, again[0].listing.reverse) == ("user", True)
    assert again[0].listing.filter.text == "user:bob !dpo"
    assert again[0].table.hidden == {"project"}, "the first column is always shown"
    assert again[1].listing.sort == "name"
    assert from_json(kept["presets"]) == PRESETS
    assert state.stat().st_mode & 0o777 == 0o600
    assert state.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"queue": 3}',
        '{"queue": {"sort": "nonsense", "filter": "("}}',
        '{"queue": {"sort": [], "hidden": 3}}',
        '{"presets": 3}',
        '{"presets": {"a": 3, "b": {"view": 3}, "c": {}, "d": {"view": "job"}}}',
    ],
)
def test_unreadable_settings_are_ignored(state: Path, text: str) -> None:
    state.parent.mkdir()
    state.write_text(text)
    view = QueueView(job_listing())
    saved_settings.apply_settings([view], saved_settings.load())
    assert (view.listing.sort, view.listing.filter.text, view.table.hidden) == ("order", "", set())
    assert from_json(saved_settings.load().get("presets")) == {}


def test_unwritable_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc")
    saved_settings.save_settings([QueueView(job_listing())], "dusk", PRESETS)
    assert saved_settings.load() == {}


def test_preset_sets_views_before_the_screen_is_there() -> None:
    queue, plan = QueueView(job_listing()), PlanView()
    PRESETS["mine"].apply(queue)
    PRESETS["the plan"].apply(plan)
    assert (queue.listing.sort, queue.filter_text, queue.table.hidden) == ("user", "user:bob", {"project"})
    assert plan.filter_text == "gpus:>=8"
