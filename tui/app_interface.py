"""The methods of the application that views, widgets and dialogs may call. CorralApp implements them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from textual.app import App
from textual.widget import Widget

if TYPE_CHECKING:
    from tui.actions import ScreenAction
    from tui.data.drafts import Drafts
    from tui.data.model import ClusterModel
    from tui.data.presets import Preset
    from tui.data.request_workers import RequestWorkers
    from tui.look.styled_lines import Paint
    from tui.pulse.panel import Jump
    from tui.views.view import View
    from wire.api.forecasts import Easing, WhatIfAnswer
    from wire.api.jobs import JobView
    from wire.api.nodes import GpuView, NodeView
    from wire.http.client import Client
    from wire.job.spec import JobSpec


@dataclass(frozen=True)
class CliFunctions:
    """Functions of the command line (package cli) that the terminal UI uses."""

    command_of: Callable[[Easing, str], str]
    """A function that returns the shell command for a suggested change of a job."""
    inherit: Callable[[JobSpec], JobSpec]
    """A function that returns the job with the settings that `corral submit` takes from the shell, such as
    the umask.
    """


class AppInterface(App[int]):
    """The methods and attributes of the application that views, widgets and dialogs may use."""

    model: ClusterModel
    paint: Paint
    requests: RequestWorkers
    what_ifs: RequestWorkers
    """Threads that send only what-if requests, because what-if requests take long and would delay other
    requests.
    """
    key_at: float
    """The time of the last key, on the clock `time.monotonic`."""
    connect: Callable[[], Client]
    cli: CliFunctions
    presets: dict[str, Preset]
    """The saved presets by name."""
    drafts: Drafts
    save_settings: Callable[[], None]
    """Writes the settings file now, so that a new preset is kept also if the terminal UI is killed."""
    read_only: bool
    url: str
    """The address of the controller."""

    @property
    def view(self) -> View:
        raise NotImplementedError

    def act(self, name: str) -> None:
        """Carry out the action with this name. If the action is not allowed now, show the reason."""
        raise NotImplementedError

    def allowed(self, action: ScreenAction) -> str:
        """Return the reason why the action is not allowed now; empty if the action is allowed."""
        raise NotImplementedError

    def show_message(self, text: str, style: str = "text") -> None:
        """Show a message on the status line for a few seconds. `style` is a style name such as "good", "warn"
        or "bad".
        """
        raise NotImplementedError

    def use_theme(self, look: str) -> None:
        raise NotImplementedError

    def copy(self, text: str) -> None:
        raise NotImplementedError

    def refresh_lines(self) -> None:
        """Repaint the header, the line with the names of the views, and the status line, if their texts have
        changed.
        """
        raise NotImplementedError

    def refresh_view(self) -> None:
        raise NotImplementedError

    def open_job(self, job: int) -> None:
        raise NotImplementedError

    def open_node(self, name: str) -> None:
        raise NotImplementedError

    def open_jump(self, jump: Jump) -> None:
        """Open the target of a jump: a job, a node, a view, or the queue with a filter."""
        raise NotImplementedError

    def cordon_gpu(self, node: NodeView, gpu: GpuView) -> None:
        """Ask the user to confirm, and cordon a GPU."""
        raise NotImplementedError

    def resume(self, nodes: Sequence[NodeView], gpu: GpuView | None = None) -> None:
        """Resume drained nodes, or a cordoned GPU of the first node."""
        raise NotImplementedError

    def apply_advice(self, job: JobView, advice: Easing, command: str) -> None:
        """Ask the user to confirm a change that would start a waiting job now, and then make the change.
        `command` is the shell command that makes the same change.
        """
        raise NotImplementedError

    def ask_text(self, hint: str, then: Callable[[str], None]) -> None:
        """Let the user type a line of text below the view. When the user presses Enter, call `then` with the
        text. When the user presses Escape, do not call `then`.
        """
        raise NotImplementedError

    def open_calendar(self) -> None:
        raise NotImplementedError

    def reserve(self, typed: Mapping[str, str]) -> None:
        """Open the form of a new reservation. `typed` has the initial texts of some fields of the form, by
        field name.
        """
        raise NotImplementedError

    def show_effect(self, answer: WhatIfAnswer | None) -> None:
        """If the plan is shown, draw the effect of a proposed change into the plan. If `answer` is None, draw
        the plan without a change.
        """
        raise NotImplementedError

    def compare_effect(self) -> None:
        """If the plan shows the effect of a proposed change, switch between the plan with the change and the
        plan without it.
        """
        raise NotImplementedError

    def try_change(self, name: str) -> None:
        """Open the dialog of the action with this name, also if the current view has no key for the action.
        If the action is not allowed now, show the reason.
        """
        raise NotImplementedError

    def show_jobs(self, filter_text: str) -> None:
        raise NotImplementedError

    def deliver(self, function: Callable[[], None]) -> None:
        """Run a function on the screen's thread. Every thread may call this method. The function is not run
        if the application has ended.
        """
        raise NotImplementedError


def app_of(widget: Widget) -> AppInterface:
    return cast(AppInterface, widget.app)
