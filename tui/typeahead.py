"""Keys one after the other.

Textual hands a burst of keys (a slow line, a paste) to whatever has the focus when they arrive, although the
first of them may open a question or a form: `/` and then `H100` typed in one go would hold a job. Here a key
waits until the one before it has had its effect.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import Final

from textual import events
from textual.message import Message
from textual.widget import Widget

from tui.stage import Stage

PATIENCE_S: Final = 0.25
"""So long a key waits for what the one before it has opened."""

PAUSE_S: Final = 0.01


class Handled(Message, verbose=True):
    """Follows a key through the widgets, then what the widgets said because of it (a line was submitted,
    a button pressed); once it is back for the second time, the key has had its effect.
    """

    def __init__(self, key: events.Key, target: Widget, again: bool) -> None:
        super().__init__()
        self.key, self.target, self.again = key, target, again


class InOrder(Stage):
    """An application whose keys are handled strictly in order."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._typed: deque[events.Key] = deque()
        self._handling: events.Key | None = None
        self._waiting_since: float | None = None

    @property
    def busy(self) -> bool:
        """Whether there are keys that have not had their effect yet."""
        return bool(self._typed) or self._handling is not None

    def ready(self) -> bool:
        """Whether what the last key opened can take the next one."""
        raise NotImplementedError

    async def on_event(self, event: events.Event) -> None:
        """Keys queue up here; everything else goes its way."""
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if self._handling is None and self._waiting_since is None:
            await self._next_key()

    async def on_handled(self, message: Handled) -> None:
        """A key has had its effect."""
        message.stop()
        key, target = message.key, message.target
        if not (message.again and target.post_message(Handled(key, target, again=False))):
            await self._done(key)

    async def _done(self, key: events.Key) -> None:
        if key is self._handling:
            self._handling = None
            await self._next_key()

    async def _next_key(self) -> None:
        if not self._typed:
            self._waiting_since = None
            return
        if not self.ready():
            self._waiting_since = self._waiting_since or time.monotonic()
            if time.monotonic() - self._waiting_since < PATIENCE_S:
                self.set_timer(PAUSE_S, self._next_key)
                return
        self._waiting_since = None
        key = self._handling = self._typed.popleft()
        target = self.focused or self.screen
        await super().on_event(key)
        target.post_message(Handled(key, target, again=True))
        # A widget that is taken away meanwhile hands nothing on.
        self.set_timer(PATIENCE_S, partial(self._done, key))
