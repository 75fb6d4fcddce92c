"""API bodies of the report on job resources: the resources that a job requested, and the resources that the
job used.
"""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass

SHORTEST_S = 60.0
"""Attempts that ran for fewer seconds than this get no advice."""


@dataclass(frozen=True)
class ResourceStats:
    """One resource of an attempt: `asked` is the allocated amount, `used` the used amount.

    `resource` is cpu (in CPUs; `used` is the mean), memory (in MiB, on the node with the most; `used` is the
    peak), gpu (in GPUs; `used` is the mean), gpu_memory (in MiB, on all GPUs; `used` is the peak), time (in
    seconds; `asked` is the time limit) or energy (in watt-hours). None in `asked` means no limit, and None in
    `used` means that nothing was measured. `advice` is a sentence, and `flags` are the options of `corral
    submit` that follow the advice; both may be empty.
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
    """The resources that the last attempt of a job requested and used. `run_s` is the run time of this
    attempt in seconds.

    `change` joins the options of `corral submit` from the advice on all resources; empty if there is no
    advice.
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
