"""API bodies of the report on what a job requested and what it used."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass


@dataclass(frozen=True)
class ResourceStats:
    """One resource of an attempt: `asked` is what was allocated, `used` what was used.

    `resource` is cpu (CPUs; used: the mean), memory (MiB on the node with the most; used: the peak), gpu
    (GPUs; used: the mean), gpu_memory (MiB on all GPUs; used: the peak), time (seconds; asked: the time
    limit) or energy (watt-hours). None means not limited, or not measured. `advice` is a sentence, and
    `flags` are the options of `corral submit` that follow the advice; both may be empty.
    """

    resource: str
    unit: str
    asked: Optional[float]
    used: Optional[float]
    percent: Optional[float] = None
    advice: str = ""
    flags: str = ""


@dataclass(frozen=True)
class JobStats:
    """What the last attempt of a job requested and used. `run_s` is its run time in seconds.

    `change` has the options of all advice together; empty without advice.
    """

    job: int
    label: str
    name: str
    user: str
    state: str
    attempt: int
    nodes: int
    run_s: float
    resources: tuple[ResourceStats, ...]
    change: str = ""
