"""What is fed to the engine: jobs with the time they come and the time they really take."""

from __future__ import annotations

from dataclasses import dataclass

from wire.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Work:
    """One job of a log. `number` is the log's own, `runtime_s` what the job takes if nothing stops it."""

    number: int
    submit_s: float
    spec: JobSpec
    runtime_s: float
    user: str = "nobody"
    code: int = 0
