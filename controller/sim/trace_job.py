"""One job of a job log: what it requests, when it is submitted and how long it runs."""

from __future__ import annotations

from dataclasses import dataclass

from wire.job.spec import JobSpec


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a job log. `number` is the job's number in the log, `runtime_s` the seconds that it runs if it
    is not stopped."""

    number: int
    submit_s: float
    spec: JobSpec
    runtime_s: float
    user: str = "nobody"
    code: int = 0
