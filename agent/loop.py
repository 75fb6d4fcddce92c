"""One thread that waits: for descriptors and for moments."""

from __future__ import annotations

import heapq
import selectors
import time
from typing import Callable

Action = Callable[[], object]


class Loop:
    """Readers, writers and timers; nothing here knows what they are for."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Action]] = []
        self._planned = 0

    def read(self, descriptor: int, action: Action | None) -> None:
        """Act whenever there is something to read or the other end is gone; None: no more."""
        self._want(descriptor, selectors.EVENT_READ, action)

    def write(self, descriptor: int, action: Action | None) -> None:
        """Act whenever there is room to write; None: no more."""
        self._want(descriptor, selectors.EVENT_WRITE, action)

    def after(self, seconds: float, action: Action) -> None:
        """Act once, later."""
        self._planned += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._planned, action))

    def turn(self, sleep: bool = True) -> None:
        """Do all that is due, after sleeping until something is."""
        pause = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        if not sleep:
            pause = 0.0
        for ready, events in self._selector.select(pause):
            for event, action in list(ready.data.items()):
                if events & event:
                    action()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _want(self, descriptor: int, event: int, action: Action | None) -> None:
        known = self._selector.get_map().get(descriptor)
        actions: dict[int, Action] = {} if known is None else dict(known.data)
        if actions.pop(event, None) is None and action is None:
            return
        if action is not None:
            actions[event] = action
        if known is None:
            self._selector.register(descriptor, event, actions)
        elif actions:
            self._selector.modify(descriptor, sum(actions), actions)
        else:
            self._selector.unregister(descriptor)
