"""The first view: history of the cluster's figures, all GPUs, alarms, and the jobs that start next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.request_workers import Failure
from tui.look.styled_lines import Piece
from tui.pulse.figures import GraphTime
from tui.pulse.history import RANGES_S
from tui.pulse.layout import PulseData, arrange
from tui.pulse.pane import PulsePane
from tui.views.view import View, bindings
from wire.api.forecasts import Plan
from wire.api.policy.shares import ShareList
from wire.text import duration

PLAN_EVERY_S: Final = 20
SHARES_EVERY_S: Final = 15
PLAN_HORIZON_S: Final = 21_600.0
PLAN_WITHIN_S: Final = 0.5
"""The time limit, in seconds, of a request for the plan. It can be short, because the panel shows only the
first starts of the plan.
"""


class PulseView(View):
    """Shows the state of the whole cluster on one screen. Each panel opens the view that shows more."""

    NAME = actions.PULSE
    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.PULSE)

    def __init__(self) -> None:
        super().__init__()
        self._pane = PulsePane()
        self._data = PulseData()
        self._range: int | None = None
        """The index in RANGES_S of the length of time that the user has chosen. None if the user has chosen
        no length: the graphs then show an hour, or ten minutes if no sample is older than ten minutes.
        """
        self._ticks = 0

    def compose(self) -> ComposeResult:
        yield self._pane

    @property
    def pane(self) -> PulsePane:
        return self._pane

    def note(self, *, brief: bool = False) -> Sequence[Piece]:
        """Return the length of time that the graphs show."""
        span = duration(RANGES_S[self._shown_range])
        return [("" if brief else "last ", "muted"), (f"{span} ", "text")]

    def status(self) -> Sequence[Piece]:
        """Return the name of the object that Enter opens, as text for the status line."""
        jump = self._pane.jump_here
        if jump is None:
            return ()
        words = {"job": "job", "node": "node", "view": "the view", "filter": "the jobs with"}
        return [("⏎ ", "key"), (f"opens {words[jump.kind]} {jump.name}", "muted")]

    def changed(self, changes: Changes) -> None:
        """Draw the panels again. If `changes` contains the whole state of the cluster, also request the plan
        and the shares.
        """
        if changes.fresh:
            self._ask_plan()
            self._ask_shares()
        self._draw()

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % PLAN_EVERY_S == 0:
            self._ask_plan()
        if self._ticks % SHARES_EVERY_S == 0:
            self._ask_shares()
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if not self.display or not self.is_mounted:
            return
        model = app_of(self).model
        times = GraphTime(model.now(), RANGES_S[self._shown_range])
        width, height = self.size
        if width and height:
            lines = arrange(model, self._data, times, width, height)
            if len(lines) > height:
                # Leave one cell of each line for the scroll bar.
                lines = arrange(model, self._data, times, width - 1, height)
            self._pane.show(lines)

    def _ask_plan(self) -> None:
        app = app_of(self)
        if app.model.connection.state != "lost":
            app.requests.ask(
                lambda client: client.plan(PLAN_HORIZON_S, within_s=PLAN_WITHIN_S), self._take_plan
            )

    def _take_plan(self, answer: Plan | Failure) -> None:
        if isinstance(answer, Plan):
            self._data.plan = answer
            self._draw()

    def _ask_shares(self) -> None:
        app = app_of(self)
        if app.model.connection.state != "lost":
            app.requests.ask(lambda client: client.shares(), self._take_shares)

    def _take_shares(self, answer: ShareList | Failure) -> None:
        if isinstance(answer, ShareList):
            self._data.shares = answer.shares
            self._draw()

    def act_open(self) -> None:
        """Open the job, the node, the view or the filter that the row under the cursor names."""
        jump = self._pane.jump_here
        if jump is not None:
            app_of(self).open_jump(jump)

    def act_longer(self) -> None:
        """Show a longer time in the graphs."""
        self._set_range(self._shown_range + 1)

    def act_shorter(self) -> None:
        """Show a shorter time in the graphs."""
        self._set_range(self._shown_range - 1)

    @property
    def _shown_range(self) -> int:
        if self._range is not None:
            return self._range
        minutes = app_of(self).model.history.minutes
        return 0 if not minutes or minutes[-1].at - minutes[0].at < RANGES_S[0] else 1

    def _set_range(self, number: int) -> None:
        self._range = max(0, min(len(RANGES_S) - 1, number))
        self._draw()
        app_of(self).refresh_lines()
