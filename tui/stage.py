"""What every part of the screen may rely on; tui.app plays it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from textual.app import App
from textual.widget import Widget

if TYPE_CHECKING:
    from tui.actions import Action
    from tui.desk import Desk
    from tui.model import Model
    from tui.paint import Paint
    from tui.views.view import View
    from wire.client import Client


class Stage(App[int]):
    """The application as views, widgets and dialogs see it."""

    model: Model
    paint: Paint
    desk: Desk
    trials: Desk
    """For what is asked while one types: it may take long, and nobody else has to wait for it."""
    connect: Callable[[], Client]
    read_only: bool

    @property
    def view(self) -> View:
        """The view that is shown."""
        raise NotImplementedError

    def act(self, name: str) -> None:
        """Do what the action of this name does, if it may be done now."""
        raise NotImplementedError

    def allowed(self, action: Action) -> str:
        """Why the action cannot be done now; empty if it can."""
        raise NotImplementedError

    def say(self, text: str, part: str = "text") -> None:
        """Tell the user something, for a few seconds, on the status line."""
        raise NotImplementedError

    def wear(self, look: str) -> None:
        """Change the colours."""
        raise NotImplementedError

    def copy(self, text: str) -> None:
        """Put the text on the clipboard."""
        raise NotImplementedError

    def refresh_lines(self) -> None:
        """Paint the lines around the view anew."""
        raise NotImplementedError

    def refresh_view(self) -> None:
        """Paint the view and the lines around it anew."""
        raise NotImplementedError

    def open_job(self, job: int) -> None:
        """Show one job."""
        raise NotImplementedError

    def open_node(self, name: str) -> None:
        """Show one node."""
        raise NotImplementedError

    def show_jobs(self, wanted: str) -> None:
        """Show the jobs that pass this filter."""
        raise NotImplementedError

    def deliver(self, function: Callable[[], None]) -> None:
        """Run a function on the screen's thread; may be called from any, and once the screen is gone."""
        raise NotImplementedError


def stage(widget: Widget) -> Stage:
    """The stage a widget stands on."""
    return cast(Stage, widget.app)
