"""What is kept over restarts: filter and order of each list, and the colours."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tui.filter import Unreadable
from tui.views.listed import Listed
from tui.views.view import View


def _path() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "corral" / "tui.json"


def load() -> Mapping[str, Any]:
    """What was kept; what cannot be read is as if there was nothing."""
    try:
        kept = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}


def arrange(views: Iterable[View], kept: Mapping[str, Any]) -> None:
    """The lists as they were left."""
    for view in views:
        part = kept.get(view.NAME)
        if isinstance(view, Listed) and isinstance(part, dict):
            sort = str(part.get("sort"))
            if sort in view.listing.sorts:
                view.listing.arrange(sort, part.get("reverse") is True)
            with contextlib.suppress(Unreadable):
                view.listing.narrow(str(part.get("filter", "")))


def keep(views: Iterable[View], theme: str) -> None:
    """Write it down; a home that cannot be written to is no reason to complain."""
    kept: dict[str, Any] = {"theme": theme}
    for view in views:
        if isinstance(view, Listed):
            listing = view.listing
            kept[view.NAME] = {
                "sort": listing.sort,
                "reverse": listing.reverse,
                "filter": listing.filter.text,
            }
    path = _path()
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with open(
            os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            json.dump(kept, file)
        fresh.replace(path)
