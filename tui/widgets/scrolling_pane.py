"""A scrolling widget for any number of lines. It paints only the visible lines."""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.app_interface import app_of

WHEEL = 3


class Pane(Widget, can_focus=True):
    """A scrolling widget that paints its own lines. The cost of painting depends only on the number of
    visible lines, not on the number of all lines.
    """

    ALLOW_SELECT = False
    HEAD = 0
    """The number of lines at the top that do not scroll."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.top = 0
        self._painted: dict[int, Strip] = {}
        self._under = Style.null()

    # -- methods that each subclass defines ---------------------------------------------------

    @property
    def total(self) -> int:
        raise NotImplementedError

    def paint_line(self, index: int, width: int) -> Strip:
        raise NotImplementedError

    def paint_head(self, y: int, width: int) -> Strip:
        """Return line `y` of the head: the lines at the top that do not scroll, such as column titles."""
        raise NotImplementedError

    # -- scrolling ----------------------------------------------------------------------

    @property
    def page(self) -> int:
        """Return the number of lines that are visible at a time."""
        return max(1, self.size.height - self.HEAD)

    @property
    def at_end(self) -> bool:
        return self.top >= self.total - self.page

    def scroll_lines(self, top: int) -> None:
        """Make `top` the first visible line. If fewer lines than the screen has would follow, show the last
        lines instead.
        """
        top = max(0, min(top, self.total - self.page))
        if top != self.top:
            self.top = top
            self.refresh()

    def refresh_line(self, index: int) -> None:
        y = index - self.top + self.HEAD
        if self.HEAD <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def step(self, by: int) -> None:
        self.scroll_lines(self.top + by)

    def jump(self, index: int) -> None:
        self.scroll_lines(index)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.step(WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.step(-WHEEL)

    def on_resize(self) -> None:
        """Scroll back if there is empty space below the last line, until the last line is at the bottom."""
        self.scroll_lines(self.top)

    # -- painting the lines -------------------------------------------------------------

    def refresh_changed(self, lines: Iterable[int] | None = None) -> None:
        """Repaint only the changed part of each line, such as a run time, so that few bytes are sent to the
        terminal over a slow connection. Compare only the lines `lines`, or all lines if it is None.
        """
        changed = []
        for y in range(self.size.height) if lines is None else lines:
            line, painted = self._window_line(y), self._painted.get(y)
            if line != painted:
                left, width = _changed_part(painted, line, self.size.width)
                changed.append(Region(left, y, width, 1))
        if changed:
            self.refresh(*changed)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the visible lines as Textual needs them. Read the background style once, because all lines
        have the same background.
        """
        self._under = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        strip = self._painted[y] = self._window_line(y)
        return strip.apply_style(self._under)

    def _window_line(self, y: int) -> Strip:
        width = self.size.width
        index = self.top + y - self.HEAD
        if y < self.HEAD:
            return self.paint_head(y, width)
        scrolls = self.total > self.page
        inner = width - 1 if scrolls else width
        strip = self.paint_line(index, inner) if index < self.total else Strip.blank(inner)
        return Strip([*strip, self._bar(y - self.HEAD)], width) if scrolls else strip

    def _thumb(self) -> range:
        """Return the numbers of the screen lines on which the scroll bar shows its thumb, which marks the
        visible part of all lines. Lines are counted from the end of the head.
        """
        size = max(1, self.page * self.page // self.total)
        start = (self.page - size) * self.top // max(1, self.total - self.page)
        return range(start, start + size)

    def _bar(self, y: int) -> Segment:
        thumb = y in self._thumb()
        return Segment("▐" if thumb else " ", app_of(self).paint.style("muted" if thumb else "text"))


def _changed_part(before: Strip | None, after: Strip, width: int) -> tuple[int, int]:
    """Return the first cell and the number of cells of the part in which two lines differ. The part begins
    after the segments that are equal at the beginning of both lines, and ends before the segments that are
    equal at their ends.
    """
    old, new = list(before or ()), list(after)
    left = right = 0
    while old and new and old[0] == new[0]:
        left += new[0].cell_length
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        right += new[-1].cell_length
        del old[-1], new[-1]
    return left, max(1, width - left - right)
