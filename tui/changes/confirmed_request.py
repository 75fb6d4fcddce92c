"""Asks the user to confirm a change, sends the request, and asks again if the effect has changed."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from tui.app_interface import AppInterface
from tui.changes.confirmations import Confirmation
from tui.data.request_workers import Failure, effect_changed, failure_text
from tui.dialogs.confirm import ConfirmDialog, Confirmed
from wire.http.client import Client, Refused
from wire.text import printable

Answer = TypeVar("Answer")

CHANGED_WIDTH: Final = 66
"""The lines that say what has changed are at most this many cells wide, so that they fit into the dialog on a
screen of 80 columns.
"""


def confirm_and_send(
    app: AppInterface,
    question: Callable[[], Confirmation | None],
    request_of: Callable[[str], Callable[[Client], Answer]],
    show: Callable[[Answer | Failure], None],
    changed: str = "",
) -> bool:
    """Ask the user to confirm a change, and then send it.

    1. Open the dialog with the content that `question` returns, and return True. If `question` returns None,
       because nothing is left to change, return False.
    2. When the user has confirmed, call `request_of` with the typed text, and send the request that it
       returns. The request names the what-if answer that the dialog showed.
    3. If the controller refuses the request because the effect is no longer the shown one, open the dialog
       again. Its first lines say what has changed (`changed`).
    4. Otherwise call `show` with the answer or the failure.
    """

    def content() -> Confirmation | None:
        asked = question()
        if asked is None or not changed:
            return asked
        texts = textwrap.wrap(printable(changed, 900), CHANGED_WIDTH)
        return replace(asked, lines=(*([(text, "warn")] for text in texts), [], *asked.lines))

    def answered(confirmed: Confirmed | None) -> None:
        if confirmed is None:
            return

        request = request_of(confirmed.typed)

        def carry_out(client: Client) -> Answer:
            with client.expecting(confirmed.what_if):
                return request(client)

        app.requests.change(confirmed.command, carry_out, shown)

    def shown(answer: Answer | Failure) -> None:
        if isinstance(answer, Refused) and effect_changed(answer):
            if not confirm_and_send(app, question, request_of, show, answer.problem.message):
                app.show_message(failure_text(answer), "bad")
        else:
            show(answer)

    first = content()
    if first is None:
        return False
    app.push_screen(ConfirmDialog(content, first), answered)
    return True
