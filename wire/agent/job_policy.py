"""The table [jobs] of scheduler.toml: settings with which agents run jobs. The controller sends these
settings to every agent.
"""

from __future__ import annotations

from dataclasses import field

from wire.dataclass import dataclass


@dataclass(frozen=True)
class ContainerPolicy:
    """Settings of containers: the command of the container runtime, its options, and mounts for all
    containers.
    """

    command: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobPolicy:
    """The settings with which agents run jobs, such as resource limits, prolog and log sizes. The same
    settings apply on all nodes. If a host cannot support a setting, its agent reports this in NodeFacts.
    """

    limits: str = "auto"
    bind: str = "cores"
    max_processes: int = 16_384
    prolog: tuple[str, ...] = ()
    epilog: tuple[str, ...] = ()
    hook_s: float = 60.0
    log_mib: int = 1_024
    log_running_mib: int = 8_192
    log_user_mib: int = 20_480
    log_node_mib: int = 102_400
    log_days: float = 365.0
    log_attempts: int = 10_000
    scratch_overuse: str = "end"
    checkpoint_look_s: float = 30.0
    containers: ContainerPolicy = field(default_factory=ContainerPolicy)
    cluster_name: str = "corral"
    """The name of the cluster, from the table [cluster]. Jobs get this name as SLURM_CLUSTER_NAME."""


DEFAULT_JOB_POLICY = JobPolicy()
