"""Delays SIGINT, SIGTERM and SIGHUP until a point at which the command can stop safely."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalReceived(Exception):
    """Raised when this process has received a signal to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class DeferredSignals:
    """Context manager that delays SIGINT, SIGTERM and SIGHUP. A signal raises SignalReceived only when the
    command enters or is inside `interruptible` or `nap`.
    """

    def __init__(self) -> None:
        self._pending = 0
        self._interruptible = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> DeferredSignals:
        for number in _HANDLED:
            # Leave ignored signals ignored, because the user may have started the command with nohup.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Context manager in which a signal raises SignalReceived at once. If a signal arrived before the
        `with` block, raise SignalReceived at its beginning.
        """
        self._interruptible = True
        try:
            if self._pending:
                number, self._pending = self._pending, 0
                raise SignalReceived(number)
            yield
        finally:
            self._interruptible = False

    def nap(self, seconds: float) -> None:
        """Sleep for this many seconds. A signal ends the sleep with SignalReceived."""
        with self.interruptible():
            time.sleep(seconds)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._interruptible:
            self._interruptible = False
            raise SignalReceived(number)
        self._pending = number
