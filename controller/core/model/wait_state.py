"""The stored facts about a waiting job: its closed gates, and the effects of a long wait. A closed gate keeps
the job out of the queue.
"""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from wire.names import Reason

GATES = (Reason.DEPENDENCY, Reason.BEGIN, Reason.BACKOFF, Reason.ARRAY, Reason.WORKLOAD)
"""All gates (reasons that keep jobs out of the queue) in a fixed order. The first closed gate is shown as the
reason why a job waits.
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """The stored facts about a waiting job: its closed gates, and the effects of a long wait, such as a
    higher priority. A closed gate is a reason, such as a dependency, that keeps the job out of the queue. The
    objects are immutable, because most jobs share one object.

    A Wait is stored in the job's database row.
    """

    gates: tuple[Reason, ...] = ()
    """The closed gates (reasons to wait) in the order of GATES."""
    ready_at: float | None = None
    """The time at which the job last entered the queue, after a gate, a hold or an attempt. None: the job has
    been in the queue since its submit.
    """
    restarts: int = 0
    backoff_from: int = 0
    """The number of restarts at the end of the job's last healthy attempt. Only later restarts make the
    backoff (wait before a restart) longer.
    """
    again_at: float | None = None
    """The end of the backoff (wait) before the next restart; None if there is no backoff."""
    met: tuple[int, ...] = ()
    """Indices of the met dependencies, in the order in which the dependencies were met."""
    lost: tuple[int, ...] = ()
    """Indices of the dependencies that can never be met."""
    relaxed: bool = False
    """True if the constraints that the spec names in `relax` no longer apply, because the job has waited too
    long.
    """
    promoted: int = 0
    """The points by which waiting has raised the job's priority."""
    promoted_at: float | None = None
    doubted: bool = False
    """True if present scheduling plans show that the job will miss its deadline."""
    alarmed: bool = False
    """True if a WaitAlarmed event was recorded, because the job has waited much longer than usual."""
    inherited: int = 0
    """The highest priority of the jobs that wait for this job, if it is above the priority in the job's spec;
    otherwise 0.
    """


NEVER_WAITED = Wait()


@dataclass(frozen=True, slots=True)
class WaitRules:
    """The settings of scheduler.toml for waiting jobs."""

    cancel_hopeless: bool = True
    """True: cancel a job whose dependencies can never be met. False: such a job waits."""
    data_roots: tuple[str, ...] = ()
    """The directories below which jobs may wait for paths. A wait for any other path is refused."""
    promote_after_s: float | None = None
    """After each period of this many seconds in the queue, the priority of a job rises by `promote_by`, up to
    `promote_most`. None: the priority does not rise.
    """
    promote_by: int = 10
    promote_most: int = 75
    gang_after_s: float | None = None
    """A gang (a job on several nodes) that has waited longer than this many seconds comes before all other
    jobs. None: gangs get no such precedence.
    """


WAIT_RULES = WaitRules()


def with_gate(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    """Return the gates in `gates` and the gate `gate`, in the order of GATES."""
    return tuple(each for each in GATES if each in gates or each is gate)


def without_gate(gates: tuple[Reason, ...], gate: Reason) -> tuple[Reason, ...]:
    return tuple(each for each in gates if each is not gate)
