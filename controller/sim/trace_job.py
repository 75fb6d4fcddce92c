"""One job of a workload: when it is submitted and how long it really runs."""

from __future__ import annotations

from dataclasses import dataclass

from wire.job.spec import JobSpec


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a log. `number` is its number in the log; `runtime_s` is how long it runs if nothing stops
    it."""

    number: int
    submit_s: float
    spec: JobSpec
    runtime_s: float
    user: str = "nobody"
    code: int = 0
