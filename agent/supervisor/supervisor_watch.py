"""Watches one supervisor process with a pidfd. On kernels without pidfd the agent's audit checks the
process.
"""

from __future__ import annotations

import os
import signal


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # Linux before 5.3
        return False
    return True


HAS_PIDFD = _has_pidfd()


class SupervisorWatch:
    """A running supervisor. Raises ProcessLookupError if it has ended. `descriptor` is its pidfd, or None."""

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
            pass  # Too many files are open. The audit will detect the end of the supervisor.

    def wake(self) -> None:
        """Send SIGTERM. The supervisor then reads its stop order."""
        try:
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # The supervisor has ended. The event loop will detect it.
