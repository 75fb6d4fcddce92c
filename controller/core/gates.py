"""What keeps a queued job from its turn, and what it has been through before."""

from __future__ import annotations

from dataclasses import dataclass

from wire.words import Reason

GATES = (Reason.DEPENDENCY, Reason.BEGIN, Reason.BACKOFF, Reason.ARRAY)
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
    met: tuple[int, ...] = ()
    """Which of the things it waits for have happened, by their place in the spec, as they did."""
    lost: tuple[int, ...] = ()
    """Which of them never will."""
    relaxed: bool = False
    """It does without what its spec names for that."""
    promoted: int = 0
    """By how much its priority was raised for its waiting."""
    promoted_at: float | None = None
    doubted: bool = False
    """Its deadline can no longer be met, as far as can be told."""
    inherited: int = 0
    """The highest priority of those that wait for the job, if its own is lower."""


FRESH = Wait()


@dataclass(frozen=True, slots=True)
class WaitRules:
    """What the configuration says about jobs that wait."""

    cancel_hopeless: bool = True
    """A job whose dependencies can never be met is cancelled; else it waits for somebody to see to it."""
    data_roots: tuple[str, ...] = ()
    """Below these directories jobs may wait for data."""
    promote_after_s: float | None = None
    """Who has waited so long for a place is raised by `promote_by`, again and again, up to `promote_most`."""
    promote_by: int = 10
    promote_most: int = 75


WAIT_RULES = WaitRules()


def closed(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    """The gates with this one closed too."""
    return tuple(each for each in GATES if each in gates or each is gate)


def opened(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    """The gates without this one."""
    return tuple(each for each in gates if each is not gate)
