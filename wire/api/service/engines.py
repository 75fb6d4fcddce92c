"""API bodies for execution engines, such as Slurm and Docker: their state, nodes and limits."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass


@dataclass(frozen=True)
class EngineLimit:
    """A limit that the engine sets for Corral, such as a quota, with the amount in use."""

    name: str
    used: float
    limit: float


@dataclass(frozen=True)
class EngineJob:
    """An attempt on an engine. `state` is what Corral knows about the foreign job of the attempt: wanted (not
    confirmed by the engine), asked (accepted), seen or unseen (by the last look at the engine), or ended.
    `ref` is the engine's name of the foreign job, and `reason` the engine's reason why the foreign job waits.
    """

    job: int
    attempt: int
    node: str
    state: str
    ref: str = ""
    reason: str = ""


@dataclass(frozen=True)
class EngineMachine:
    """A machine of a pool. `state` is wanted (to be ordered), booting (the agent has not connected yet),
    joined, leaving (its node is drained) or ending (its node is removed). `shape` is the machine type. `cost`
    is the money spent on the machine since it was ordered. `why` is the reason why the machine is ended, or
    its last failure.
    """

    node: str
    ref: str
    shape: str
    zone: str
    state: str
    price_per_hour: float
    cost: float
    since: float
    project: str = ""
    why: str = ""


@dataclass(frozen=True)
class PausedShape:
    """A shape (machine type) that is not ordered for a time in this zone, because the last order failed.
    `why` is the reason of the failure.
    """

    shape: str
    zone: str
    why: str


@dataclass(frozen=True)
class EnginePool:
    """The machines of an engine that is a machine pool, and the money spent on them today (UTC). `daily_cap`
    is the limit on this money, or None. `refused` is the reason why the last attempt to order machines for
    waiting jobs ordered none.
    """

    machines: tuple[EngineMachine, ...] = ()
    spent_today: float = 0.0
    daily_cap: Optional[float] = None
    ordered: int = 0
    failures: int = 0
    refused: str = ""
    paused: tuple[PausedShape, ...] = ()


@dataclass(frozen=True)
class EngineView:
    """An execution engine of scheduler.toml.

    `open` is True while the circuit breaker is open: the engine has failed `failures` times in a row, last
    for the reason `problem`, and no jobs start there. `looked_at` is the time at which Corral last read the
    state of the engine without an error; None if it never has. `drained` is the reason of an operator's
    drain. `pool` is None for an engine that is no machine pool.
    """

    name: str
    type: str
    kinds: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    live: int = 0
    waiting: int = 0
    open: bool = False
    failures: int = 0
    problem: str = ""
    drained: str = ""
    looked_at: Optional[float] = None
    opened: int = 0
    orphans_ended: int = 0
    jobs: tuple[EngineJob, ...] = ()
    pool: Optional[EnginePool] = None


@dataclass(frozen=True)
class EngineList:
    """All execution engines, ordered by name."""

    engines: tuple[EngineView, ...]
    seq: int


@dataclass(frozen=True)
class EngineTest:
    """The result of reading the state of an engine once: the duration, and what was found. `problem` is the
    reason why this failed; empty if it succeeded.
    """

    name: str
    took_s: float
    problem: str = ""
    complete: bool = False
    nodes: int = 0
    jobs: int = 0
    limits: tuple[EngineLimit, ...] = ()
