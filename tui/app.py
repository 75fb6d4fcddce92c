"""The Textual application. It shows a view, with the header above and the status line and the footer below,
and carries out actions.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any, ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual._compositor import ChopsUpdate
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.filter import LineFilter
from textual.screen import Screen

from tui import actions
from tui.actions import BY_NAME, ScreenAction
from tui.app_interface import CliFunctions
from tui.changes.job_orders import JobOrders
from tui.changes.menus import Menus
from tui.changes.preset_menus import PresetMenus
from tui.changes.tenant_edits import TenantEdits
from tui.data.cluster_feed import Changes, ClusterFeed
from tui.data.drafts import Drafts
from tui.data.key_queue import OrderedKeysApp
from tui.data.model import ClusterModel
from tui.data.request_workers import RequestWorkers
from tui.dialogs.dialog import Dialog
from tui.look import clipboard
from tui.look.ascii import AsciiOnly
from tui.look.changed_cells import ChangedCells
from tui.look.styled_lines import Paint
from tui.look.theme import SIXTEEN, THEMES, styles
from tui.pulse.panel import Jump
from tui.views.events import EventsView
from tui.views.job_details import JobDetailsView
from tui.views.node_details import NodeDetailsView
from tui.views.nodes import NodesView
from tui.views.plan import PlanView
from tui.views.policy.calendar import CalendarView
from tui.views.policy.moves import MovesView
from tui.views.policy.quotas import QuotasView
from tui.views.policy.reservations import ReservationsView
from tui.views.policy.shares import SharesView
from tui.views.pulse import PulseView
from tui.views.queue import QueueView
from tui.views.view import View
from tui.widgets.filter_line import FilterLine
from tui.widgets.header_and_footer import FooterLine, HeaderLine, StatusLine, TrailLine
from tui.widgets.main_screen import MainScreen
from wire.api.forecasts import Easing, WhatIfAnswer
from wire.api.jobs import JobView
from wire.api.nodes import GpuView, NodeView
from wire.http.client import Client
from wire.text import printable

PACE_S = 0.05
"""The shortest time between two updates of the screen, in seconds."""
LONGEST_PACE_S = 0.25
UPDATES_SHARE = 0.05
"""The largest fraction of the time that updates of the screen take. They take more only if the pauses between
them would be longer than LONGEST_PACE_S.
"""
KEYS_REST_S = 0.1
KEYS_FIRST_S = 0.4
"""While the user types (keys come less than KEYS_REST_S seconds apart), a change waits at most KEYS_FIRST_S
seconds before the screen shows it.
"""

MESSAGE_S = 6.0
MONOSPACE = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono"


class CorralApp(OrderedKeysApp):
    """The application. It shows the state of the cluster and sends requests to the controller.

    1. A thread (module cluster_feed) collects changes of the cluster. It wakes the screen's thread, which
       then calls the method `take`.
    2. The method `take` applies the changes to the model (class ClusterModel) and updates the view. `_wait_s`
       returns the time to wait before this.
    3. After a key, the method `act` checks whether the key's action (module actions) is allowed, and calls
       the method of the action.
    4. RequestWorkers send requests in other threads and pass the answers to the screen's thread.
    """

    CSS = resources.files("tui").joinpath("theme.tcss").read_text(encoding="utf-8")
    ENABLE_COMMAND_PALETTE = False
    TITLE = "corral"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "act('quit')", show=False)]

    def __init__(
        self,
        feed: ClusterFeed,
        connect: Callable[[], Client],
        cli: CliFunctions,
        *,
        url: str = "",
        read_only: bool = False,
        look: str = "dusk",
        ascii_only: bool = False,
        first_view: str = actions.PULSE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(ansi_color=True if look == SIXTEEN.colours.name else None)
        for known in THEMES.values():
            self.register_theme(known.colours)
        self.paint = Paint(styles(THEMES[look]))
        self.theme = look
        self._ascii = AsciiOnly() if ascii_only else None
        self.feed, self.connect, self.read_only = feed, connect, read_only
        self.presets, self.drafts = {}, Drafts()
        self.save_settings = lambda: None
        self.cli, self.url = cli, url
        self.model = ClusterModel(clock)
        self.requests = RequestWorkers(connect, self.deliver)
        self.what_ifs = RequestWorkers(connect, self.deliver, threads=1)
        self.orders, self.edits = JobOrders(self), TenantEdits(self)
        self.menus, self.preset_menus = Menus(self), PresetMenus(self)
        self.queue_view = QueueView(self.model.jobs)
        self.roots: tuple[View, ...] = (
            PulseView(),
            self.queue_view,
            NodesView(self.model.nodes),
            EventsView(self.model.events),
            SharesView(self.model.shares),
            QuotasView(self.model.quotas),
            ReservationsView(self.model.reservations),
            MovesView(self.model.steps),
            PlanView(),
        )
        self.trail: list[View] = [next(root for root in self.roots if first_view == root.NAME)]
        self._header = HeaderLine()
        self._trail_line = TrailLine(self.roots, lambda: self.trail)
        self._status = StatusLine(lambda: self.view)
        self._keys = FooterLine(lambda: self.view)
        self._filter = FilterLine()
        self._taken_at = self._woken_at = 0.0
        self._update_took_s = 0.0
        self._was_stale = True

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters that Textual applies to each line of the screen. If the terminal can show only
        ASCII, the last filter translates the line to ASCII.
        """
        return [*super().get_line_filters(), *([self._ascii] if self._ascii else [])]

    def get_default_screen(self) -> Screen[Any]:
        return MainScreen(id="_default")

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        update = ChangedCells.of(renderable) if isinstance(renderable, ChopsUpdate) else renderable
        super()._display(screen, update)

    def compose(self) -> ComposeResult:
        yield self._header
        yield self._trail_line
        with Container(id="body"):
            yield from self.roots
        yield self._filter
        yield self._status
        yield self._keys

    def on_mount(self) -> None:
        """Show the first view, start receiving the state of the cluster, and start the threads that send
        requests.
        """
        self._show()
        self.requests.open()
        self.what_ifs.open()
        self.feed.start(lambda: self.deliver(self._woken))
        self.set_interval(1.0, self._tick)

    def on_unmount(self) -> None:
        """Stop receiving the state of the cluster, and stop the threads that send requests."""
        self.feed.stop()
        self.requests.close()
        self.what_ifs.close()
        for view in self.trail[1:]:
            view.close()

    # -- updates from the controller ------------------------------------------------------

    def deliver(self, function: Callable[[], None]) -> None:
        """Run a function on the screen's thread. Do not run it if the application has ended."""

        def run() -> None:
            if self.screen_stack:
                function()

        self.call_later(run)

    def _woken(self) -> None:
        """Take the changes that the feed has collected: at once, or after `_wait_s` seconds."""
        self._woken_at = time.monotonic()
        self._take_after_wait()

    def _take_after_wait(self) -> None:
        wait = self._wait_s(time.monotonic())
        if wait > 0:
            self.set_timer(wait, self._take_after_wait)
        else:
            self.take()

    def _wait_s(self, now: float) -> float:
        """Return the seconds until the next update of the screen. It is zero or less if the update is due.

        1. Updates take at most the fraction UPDATES_SHARE of the time, so that many changes per second leave
           time for keys. The pause between two updates is at least PACE_S and at most LONGEST_PACE_S.
        2. While the user presses keys, the update waits until KEYS_REST_S seconds after the last key, but at
           most KEYS_FIRST_S seconds after the first change.
        """
        pause = min(LONGEST_PACE_S, max(PACE_S, self._update_took_s / UPDATES_SHARE))
        wait = self._taken_at + pause - now
        since_key, held = now - self.key_at, now - self._woken_at
        if (self.busy or since_key < KEYS_REST_S) and held < KEYS_FIRST_S:
            wait = max(wait, min(KEYS_REST_S, KEYS_FIRST_S - held))
        return wait

    def take(self) -> None:
        """Take the changes that the feed has collected since the last call, apply them to the model, and show
        them.
        """
        if not self.screen_stack:
            return
        began = time.monotonic()
        changes = self.feed.take()
        self.model.apply(changes)
        self.view.changed(changes)
        self._model_changed()
        self._taken_at = time.monotonic()
        self._update_took_s = self._taken_at - began

    def _tick(self) -> None:
        self.model.find_alarms()
        self.view.tick()
        self._status.tick()
        if self.model.stale or self._was_stale:
            self._model_changed()

    def _model_changed(self) -> None:
        self.refresh_lines()
        if self.model.stale != self._was_stale:
            self._was_stale = self.model.stale
            self._keys.refresh()
        if isinstance(self.screen, Dialog):
            self.screen.changed()

    # -- methods of AppInterface ---------------------------------------------

    @property
    def view(self) -> View:
        return self.trail[-1]

    def show_message(self, text: str, style: str = "text") -> None:
        self._status.show_message(text, style, MESSAGE_S)

    def copy(self, text: str) -> None:
        self.copy_to_clipboard(text)
        clipboard.copy_with_tmux(text)
        self.show_message(f"copied: {text}", "good")

    def refresh_lines(self) -> None:
        for line in (self._header, self._trail_line, self._status):
            line.refresh_changed()

    def refresh_view(self) -> None:
        self.view.changed(Changes(fresh=True))
        self.refresh_lines()

    def allowed(self, action: ScreenAction) -> str:
        if not action.in_view(self.view.NAME):
            return f"not in {self.view.NAME}"
        if action.changes and self.read_only:
            return "this screen is read-only"
        if action.changes and self.model.stale:
            return "the connection is lost: no changes are possible now"
        return ""

    def act(self, name: str) -> None:
        action = BY_NAME[name]
        wrong = self.allowed(action)
        if wrong:
            self.show_message(wrong, "warn")
            return
        method = self.method_of(action)
        if method is not None:
            method()

    def method_of(self, action: ScreenAction) -> Callable[[], None] | None:
        """Return the method that carries out the action; None if the view has no such method. If the action
        has the name of a view, the method shows this view. Other methods are searched in the view, the
        application, JobOrders, TenantEdits, Menus and PresetMenus, in this order.
        """
        for root in self.roots:
            if action.name == root.NAME:
                return partial(self._go, root)
        name = f"act_{action.name}"
        for owner, method in (
            (self.view, name),
            (self, name),
            (self.orders, action.name),
            (self.edits, action.name),
            (self.menus, action.name),
            (self.preset_menus, action.name),
        ):
            found: Callable[[], None] | None = getattr(owner, method, None)
            if found is not None:
                return found
        return None

    def action_act(self, name: str) -> None:
        """Carry out the action with this name. Textual calls this method for every key binding."""
        self.act(name)

    # -- moving between views -----------------------------------------------------------

    def _show(self) -> None:
        for view in (*self.roots, *self.trail):
            view.display = view is self.view
        self.view.changed(Changes(fresh=True))
        if not self._focus_view():
            self.call_after_refresh(self._focus_view)
        self._keys.refresh()
        self.refresh_lines()

    def _focus_view(self) -> bool:
        """Move the keyboard focus to the view at once, and return True if the view has the focus. Do not use
        Textual's `Widget.focus`, because it moves the focus later, and a key that waits in the queue would go
        to another widget.
        """
        pane = self.view.pane
        if pane.is_attached and pane.is_mounted:
            pane.screen.set_focus(pane)
        return pane.screen.focused is pane if pane.is_attached else False

    def ready(self) -> bool:
        """Return True if the screen accepts the next key: a widget of the open dialog has the focus, or the
        filter line is open, or the view has the focus.
        """
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
        self._enter(JobDetailsView(job))

    def open_node(self, name: str) -> None:
        self._enter(NodeDetailsView(name))

    def open_jump(self, jump: Jump) -> None:
        if jump.kind == "job":
            self.open_job(int(jump.name))
        elif jump.kind == "node":
            self.open_node(str(jump.name))
        elif jump.kind == "filter":
            self.show_jobs(str(jump.name))
        else:
            self.act(str(jump.name))

    def cordon_gpu(self, node: NodeView, gpu: GpuView) -> None:
        self.orders.cordon_gpu(node, gpu)

    def resume(self, nodes: Sequence[NodeView], gpu: GpuView | None = None) -> None:
        self.orders.resume_nodes(nodes, gpu)

    def apply_advice(self, job: JobView, advice: Easing, command: str) -> None:
        self.orders.apply_advice(job, advice, command)

    def ask_text(self, hint: str, then: Callable[[str], None]) -> None:
        self._status.display = False
        self._filter.ask(hint, then, self._filter_closed)

    def open_calendar(self) -> None:
        self._enter(CalendarView())

    def reserve(self, typed: Mapping[str, str]) -> None:
        self.edits.new_reservation(typed)

    def show_effect(self, answer: WhatIfAnswer | None) -> None:
        if isinstance(self.view, PlanView):
            self.view.show_effect(answer)

    def compare_effect(self) -> None:
        if isinstance(self.view, PlanView):
            self.view.compare_effect()

    def try_change(self, name: str) -> None:
        action = BY_NAME[name]
        wrong = "this screen is read-only" if self.read_only else ""
        wrong = wrong or ("the connection is lost: no changes are possible now" if self.model.stale else "")
        method = self.method_of(action)
        if wrong or method is None:
            self.show_message(wrong or f"{action.title} is not possible here", "warn")
        else:
            method()

    def show_jobs(self, filter_text: str) -> None:
        self.queue_view.narrow(filter_text)
        self._go(self.queue_view)

    def act_next(self) -> None:
        self._turn(1)

    def act_previous(self) -> None:
        self._turn(-1)

    def _turn(self, by: int) -> None:
        self._go(self.roots[(self.roots.index(self.trail[0]) + by) % len(self.roots)])

    def act_back(self) -> None:
        """Undo the last step in the view, such as its filter or its marks (`View.undo`). If there is nothing
        to undo, go back to the previous view.
        """
        if self.view.undo():
            self.refresh_lines()
        elif len(self.trail) > 1:
            left = self.trail.pop()
            left.close()
            left.remove()
            self._show()

    def act_quit(self) -> None:
        """Quit the terminal UI. Jobs keep running."""
        self.exit(0)

    # -- filter line, theme and screenshots -----------------------------------------------

    def act_filter(self) -> None:
        self._status.display = False
        self._filter.open(self.view.filter_text, self.view.narrow, self._filter_closed)

    def _filter_closed(self) -> None:
        self._status.display = True
        self._focus_view()
        self.refresh_lines()

    def use_theme(self, look: str) -> None:
        self.theme = look
        self.paint = Paint(styles(THEMES[look]))
        for screen in self.screen_stack:
            for widget in screen.walk_children():
                widget.refresh()

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Return a screenshot as SVG. The SVG contains no web fonts, so that a viewer loads nothing from
        other hosts.
        """
        svg = super().export_screenshot(title=title, simplify=simplify)
        bare = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->", "", svg, flags=re.DOTALL)
        return bare.replace("Fira Code", MONOSPACE)

    # -- errors that end the application ---------------------------------

    def thread_broke(self, broken: threading.ExceptHookArgs) -> None:
        """End the application because of the exception that has ended another thread."""
        error = broken.exc_value
        if isinstance(error, Exception):
            self.deliver(lambda: self._handle_exception(error))

    def _fatal_error(self) -> None:
        """End the application, and write the traceback to a file, because the screen cannot show
        a traceback.
        """
        error = self._exception
        handle, path = tempfile.mkstemp(prefix="corral-tui-", suffix=".txt")
        with os.fdopen(handle, "w") as report:
            report.writelines(traceback.format_exception(error))
        self._exit_renderables.append(
            Text(
                f"corral tui: this is a bug: {type(error).__name__}: {printable(str(error))}\n"
                f"The cluster is not affected. Please report it with the file {path}"
            )
        )
        self._close_messages_no_wait()
