"""Lists the last events of a node."""

from __future__ import annotations

from tui.data.model import ClusterModel
from tui.look import cells
from tui.look.styled_lines import Piece, heading
from tui.pulse.lists import event_style
from wire.text import printable


def node_events(node: str, model: ClusterModel, width: int, height: int) -> list[list[Piece]]:
    """Return a panel with the events of a node, the newest first, at most `height` lines. Return no lines if
    there is no such event among the received events.
    """
    found = [event for event in model.events.rows.values() if event.node == node]
    if not found or height < 3:
        return []
    found.sort(key=lambda event: -event.seq)
    lines = [heading([(f"events of {printable(node, 40)}", "strong")], width)]
    for event in found[: height - 1]:
        at = cells.clock(event.at, model.now())
        lines.append([(f" {at:<12}  ", "faint"), (printable(event.text, 300), event_style(event.kind))])
    return lines
