"""The stored facts about a waiting job: its closed gates (reasons that keep the job out of the queue), and
the effects of a long wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from wire.names import Reason

GATES = (Reason.DEPENDENCY, Reason.BEGIN, Reason.BACKOFF, Reason.ARRAY, Reason.WORKLOAD)
"""All gates of jobs in a fixed order. The first closed gate is shown as the reason why a job waits."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The stored facts about a waiting job: its closed gates (reasons, such as a dependency, that keep the
    job out of the queue), and the effects of a long wait, such as a higher priority. The objects are
    immutable, because most jobs share one object.

    A Wait is stored in the job's database row.
    """

    gates: tuple[Reason, ...] = ()
    """The closed gates in the order of GATES. A job with none is in the queue."""
    ready_at: float | None = None
    """The time at which the last gate opened; None: no gate was ever closed."""
    restarts: int = 0
    backoff_from: int = 0
    """The value of `restarts` when the job's last healthy attempt ended. Only restarts after that make the
    backoff longer.
    """
    again_at: float | None = None
    """The end of the backoff before the next restart."""
    met: tuple[int, ...] = ()
    """Indices of the dependencies that are met, in the order in which they were met."""
    lost: tuple[int, ...] = ()
    """Indices of the dependencies that can never be met."""
    relaxed: bool = False
    """True if the constraints that the spec names in `relax` no longer apply, because the job has waited
    long.
    """
    promoted: int = 0
    """The points by which waiting has raised the job's priority."""
    promoted_at: float | None = None
    doubted: bool = False
    """True if by present plans the job cannot meet its deadline."""
    alarmed: bool = False
    """True if a WaitAlarmed event was recorded for the job: it has waited much longer than usual."""
    inherited: int = 0
    """The highest priority of the jobs that wait for this job, if it is above the job's own; otherwise 0."""


NEVER_WAITED = Wait()


@dataclass(frozen=True, slots=True)
class WaitRules:
    """The settings of scheduler.toml for waiting jobs."""

    cancel_hopeless: bool = True
    """True: cancel a job whose dependencies can never be met. False: such a job waits."""
    data_roots: tuple[str, ...] = ()
    """Jobs may wait only for paths below these directories."""
    promote_after_s: float | None = None
    """After each wait of this many seconds in the queue, the priority rises by `promote_by`, up to
    `promote_most`.
    """
    promote_by: int = 10
    promote_most: int = 75
    gang_after_s: float | None = None
    """A gang (a job on several nodes) that has waited longer than this comes before all other jobs."""


WAIT_RULES = WaitRules()


def with_gate(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    """Return `gates` (reasons that keep a job out of the queue) with `gate` added, in the order of the
    constant GATES.
    """
    return tuple(each for each in GATES if each in gates or each is gate)


def without_gate(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    return tuple(each for each in gates if each is not gate)
