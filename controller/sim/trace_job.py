"""One job of a workload: its submit time and its actual run time."""

from __future__ import annotations

from dataclasses import dataclass

from wire.job.spec import JobSpec


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a log. `number` is its number in the log. `runtime_s` is its run time in seconds if nothing
    stops it."""

    number: int
    submit_s: float
    spec: JobSpec
    runtime_s: float
    user: str = "nobody"
    code: int = 0
