"""The frame around the views, and who hands what to whom."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.filter import LineFilter

from tui import clipboard
from tui.actions import BY_NAME, Action
from tui.ascii import AsciiOnly
from tui.desk import Desk
from tui.dialogs.dialog import Dialog
from tui.edits import Edits
from tui.feed import Changes, Feed
from tui.menus import Menus
from tui.model import Model
from tui.orders import Orders
from tui.paint import Paint
from tui.theme import LOOKS, SIXTEEN, styles
from tui.typeahead import InOrder
from tui.views.events import Events
from tui.views.job import Job
from tui.views.node import Node
from tui.views.nodes import Nodes
from tui.views.queue import Queue
from tui.views.quotas import Quotas
from tui.views.rebalance import Rebalance
from tui.views.reservations import Reservations
from tui.views.shares import Shares
from tui.views.view import View
from tui.widgets.filterline import FilterLine
from tui.widgets.frame import Header, Keys, Status, Trail
from wire.client import Client
from wire.text import plain

PACE_S = 0.05
"""Changes are shown at most twenty times a second."""

SAID_S = 6.0
MONOSPACE = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono"
FIRST_ANSWER_S = 5.0
EXIT_USAGE, EXIT_DENIED, EXIT_UNREACHABLE = 2, 4, 7


class Corral(InOrder):
    """The application. It decides nothing about the cluster: it shows the model and passes orders on."""

    CSS = resources.files("tui").joinpath("theme.tcss").read_text(encoding="utf-8")
    ENABLE_COMMAND_PALETTE = False
    TITLE = "corral"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "act('quit')", show=False)]

    def __init__(
        self,
        feed: Feed,
        connect: Callable[[], Client],
        *,
        read_only: bool = False,
        look: str = "dusk",
        ascii_only: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(ansi_color=True if look == SIXTEEN.colours.name else None)
        for known in LOOKS.values():
            self.register_theme(known.colours)
        self.paint = Paint(styles(LOOKS[look]))
        self.theme = look
        self._ascii = AsciiOnly() if ascii_only else None
        self.feed, self.connect, self.read_only = feed, connect, read_only
        self.model = Model(clock)
        self.desk = Desk(connect, self.deliver)
        self.trials = Desk(connect, self.deliver, threads=1)
        self.orders, self.edits = Orders(self), Edits(self)
        self.menus = Menus(self)
        self.roots: tuple[View, ...] = (
            Queue(self.model.jobs),
            Nodes(self.model.nodes),
            Events(self.model.events),
            Shares(self.model.shares),
            Quotas(self.model.quotas),
            Reservations(self.model.reservations),
            Rebalance(self.model.steps),
        )
        self.trail: list[View] = [self.roots[0]]
        self._header = Header()
        self._trail_line = Trail(self.roots, lambda: self.trail)
        self._status = Status(lambda: self.view)
        self._keys = Keys(lambda: self.view)
        self._filter = FilterLine()
        self._taken_at = 0.0
        self._was_stale = True

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and ASCII last."""
        return [*super().get_line_filters(), *([self._ascii] if self._ascii else [])]

    def compose(self) -> ComposeResult:
        """Header, trail, view, status, keys."""
        yield self._header
        yield self._trail_line
        with Container(id="body"):
            yield from self.roots
        yield self._filter
        yield self._status
        yield self._keys

    def on_mount(self) -> None:
        """Begin to listen."""
        self._show()
        self.desk.open()
        self.trials.open()
        self.feed.start(lambda: self.deliver(self._woken))
        self.set_interval(1.0, self._tick)

    def on_unmount(self) -> None:
        """Nothing is asked any more."""
        self.feed.stop()
        self.desk.close()
        self.trials.close()
        for view in self.trail[1:]:
            view.close()

    # -- the feed -----------------------------------------------------------------------

    def deliver(self, function: Callable[[], None]) -> None:
        """Run a function on the screen's thread; what comes too late is dropped."""

        def run() -> None:
            if self.screen_stack:
                function()

        self.call_later(run)

    def _woken(self) -> None:
        wait = PACE_S - (time.monotonic() - self._taken_at)
        if wait <= 0:
            self.take()
        else:
            self.set_timer(wait, self.take)

    def take(self) -> None:
        """Show what has gathered."""
        if not self.screen_stack:
            return
        self._taken_at = time.monotonic()
        changes = self.feed.take()
        self.model.apply(changes)
        self.view.changed(changes)
        self._said_changed()

    def _tick(self) -> None:
        self.view.tick()
        self._status.tick()
        if self.model.stale or self._was_stale:
            self._said_changed()

    def _said_changed(self) -> None:
        self.refresh_lines()
        if self.model.stale != self._was_stale:
            self._was_stale = self.model.stale
            self._keys.refresh()
        if isinstance(self.screen, Dialog):
            self.screen.changed()

    # -- what others may rely on --------------------------------------------------------

    @property
    def view(self) -> View:
        """The view that is shown."""
        return self.trail[-1]

    def say(self, text: str, part: str = "text") -> None:
        """On the status line, for a few seconds."""
        self._status.say(text, part, SAID_S)

    def copy(self, text: str) -> None:
        """To the clipboard of whoever sits at the terminal."""
        self.copy_to_clipboard(text)
        clipboard.tell_tmux(text)
        self.say(f"copied: {text}", "good")

    def refresh_lines(self) -> None:
        """Paint the lines around the view anew."""
        for line in (self._header, self._trail_line, self._status):
            line.refresh_changed()

    def refresh_view(self) -> None:
        """Paint the view and the lines around it anew."""
        self.view.changed(Changes(fresh=True))
        self.refresh_lines()

    def allowed(self, action: Action) -> str:
        """Why it cannot be done now."""
        if not action.in_view(self.view.NAME):
            return f"not in {self.view.NAME}"
        if action.changes and self.read_only:
            return "this screen is read-only"
        if action.changes and self.model.stale:
            return "the connection is lost: changes have to wait"
        return ""

    def act(self, name: str) -> None:
        """Do it, or say why not."""
        action = BY_NAME[name]
        wrong = self.allowed(action)
        if wrong:
            self.say(wrong, "warn")
            return
        duty = self.duty(action)
        if duty is not None:
            duty()

    def duty(self, action: Action) -> Callable[[], None] | None:
        """Who does it: the view if it can, the frame, whoever carries out changes, the menus."""
        for root in self.roots:
            if action.name == root.NAME:
                return partial(self._go, root)
        name = f"act_{action.name}"
        for who, what in (
            (self.view, name),
            (self, name),
            (self.orders, action.name),
            (self.edits, action.name),
            (self.menus, action.name),
        ):
            duty: Callable[[], None] | None = getattr(who, what, None)
            if duty is not None:
                return duty
        return None

    def action_act(self, name: str) -> None:
        """Keys come in here."""
        self.act(name)

    # -- where we are -------------------------------------------------------------------

    def _show(self) -> None:
        for view in (*self.roots, *self.trail):
            view.display = view is self.view
        self.view.changed(Changes(fresh=True))
        if not self._focus_view():
            self.call_after_refresh(self._focus_view)
        self._keys.refresh()
        self.refresh_lines()

    def _focus_view(self) -> bool:
        """At once, not when Textual comes round to it: the next key may already be there."""
        pane = self.view.pane
        if pane.is_attached and pane.is_mounted:
            pane.screen.set_focus(pane)
        return pane.screen.focused is pane if pane.is_attached else False

    def ready(self) -> bool:
        """A dialog is once it has a focus, a view once it is there."""
        if isinstance(self.screen, Dialog):
            return self.screen.focused is not None
        return self._filter.display or self._focus_view()

    def _go(self, root: View) -> None:
        self._filter.display = False
        for view in self.trail[1:]:
            view.close()
            view.remove()
        self.trail = [root]
        self._show()

    def _enter(self, view: View) -> None:
        self.trail.append(view)
        self.query_one("#body").mount(view)
        self.call_after_refresh(self._show)

    def open_job(self, job: int) -> None:
        """Show one job."""
        self._enter(Job(job))

    def open_node(self, name: str) -> None:
        """Show one node."""
        self._enter(Node(name))

    def show_jobs(self, wanted: str) -> None:
        """All jobs that pass this filter."""
        self.roots[0].narrow(wanted)
        self._go(self.roots[0])

    def act_next(self) -> None:
        """The next root."""
        self._turn(1)

    def act_previous(self) -> None:
        """The root before."""
        self._turn(-1)

    def _turn(self, by: int) -> None:
        self._go(self.roots[(self.roots.index(self.trail[0]) + by) % len(self.roots)])

    def act_back(self) -> None:
        """One step back: filter, marks, view."""
        if self.view.undo():
            self.refresh_lines()
        elif len(self.trail) > 1:
            left = self.trail.pop()
            left.close()
            left.remove()
            self._show()

    def act_quit(self) -> None:
        """Leave."""
        self.exit(0)

    # -- over the view ------------------------------------------------------------------

    def act_filter(self) -> None:
        """Type a filter."""
        view = self.view

        def done() -> None:
            self._status.display = True
            self._focus_view()
            self.refresh_lines()

        self._status.display = False
        self._filter.open(view.filter_text, view.narrow, done)

    def wear(self, look: str) -> None:
        """Other colours, at once."""
        self.theme = look
        self.paint = Paint(styles(LOOKS[look]))
        for screen in self.screen_stack:
            for widget in screen.walk_children():
                widget.refresh()

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """An SVG that fetches nothing from elsewhere: no web fonts, the reader's own monospace."""
        svg = super().export_screenshot(title=title, simplify=simplify)
        bare = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->", "", svg, flags=re.DOTALL)
        return bare.replace("Fira Code", MONOSPACE)

    # -- when something breaks ----------------------------------------------------------

    def thread_broke(self, broken: threading.ExceptHookArgs) -> None:
        """A bug in a thread is a bug."""
        error = broken.exc_value
        if isinstance(error, Exception):
            self.deliver(lambda: self._handle_exception(error))

    def _fatal_error(self) -> None:
        """A bug ends the screen, not in a traceback over it: that goes to a file, for whoever mends it."""
        error = self._exception
        handle, path = tempfile.mkstemp(prefix="corral-tui-", suffix=".txt")
        with os.fdopen(handle, "w") as report:
            report.writelines(traceback.format_exception(error))
        self._exit_renderables.append(
            Text(
                f"corral tui: this is a bug: {type(error).__name__}: {plain(str(error))}\n"
                f"The cluster goes on. Please report it with {path}"
            )
        )
        self._close_messages_no_wait()
