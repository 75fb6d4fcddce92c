"""Handles keys strictly one after the other.

A slow connection or a paste delivers several keys at once. Textual would send all these keys to the widget
that has the focus when they arrive. But the first key may open a dialog: after `/`, the text `H100` belongs
into the filter, and `H` must not hold a job. Therefore each key waits until all messages that the previous
key has caused are handled.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import Final

from textual import events
from textual.message import Message
from textual.widget import Widget

from tui.app_interface import AppInterface

PATIENCE_S: Final = 0.25
"""A key waits at most this many seconds until the previous key is handled, and until a dialog that the
previous key has opened is ready.
"""

PAUSE_S: Final = 0.01


class KeyHandled(Message, verbose=True):
    """A message by which the application finds out when a key is handled, with all messages that the key has
    caused.

    1. The application posts the message to the focused widget directly after the key.
    2. When the message arrives, the widget has handled the key. The application posts the message again. It
       is then behind all messages that the key has caused in the widget.
    3. When this message arrives again, the messages before it have been handled, and the next key may follow.
    """

    def __init__(self, key: events.Key, target: Widget, again: bool) -> None:
        super().__init__()
        self.key, self.target, self.again = key, target, again


class OrderedKeysApp(AppInterface):
    """An application that handles keys strictly one after the other. CorralApp is derived from this class."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._typed: deque[events.Key] = deque()
        self._handling: events.Key | None = None
        self._waiting_since: float | None = None
        self.key_at = 0.0

    @property
    def busy(self) -> bool:
        """Return True while keys wait or a key is being handled."""
        return bool(self._typed) or self._handling is not None

    def ready(self) -> bool:
        """Return True if the screen accepts the next key. Return False while a dialog is being opened."""
        raise NotImplementedError

    async def on_event(self, event: events.Event) -> None:
        """Put keys into the queue, and pass on all other events to Textual."""
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            return
        self.key_at = time.monotonic()
        self._typed.append(event)
        if self._handling is None and self._waiting_since is None:
            await self._next_key()

    async def on_key_handled(self, message: KeyHandled) -> None:
        """When the message arrives for the first time, post the message again. When it arrives for the second
        time, handle the next key in the queue.
        """
        message.stop()
        key, target = message.key, message.target
        if not (message.again and target.post_message(KeyHandled(key, target, again=False))):
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
        target.post_message(KeyHandled(key, target, again=True))
        # Handle the next key after at most PATIENCE_S seconds, because the message KeyHandled never arrives
        # if the widget with the focus was removed.
        self.set_timer(PATIENCE_S, partial(self._done, key))
