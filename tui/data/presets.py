"""Presets: a view with its filter, sort order and columns, saved under a name."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tui.actions import FILTERED, ROOTS
from tui.data.lists.filter import FilterError
from tui.views.list_view import ListView
from tui.views.view import View
from wire.text import printable


@dataclass(frozen=True)
class Preset:
    """The view to show, its filter, and for a list also its sort order and the columns that are hidden."""

    view: str
    filter: str = ""
    sort: str = ""
    reverse: bool = False
    hidden: tuple[str, ...] = ()

    @classmethod
    def of(cls, view: View) -> Preset:
        """Return the preset that shows the view as it is now."""
        if not isinstance(view, ListView):
            return cls(view.NAME, view.filter_text)
        listing = view.listing
        hidden = tuple(sorted(view.table.hidden))
        return cls(view.NAME, view.filter_text, listing.sort, listing.reverse, hidden)

    def apply(self, view: View) -> None:
        """Set the filter, the sort order and the columns of the view. Parts that the view does not have, for
        example because an older version has saved them, are left out.
        """
        if not isinstance(view, ListView):
            if self.filter != view.filter_text:
                view.narrow(self.filter)
            return
        if self.sort in view.listing.sorts:
            view.listing.arrange(self.sort, self.reverse)
        with contextlib.suppress(FilterError):
            view.listing.narrow(self.filter)
        view.table.hide(set(self.hidden))
        if view.is_attached:
            view.table.sync()
            view.moved()

    @property
    def summary(self) -> str:
        """Return the contents of the preset as text, for a menu."""
        parts = [self.view]
        if self.filter:
            parts.append(f"/{self.filter}")
        if self.sort:
            parts.append(f"by {self.sort}{' reversed' if self.reverse else ''}")
        if self.hidden:
            parts.append(f"without {', '.join(self.hidden)}")
        return printable("  ".join(parts), 200)


def from_json(saved: object) -> dict[str, Preset]:
    """Return the presets of a settings file by name. Presets that are not valid are left out."""
    found: dict[str, Preset] = {}
    for name, part in saved.items() if isinstance(saved, Mapping) else ():
        if not isinstance(part, Mapping) or part.get("view") not in ROOTS:
            continue
        hidden = part.get("hidden")
        found[str(name)] = Preset(
            part["view"],
            str(part.get("filter", "")) if part["view"] in FILTERED else "",
            str(part.get("sort", "")),
            part.get("reverse") is True,
            tuple(map(str, hidden)) if isinstance(hidden, list) else (),
        )
    return found


def to_json(presets: Mapping[str, Preset]) -> dict[str, Any]:
    """Return the presets as objects for the settings file."""
    return {name: asdict(preset) for name, preset in presets.items()}
