"""The widget for the panels of the view Pulse. The cursor stops at rows that Enter can open."""

from __future__ import annotations

from textual import events
from textual.strip import Strip

from tui.app_interface import app_of
from tui.look import glyphs
from tui.pulse.panel import Block, Jump
from tui.widgets.scrolling_pane import Pane


class PulsePane(Pane):
    """Paints lines of blocks (parts of panels beside one another). The cursor stops at each block that has a
    jump, panel by panel from the top left.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[list[Block]] = []
        self._stops: list[tuple[int, int]] = []
        """The blocks that have a jump, each as (line, number of the block in the line), in the order in which
        the cursor visits them.
        """
        self._at: Jump | None = None
        self._index = 0

    @property
    def total(self) -> int:
        return len(self._lines)

    def show(self, lines: list[list[Block]]) -> None:
        """Paint these lines. The cursor stays on the block with the same jump (the job, node or view that
        Enter opens). If this jump is no longer shown, the cursor goes to the block that is now at the same
        place in the order of the blocks.
        """
        self._lines = lines
        stops = [
            (line, place)
            for line, blocks in enumerate(lines)
            for place, (row, _) in enumerate(blocks)
            if row.jump is not None
        ]
        self._stops = sorted(stops, key=lambda stop: (self._panel_of(stop), stop))
        found = [number for number, stop in enumerate(self._stops) if self._jump(stop) == self._at]
        if self._at is not None and found:
            self._index = min(found, key=lambda number: abs(number - self._index))
        self._index = max(0, min(self._index, len(self._stops) - 1))
        self.scroll_lines(self.top)
        self.refresh_changed()

    @property
    def jump_here(self) -> Jump | None:
        """Return the job, the node, the view or the filter that Enter opens; None if no block has a jump."""
        return self._jump(self._stops[self._index]) if self._stops else None

    def step(self, by: int) -> None:
        if not self._stops:
            return
        self._index = max(0, min(self._index + by, len(self._stops) - 1))
        self._moved()

    def jump(self, index: int) -> None:
        self._index = 0 if index <= 0 else max(0, len(self._stops) - 1)
        self._moved()

    def _moved(self) -> None:
        self._at = self.jump_here
        line = self._stops[self._index][0] if self._stops else 0
        if not self.top <= line < self.top + self.page:
            self.scroll_lines(line - self.page // 2)
        self.refresh_changed()
        app_of(self).refresh_lines()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(self.top + 3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(self.top - 3)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the block under the mouse. With the second click, open the block."""
        line, left = self.top + event.y, 0
        if line >= len(self._lines):
            return
        for place, (_, width) in enumerate(self._lines[line]):
            if left <= event.x < left + width and (line, place) in self._stops:
                again = self._stops.index((line, place)) == self._index
                self._index = self._stops.index((line, place))
                self._moved()
                if again:
                    app_of(self).act("open")
            left += width

    def paint_line(self, index: int, width: int) -> Strip:
        paint = app_of(self).paint
        here = self._stops[self._index] if self._stops else None
        strips, left = [], width
        for place, (row, wanted) in enumerate(self._lines[index]):
            size = min(wanted, left)
            selected = here == (index, place) and self.has_focus
            pieces = row.pieces
            if selected and pieces:
                pieces = [(glyphs.CURSOR, "edge"), (pieces[0][0][1:], pieces[0][1]), *pieces[1:]]
            strips.append(paint.strip(pieces, size, "cursor" if selected else ""))
            left -= size
        if left > 0:
            strips.append(paint.strip((), left))
        return Strip.join(strips)

    def _jump(self, stop: tuple[int, int]) -> Jump | None:
        return self._lines[stop[0]][stop[1]][0].jump

    def _panel_of(self, stop: tuple[int, int]) -> tuple[int, int]:
        """Return the panel that contains the block `stop`, as (first line of the panel, number of the panel
        from the left).
        """
        line, place = stop
        places = [width for _, width in self._lines[line]]
        while line and [width for _, width in self._lines[line - 1]] == places:
            line -= 1
        return line, place
