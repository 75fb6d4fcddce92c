"""Saves settings of the terminal UI for its next start: the filter, sort order and columns of each
list, the presets, and the theme.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tui.data.lists.filter import FilterError
from tui.data.presets import Preset, to_json
from tui.views.list_view import ListView
from tui.views.view import View

PRESETS = "presets"
"""The name of the presets in the settings file."""


def _path() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "corral" / "tui.json"


def load() -> Mapping[str, Any]:
    """Return the saved settings; empty if the file does not exist, cannot be read or is not valid."""
    try:
        saved = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return saved if isinstance(saved, dict) else {}


def apply_settings(views: Iterable[View], saved: Mapping[str, Any]) -> None:
    """Restore the saved filter, sort order and columns of each list."""
    for view in views:
        part = saved.get(view.NAME)
        if isinstance(view, ListView) and isinstance(part, dict):
            sort = str(part.get("sort"))
            if sort in view.listing.sorts:
                view.listing.arrange(sort, part.get("reverse") is True)
            with contextlib.suppress(FilterError):
                view.listing.narrow(str(part.get("filter", "")))
            hidden = part.get("hidden")
            view.table.hide(set(map(str, hidden)) if isinstance(hidden, list) else set())


def save_settings(views: Iterable[View], theme: str, presets: Mapping[str, Preset]) -> None:
    """Save the settings. If the file cannot be written, do nothing."""
    saved: dict[str, Any] = {"theme": theme, PRESETS: to_json(presets)}
    for view in views:
        if isinstance(view, ListView):
            listing = view.listing
            saved[view.NAME] = {
                "sort": listing.sort,
                "reverse": listing.reverse,
                "filter": listing.filter.text,
                "hidden": sorted(view.table.hidden),
            }
    path = _path()
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with open(
            os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            json.dump(saved, file)
        fresh.replace(path)
