"""How agents run jobs, whatever these ask: [jobs] of scheduler.toml, handed to every agent."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ContainerPolicy:
    """How images are run: by which program, with which words more, and what all of them see."""

    command: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


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
    scratch_overuse: str = "end"
    checkpoint_look_s: float = 30.0
    containers: ContainerPolicy = field(default_factory=ContainerPolicy)


USUAL = JobPolicy()
