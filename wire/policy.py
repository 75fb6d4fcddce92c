"""How agents run jobs, whatever these ask: [jobs] of scheduler.toml, handed to every agent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobPolicy:
    """The same on all nodes; what a host cannot do its facts say."""

    limits: str = "auto"
    bind: str = "cores"
    max_processes: int = 16_384
    prolog: tuple[str, ...] = ()
    epilog: tuple[str, ...] = ()
    hook_s: float = 60.0
    log_mib: int = 1_024


USUAL = JobPolicy()
