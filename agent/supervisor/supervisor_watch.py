"""Watches supervisor processes with pidfds (descriptors that show the exit of a process). On kernels without
pidfd, a periodic check of the agent detects the exits.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Callable, Optional

from agent.attempts.spool import AttemptKey
from agent.event_loop import EventLoop


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # The kernel has no pidfd (Linux before 5.3).
        return False
    return True


HAS_PIDFD = _has_pidfd()


class SupervisorWatch:
    """A running supervisor. `descriptor` is a pidfd of the supervisor; None if the kernel could not open one.
    The constructor raises ProcessLookupError if the supervisor has exited.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptor: int | None = None
        if not HAS_PIDFD:
            os.kill(pid, 0)
            return
        try:
            self.descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError:
            # Continue without a pidfd, because too many files are open. The periodic check will detect the
            # exit of the supervisor.
            pass

    def wake(self) -> None:
        """Send SIGTERM, so that the supervisor reads its stop order or the file `go` (which lets a gang
        member start).
        """
        try:
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # The supervisor has exited. The event loop or the periodic check will detect this.


class SupervisorWatches:
    """The supervisors that the agent watches, by attempt. `on_exit` is called in the event loop when a
    supervisor has exited.
    """

    def __init__(
        self,
        loop: EventLoop,
        has_ended: Callable[[AttemptKey], Optional[bool]],
        on_exit: Callable[[AttemptKey], None],
    ) -> None:
        self._loop = loop
        self._has_ended = has_ended
        self._on_exit = on_exit
        self._new: dict[AttemptKey, int] = {}
        """Pids of supervisors that are not watched yet."""
        self._watched: dict[AttemptKey, SupervisorWatch] = {}

    def add(self, key: AttemptKey, pid: int) -> None:
        # Begin to watch the supervisor only in the next iteration of the event loop, and only if its attempt
        # still runs then. Therefore no watch is set up for an attempt that ends at once.
        self._new[key] = pid

    def watch_new(self) -> None:
        """Begin to watch the supervisors that were added, except those whose attempts have ended."""
        due, self._new = self._new, {}
        for key, pid in due.items():
            self.remove(key)
            if self._has_ended(key) is not False:
                continue
            try:
                watched = self._watched[key] = SupervisorWatch(pid)
            except ProcessLookupError:
                self._loop.call_later(0.0, partial(self._on_exit, key))
                continue
            if watched.descriptor is not None:
                self._loop.on_readable(watched.descriptor, partial(self._exited, key))

    def remove(self, key: AttemptKey) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None and watched.descriptor is not None:
            self._loop.on_readable(watched.descriptor, None)
            os.close(watched.descriptor)

    def wake(self, key: AttemptKey) -> None:
        """Let the supervisor of an attempt read its stop order or the file `go` (which lets a gang member
        start).
        """
        self.watch_new()
        watched = self._watched.get(key)
        if watched is not None:
            watched.wake()

    def _exited(self, key: AttemptKey) -> None:
        self.remove(key)
        self._on_exit(key)
