"""Filter and order of each list, kept over restarts."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from tui.filter import Unreadable
from tui.views.listed import Listed
from tui.views.view import View


def _path() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "corral" / "tui.json"


def recall(views: Iterable[View]) -> None:
    """Arrange the lists as they were left; what cannot be read is as if there was nothing."""
    try:
        kept = json.loads(_path().read_text())
    except (OSError, ValueError):
        return
    for view in views:
        part = kept.get(view.NAME) if isinstance(kept, dict) else None
        if isinstance(view, Listed) and isinstance(part, dict):
            if part.get("sort") in view.listing.sorts:
                view.listing.arrange(part["sort"], part.get("reverse") is True)
            with contextlib.suppress(Unreadable):
                view.listing.narrow(str(part.get("filter", "")))


def keep(views: Iterable[View]) -> None:
    """Write down how the lists are arranged; a read-only home is no reason to complain."""
    kept = {
        view.NAME: {
            "sort": view.listing.sort,
            "reverse": view.listing.reverse,
            "filter": view.listing.filter.text,
        }
        for view in views
        if isinstance(view, Listed)
    }
    path = _path()
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(kept, file)
        fresh.replace(path)
