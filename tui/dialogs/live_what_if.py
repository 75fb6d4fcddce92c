"""Shows the effect of a form or dialog on other jobs, and updates the effect while the user types."""

from __future__ import annotations

from typing import Final

from textual.timer import Timer

from tui.app_interface import app_of
from tui.data.request_workers import Failure, failure_text
from tui.data.what_if_lines import what_if_lines
from tui.widgets.facts import Facts
from wire.api.forecasts import WhatIf, WhatIfAnswer
from wire.http.client import Unreachable
from wire.text import printable

REST_S: Final = 0.3
"""A what-if request is sent only after this many seconds without a key, because for each request the
controller simulates the queue on a copy of the engine.
"""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 8.0
"""If the controller could not answer, the request is sent again after FIRST_PAUSE_S seconds. Each further
pause is twice as long as the pause before it, but at most LONGEST_PAUSE_S.
"""


class LiveWhatIf(Facts):
    """Shows the answer to a what-if request.

    1. Only one request is sent at a time. If the user changes the form before the answer arrives, the next
       request is sent after the answer.
    2. The first request is for the near future. If its answer is not complete, a second request is sent.
    3. If the controller is busy or not reachable, the same request is sent again after a pause, until the
       answer arrives, the user changes the form or the dialog closes. An answer to the first request stays on
       the screen meanwhile.
    """

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._height = lines
        self._request: WhatIf | None = None
        self._answered_request: WhatIf | None = None
        self.shown_id = ""
        """The id of the shown answer; empty if no answer is shown. It is sent with the change, and the
        controller refuses the change if its effect is then no longer the shown one.
        """
        self._asking = False
        self._rest: Timer | None = None
        self._pause_s = FIRST_PAUSE_S

    def on_mount(self) -> None:
        """Show empty lines until the first answer arrives, so that the dialog does not change its size."""
        self.styles.height = self._height

    def on_unmount(self) -> None:
        """Remove the effect of the change from the chart of the plan."""
        app_of(self).show_effect(None)

    def try_out(self, request: WhatIf | None) -> None:
        """Send this what-if request after REST_S seconds. Another call within this time replaces the request.
        If the request is None, remove the answer from the screen.
        """
        if request == self._request or not self.is_attached:
            return
        self._request, self._answered_request, self.shown_id = request, None, ""
        self._show_text("computing which jobs would start sooner or later…" if request else "")
        if request is None:
            app_of(self).show_effect(None)
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(REST_S, self._ask)
        self._pause_s = FIRST_PAUSE_S

    def try_again(self) -> None:
        """Send the what-if request again, because the effect has changed."""
        request, self._request = self._request, None
        self.try_out(request)

    def _ask(self) -> None:
        request = self._request
        if request is None or self._asking or request == self._answered_request:
            return
        self._asking = True
        self._put(request, only_first=True)

    def _put(self, request: WhatIf, *, only_first: bool) -> None:
        # Check `is_attached`, because the user may have closed the dialog while the request waited for a free
        # thread.
        app_of(self).what_ifs.ask(
            lambda client: client.what_if(request, only_first=only_first) if self.is_attached else None,
            lambda answer: self._answered(request, answer, only_first=only_first),
        )

    def _answered(self, request: WhatIf, answer: WhatIfAnswer | Failure | None, *, only_first: bool) -> None:
        """Show an answer. If it answers a request for only the near future (`only_first`) and is not
        complete, also request the complete answer, which takes the controller longer.
        """
        if answer is None or not self.is_attached:
            return
        self._answered_request = request
        refine = (
            only_first
            and request == self._request
            and isinstance(answer, WhatIfAnswer)
            and not answer.complete
        )
        self._asking = refine
        if request != self._request:
            self._ask()
        elif isinstance(answer, WhatIfAnswer):
            self.shown_id = answer.id
            self.lines = what_if_lines(answer, self._height)
            self.refresh()
            app_of(self).show_effect(answer)
            self._pause_s = FIRST_PAUSE_S
            if refine:
                self._put(request, only_first=False)
        elif _is_temporary(answer):
            if not self.shown_id:
                self._show_text(f"not known yet: {printable(failure_text(answer), 300)}")
            self._ask_again(request, only_first=only_first)
        else:
            self._show_text(f"the effect is unknown: {printable(failure_text(answer), 300)}")

    def _ask_again(self, request: WhatIf, *, only_first: bool) -> None:
        """Send the request again after a pause, unless the user has changed the form by then."""

        def send() -> None:
            if request == self._request and not self._asking:
                self._asking = True
                self._put(request, only_first=only_first)

        self.set_timer(self._pause_s, send)
        self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)

    def _show_text(self, text: str) -> None:
        self.lines = [[(text, "faint")]]
        self.refresh()


def _is_temporary(failure: Failure) -> bool:
    """Return True if the same request may be answered later: the controller was busy or not reachable."""
    return isinstance(failure, Unreachable) or failure.problem.code == "busy"
