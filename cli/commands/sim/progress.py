"""A progress bar and error messages for the commands of `corral sim`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from cli.exit_codes import CommandError

_EVERY_S = 0.1
_ROOM = 30


@contextmanager
def refusals() -> Iterator[None]:
    """Context manager that turns errors of a simulation or its configuration into a CommandError."""
    from controller.config import ConfigRefused
    from controller.sim.errors import SimulationRefused

    try:
        yield
    except ConfigRefused as refused:
        raise CommandError("\n".join(map(str, refused.problems))) from None
    except SimulationRefused as refused:
        raise CommandError(str(refused), refused.hint) from None


class Progress:
    """Progress bar on stderr. If stderr is not a terminal, nothing is shown."""

    def __init__(self, total: int, what: str) -> None:
        self._total = max(1, total)
        self._what = what
        self._shown = sys.stderr.isatty()
        self._next = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown and self._next:
            self._draw("\r\x1b[K")

    def of(self, done: int, total: int) -> None:
        self._total = max(1, total)
        self(done)

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + _EVERY_S
        full = min(_ROOM, _ROOM * done // self._total)
        bar = "█" * full + "░" * (_ROOM - full)
        self._draw(f"\r{bar} {100 * done // self._total:3d}%  {done:,} of {self._total:,} {self._what}\x1b[K")

    def _draw(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
