"""Signals that are heard only where it is safe to stop."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from types import FrameType, TracebackType

_HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal asked us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """While entered, SIGINT, SIGTERM and SIGHUP end naps and nothing else."""

    def __init__(self) -> None:
        self._number = 0
        self._woken, self._waker = socket.socketpair()
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        self._waker.setblocking(False)
        for number in _HEEDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, say
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._woken.close()
        self._waker.close()

    def nap(self, seconds: float) -> None:
        """Sleep; raise Interrupted at once if a signal comes or has come."""
        if not self._number:
            select.select([self._woken], [], [], seconds)
        if self._number:
            raise Interrupted(self._number)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"!")
