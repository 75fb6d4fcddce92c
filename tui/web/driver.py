"""Connects a terminal UI process to the server of corral web, through stdin and stdout."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any, Final

from textual.drivers.web_driver import WebDriver
from textual.events import AppFocus
from textual.messages import ExitApp

END_S: Final = 3.0


class BrowserDriver(WebDriver):
    """Textual's driver for browsers. It also ends the application when its browser tab is closed.

    The server holds the other end of stdin, so stdin ends when the browser tab is closed, when the server
    stops, and when the server is killed. At the end of stdin this driver ends the application. If the
    application does not end within END_S seconds, for example because it waits until the server reads its
    output, the driver ends the process.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._write = partial(self._write_all)

    def _write_all(self, data: bytes) -> int:
        """Write to the server. If the server has closed the pipe, discard the data, because stdin then ends,
        too, and the application ends.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self.fileno, rest) :]
        except BrokenPipeError:
            pass
        return len(data)

    def start_application_mode(self) -> None:
        """Start the application, and tell it at once that it has the focus, because it handles keys only
        then.

        The base class tells the application that it has no focus, until the page reports that its terminal
        has got the focus. A page that had the focus before its WebSocket was open reports nothing, and keys
        would be lost.
        """
        super().start_application_mode()
        self._app.call_later(self._app.post_message, AppFocus())

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Handle a packet of the server. Ignore `blur`: keys arrive only if the page has the focus."""
        if packet_type != "blur":
            super().on_meta(packet_type, payload)

    def run_input_thread(self) -> None:
        """Pass keys and the mouse to the application until stdin ends, then end the application."""
        super().run_input_thread()
        if self.exit_event.is_set():
            return
        limit = threading.Timer(END_S, os._exit, (1,))
        limit.daemon = True
        limit.start()
        self.send_message(ExitApp())
