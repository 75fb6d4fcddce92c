"""What keeps a queued job from its turn, and what it has been through before."""

from __future__ import annotations

from dataclasses import dataclass

from wire.words import Reason

GATES = (Reason.BEGIN, Reason.BACKOFF)
"""What can keep a job out of the queue, the one that people should be told first before the others."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Never changed, only replaced: most jobs share the same, and rows keep it as it is."""

    gates: tuple[Reason, ...] = ()
    """The gates that are closed, in the order of GATES; a job takes part in cycles while there are none."""
    ready_at: float | None = None
    """When the last gate opened; None: it never waited for one."""
    restarts: int = 0
    again_at: float | None = None
    """When the wait before the next restart is over."""


FRESH = Wait()


def closed(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    """The gates with this one closed too."""
    return tuple(each for each in GATES if each in gates or each is gate)


def opened(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    """The gates without this one."""
    return tuple(each for each in gates if each is not gate)
