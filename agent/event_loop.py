"""The event loop of the agent. It waits for descriptors and timers, in one thread."""

from __future__ import annotations

import heapq
import select
import selectors
import socket
import time
from typing import Callable

Callback = Callable[[], object]


def await_readable(descriptor: int, seconds: float = 0.0) -> bool:
    """Wait until the descriptor has data or its other end is closed, but at most `seconds` seconds. Return
    False if neither has happened in this time.

    The agent cannot use select.select(), which raises ValueError for descriptors above 1023.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1_000))


def receive(sock: socket.socket, most: int) -> bytes | None:
    """Return up to `most` bytes that have arrived at a socket; None if none have arrived yet. The result is
    empty if the connection is closed or broken.
    """
    try:
        return sock.recv(most)
    except BlockingIOError:
        return None
    except OSError:
        return b""


class EventLoop:
    """Calls a function when a descriptor is readable or writable, or when a timer is due."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callback]] = []
        self._timer_count = 0

    def on_readable(self, descriptor: int, action: Callback | None) -> None:
        """Call `action` whenever the descriptor has data or its other end is closed. If `action` is None,
        remove the callback.
        """
        self._set_callback(descriptor, selectors.EVENT_READ, action)

    def on_writable(self, descriptor: int, action: Callback | None) -> None:
        """Call `action` whenever the descriptor can be written to. If `action` is None, remove the
        callback.
        """
        self._set_callback(descriptor, selectors.EVENT_WRITE, action)

    def call_later(self, seconds: float, action: Callback) -> None:
        self._timer_count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._timer_count, action))

    def run_once(self, sleep: bool = True) -> None:
        """Wait for the next event, then run all callbacks that are due. If `sleep` is False, do not wait.

        If a callback removes or replaces another callback that is due, the other callback is not run, because
        its descriptor may be closed already.
        """
        pause = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        if not sleep:
            pause = 0.0
        registered = self._selector.get_map()
        for ready, events in self._selector.select(pause):
            for event, action in ready.data.items():
                known = registered.get(ready.fd)
                if events & event and known is not None and known.data.get(event) is action:
                    action()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _set_callback(self, descriptor: int, event: int, action: Callback | None) -> None:
        known = self._selector.get_map().get(descriptor)
        actions: dict[int, Callback] = {} if known is None else dict(known.data)
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
