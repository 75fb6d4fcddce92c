"""A supervisor whose end must be noticed: by pidfd where the kernel has it, else by the audit."""

from __future__ import annotations

import os
import signal


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # Linux before 5.3
        return False
    return True


PIDFD = _has_pidfd()


class Watched:
    """One living process; raises ProcessLookupError if it is not."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptor: int | None = None
        if not PIDFD:
            os.kill(pid, 0)
            return
        try:
            self.descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError:
            pass  # out of descriptors: the audit will see its end

    def wake(self) -> None:
        """Tell the supervisor to read its order to stop."""
        try:
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it has ended, and will be noticed
