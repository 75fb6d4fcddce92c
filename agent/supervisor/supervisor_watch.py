"""Watches one supervisor process: with a pidfd where the kernel has it, else by the agent's audit."""

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
    """A running process; raises ProcessLookupError if it has ended. `descriptor` is None without pidfd."""

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
            pass  # because descriptors ran out; the audit will notice the end

    def wake(self) -> None:
        """Send SIGTERM, upon which the supervisor reads its stop order."""
        try:
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # because it has ended, which the loop will notice
