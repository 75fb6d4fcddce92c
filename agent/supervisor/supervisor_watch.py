"""Watches one supervisor process with a pidfd (a descriptor that shows the exit of a process). On kernels
without pidfd, a periodic check of the agent detects the exit.
"""

from __future__ import annotations

import os
import signal


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
        """Send SIGTERM, so that the supervisor reads its stop order or the file `go`."""
        try:
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # The supervisor has exited. The event loop will detect this.
