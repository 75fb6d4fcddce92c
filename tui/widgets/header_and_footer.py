"""The lines above and below every view: header, names of the views, status line and footer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tui.actions import footer_of, keys_of, shown_key
from tui.app_interface import app_of
from tui.look import glyphs
from tui.look.styled_lines import Piece, bar, both_ends, length
from tui.views.view import View
from tui.widgets.line import FrameLine
from wire.job.spec import gpus_text
from wire.names import JobState, NodeState
from wire.text import duration, printable


class HeaderLine(FrameLine):
    """The first line of the screen. It shows the state of the whole cluster."""

    def pieces(self, width: int) -> Sequence[Piece]:
        """Return the cluster's name, its GPUs in use, the numbers of jobs, the number of alarms, and the
        state of the connection.
        """
        model = app_of(self).model
        left: list[Piece] = [
            (" corral ", "brand"),
            (printable(model.name, 24), "strong"),
            ("   " if width >= 100 else "  ", "text"),
        ]
        used, total = round(model.gpus_used, 2), model.gpus
        length_of_bar = 24 if width >= 120 else 14 if width >= 76 else 8
        left += bar(used / total if total else 0, length_of_bar)
        left += [(f" {gpus_text(used)}/{total}", "strong"), (" GPUs" if width >= 70 else "", "muted")]
        alarms, right = self._alarms(), [*self.connection(), (" ", "text")]
        end = width - length(right)
        jobs = self._jobs(width, words=width >= 76)
        if length([*left, *jobs, *alarms]) > end:
            jobs = self._jobs(width, words=False)
        left += jobs
        self.targets = [(end - length(alarms), end, "alarms")] if alarms else []
        return both_ends(left, [*alarms, *right], width)

    def _alarms(self) -> list[Piece]:
        """Return the number of alarms; an empty list if there is no alarm."""
        alarms = app_of(self).model.alarms
        if not alarms:
            return []
        return [(f" {glyphs.ALARM[alarms[0].style]} {len(alarms)}", alarms[0].style), ("  ", "text")]

    def _jobs(self, width: int, *, words: bool) -> list[Piece]:
        """Return the numbers of jobs in the states that fit into the line, with the names of the states if
        `words` is true.
        """
        model = app_of(self).model
        shown = [(JobState.RUNNING, 0), (JobState.QUEUED, 0), (JobState.SCHEDULED, 110)]
        shown += [(JobState.FAILED, 130), (JobState.COMPLETED, 150)]
        pieces: list[Piece] = []
        for state, needed in shown:
            if width >= needed and (not needed or model.counts[state]):
                part = state.value.lower()
                word = f" {part}" if words else ""
                pieces += [
                    ("   " if width >= 100 else "  ", "text"),
                    (f"{glyphs.JOB[state]} {model.counts[state]:,}", part),
                    (word, "muted"),
                ]
        if width >= 170:
            up = sum(node.state is NodeState.UP for node in model.nodes.rows.values())
            sign = glyphs.NODE[NodeState.UP]
            pieces += [("   ", "text"), (f"{sign} {up}/{len(model.nodes.rows)}", "up"), (" nodes", "muted")]
        return pieces

    def connection(self) -> list[Piece]:
        """Return the state of the connection: `loading`, `live`, or `stale` with the time since the last
        message.
        """
        model = app_of(self).model
        if model.connection.state == "loading":
            return [(f"{glyphs.STALE} loading", "warn")]
        if not model.stale:
            return [(f"{glyphs.LIVE} live", "good")]
        return [(f"{glyphs.STALE} stale {duration(model.silent_s())}", "bad")]


class TrailLine(FrameLine):
    """The line with the names of all views. The current view is emphasised. At the right end is the note of
    this view, such as its filter and its sort order.
    """

    def __init__(self, roots: Sequence[View], trail: Callable[[], Sequence[View]]) -> None:
        super().__init__()
        self._roots, self._trail = roots, trail

    def pieces(self, width: int) -> Sequence[Piece]:
        """Return the numbers and names of the views, such as "1 Queue › job 17 2 Nodes 3 Events", and the
        note of the view. If the line is too narrow, the last views have only their numbers.
        """
        view = self._trail()[-1]
        gap = "   " if width >= 120 else "  "
        note = view.note()
        if length(note) > width // 2:
            note = view.note(brief=True)
        for named in range(len(self._roots), -1, -1):
            left = self._left(named, gap)
            if length(left) + length(note) <= width:
                break
        return both_ends(left, note, width)

    def _left(self, named: int, gap: str) -> list[Piece]:
        """Return the left part of the line. Views with numbers up to `named` are shown with number and name,
        and the other views only with their number. The current view is always shown with its name.
        """
        trail = self._trail()
        left: list[Piece] = [(" ", "text")]
        targets = []
        for number, root in enumerate(self._roots):
            here = root is trail[0]
            begin = length(left)
            left.append((f"{number}", "key" if here else "faint"))
            if here or number <= named:
                part = "tab" if here and len(trail) == 1 else "text" if here else "muted"
                left.append((f" {root.title()}", part))
            targets.append((begin, length(left), root.NAME))
            if here:
                for view in trail[1:]:
                    left += [(" › ", "faint"), (view.title(), "tab" if view is trail[-1] else "text")]
            left.append((gap if here or number <= named else " ", "text"))
        self.targets = targets
        return left


class StatusLine(FrameLine):
    """Shows the last message for some seconds. Without a message, the line shows a connection error, or else
    the status text of the view.
    """

    def __init__(self, view: Callable[[], View]) -> None:
        super().__init__()
        self._view = view
        self._shown_text: Piece | None = None
        self._until = 0.0

    def show_message(self, text: str, style: str, seconds: float) -> None:
        """Show a message for `seconds` seconds. `style` is a style name such as "good", "warn" or "bad"."""
        self._shown_text, self._until = (printable(text, 1000), style), time.monotonic() + seconds
        self.refresh()

    def tick(self) -> None:
        """Remove the message if its time is over. Called once a second."""
        if self._shown_text is not None and time.monotonic() > self._until:
            self._shown_text = None
            self.refresh()

    def pieces(self, _width: int) -> Sequence[Piece]:
        connection = app_of(self).model.connection
        if self._shown_text:
            return [(" ", "text"), self._shown_text]
        if connection.state == "lost":
            return [(" no connection: ", "bad"), (f"{printable(connection.note)}; trying again", "warn")]
        return [(" ", "text"), *self._view().status()]


class FooterLine(FrameLine):
    """The last line of the screen: the most important keys of the view."""

    def __init__(self, view: Callable[[], View]) -> None:
        super().__init__()
        self._view = view

    def pieces(self, width: int) -> Sequence[Piece]:
        """Return as many keys of the view as fit into the line. The keys for the menu, the help and quit are
        always shown.
        """
        app = app_of(self)
        view = self._view().NAME
        actions = footer_of(view, app.read_only)
        right: list[Piece] = [("read-only ", "warn")] if app.read_only else []
        shown = [
            [
                (shown_key(keys_of(action, view)[0]), "faint" if app.allowed(action) else "key"),
                (f" {action.title}", "faint" if app.allowed(action) else "muted"),
            ]
            for action in actions
        ]
        pieces: list[Piece] = [(" ", "text")]
        targets = []
        for number in _fitting(shown, width - length(right) - 1):
            begin = length(pieces)
            pieces += [*shown[number], ("  ", "text")]
            targets.append((begin, begin + length(shown[number]), actions[number].name))
        self.targets = targets
        return both_ends(pieces, right, width)


def _fitting(items: list[list[Piece]], width: int) -> list[int]:
    """Return the indices in `items` of the first keys that fit into the line. The last three keys (menu, help
    and quit) are always included.
    """
    last = max(0, len(items) - 3)
    room = width - sum(length(item) + 2 for item in items[last:])
    fitting: list[int] = []
    for number, item in enumerate(items[:last]):
        if (room := room - length(item) - 2) < 0:
            break
        fitting.append(number)
    return [*fitting, *range(last, len(items))]
