"""The interface of the application for views, widgets and dialogs; CorralApp implements it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from textual.app import App
from textual.widget import Widget

if TYPE_CHECKING:
    from tui.actions import ScreenAction
    from tui.data.model import ClusterModel
    from tui.data.request_workers import RequestWorkers
    from tui.look.paint import Paint
    from tui.views.view import View
    from wire.api.forecasts import Easing
    from wire.http.client import Client
    from wire.job.spec import JobSpec


@dataclass(frozen=True)
class CliFunctions:
    """Functions of the command line that the terminal UI uses."""

    command_of: Callable[[Easing, str], str]
    """Returns the shell command for a suggested change of a job."""
    inherit: Callable[[JobSpec], JobSpec]
    """Adds to a new job the settings that `corral submit` takes from the shell, such as its environment
    variables.
    """


class AppInterface(App[int]):
    """The methods of the application that views, widgets and dialogs may call."""

    model: ClusterModel
    paint: Paint
    requests: RequestWorkers
    what_ifs: RequestWorkers
    """Separate workers for what-if requests, because these take long and must not delay other requests."""
    connect: Callable[[], Client]
    cli: CliFunctions
    read_only: bool

    @property
    def view(self) -> View:
        """The current view."""
        raise NotImplementedError

    def act(self, name: str) -> None:
        """Do the action of this name, if it is allowed now."""
        raise NotImplementedError

    def allowed(self, action: ScreenAction) -> str:
        """The reason why the action cannot be done now; empty if it can be done."""
        raise NotImplementedError

    def say(self, text: str, part: str = "text") -> None:
        """Show a message on the status line for a few seconds."""
        raise NotImplementedError

    def wear(self, look: str) -> None:
        """Change the theme."""
        raise NotImplementedError

    def copy(self, text: str) -> None:
        """Copy the text to the clipboard."""
        raise NotImplementedError

    def refresh_lines(self) -> None:
        """Repaint the header, the trail, the status line and the footer."""
        raise NotImplementedError

    def refresh_view(self) -> None:
        """Repaint the view, the header, the trail, the status line and the footer."""
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
        """Run a function on the screen's thread. Any thread may call this method, also after the screen is
        closed.
        """
        raise NotImplementedError


def app_of(widget: Widget) -> AppInterface:
    """The application to which a widget belongs."""
    return cast(AppInterface, widget.app)
