"""Signals that are heard only where it is safe to stop: never between doing something and noting it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal asked us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """While entered, SIGINT, SIGTERM and SIGHUP wait for the next `heard` or `nap`, and raise there."""

    def __init__(self) -> None:
        self._pending = 0
        self._listening = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _HEEDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, say
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Here a signal raises Interrupted at once, also one that came before."""
        self._listening = True
        try:
            if self._pending:
                number, self._pending = self._pending, 0
                raise Interrupted(number)
            yield
        finally:
            self._listening = False

    def nap(self, seconds: float) -> None:
        """Sleep; a signal ends it."""
        with self.heard():
            time.sleep(seconds)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self._listening:
            self._listening = False
            raise Interrupted(number)
        self._pending = number
