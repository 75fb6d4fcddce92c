"""The screen of the application, which shows the effect of a key without waiting for the next frame."""

from __future__ import annotations

import time
from typing import Final

from textual import events
from textual.screen import Screen

from tui.app_interface import app_of

AFTER_KEY_S: Final = 0.05
"""A repaint at most this many seconds after a key counts as the effect of the key."""


class MainScreen(Screen[None]):
    """A screen that repaints at once after a key. Textual repaints at most 60 times per second: if other rows
    were repainted just before a key, the effect of the key would wait for the next of these times.
    """

    def on_idle(self, _event: events.Idle) -> None:
        if self._dirty_widgets and time.monotonic() - app_of(self).key_at < AFTER_KEY_S:
            self._on_timer_update()
