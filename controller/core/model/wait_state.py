"""The gates that keep a queued job out of the queue, and what happened to the job while it waited."""

from __future__ import annotations

from dataclasses import dataclass

from wire.names import Reason

GATES = (Reason.DEPENDENCY, Reason.BEGIN, Reason.BACKOFF, Reason.ARRAY)
"""Reasons that keep a job out of the queue. The first closed one is shown as the pending reason."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Immutable, because most jobs share one. It is part of the job's row."""

    gates: tuple[Reason, ...] = ()
    """The closed gates in the order of GATES; without any the job is in the queue."""
    ready_at: float | None = None
    """When the last gate opened; None: no gate was ever closed."""
    restarts: int = 0
    again_at: float | None = None
    """The end of the backoff before the next restart."""
    met: tuple[int, ...] = ()
    """Indices of the dependencies that are met, in the order in which they were met."""
    lost: tuple[int, ...] = ()
    """Indices of the dependencies that can never be met."""
    relaxed: bool = False
    """The constraints in `relax` were dropped."""
    promoted: int = 0
    """By how much waiting has raised its priority."""
    promoted_at: float | None = None
    doubted: bool = False
    """By present plans its deadline cannot be met."""
    inherited: int = 0
    """The highest priority of the jobs that depend on this one, if above its own; else 0."""


NEVER_WAITED = Wait()


@dataclass(frozen=True, slots=True)
class WaitRules:
    """Rules of the configuration for waiting jobs."""

    cancel_hopeless: bool = True
    """Cancel a job whose dependencies can never be met; else it waits until a user changes or cancels it."""
    data_roots: tuple[str, ...] = ()
    """Jobs may wait for data below these directories only."""
    promote_after_s: float | None = None
    """After each wait of this many seconds the priority rises by `promote_by`, up to `promote_most`."""
    promote_by: int = 10
    promote_most: int = 75


WAIT_RULES = WaitRules()


def with_gate(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    """The gates with this one added, in the order of GATES."""
    return tuple(each for each in GATES if each in gates or each is gate)


def without_gate(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    """The gates without this one."""
    return tuple(each for each in gates if each is not gate)
