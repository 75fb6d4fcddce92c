"""API bodies about the scheduler: its policy, its cycles, and the network and GPU topology of nodes."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from wire.dataclass import dataclass


@dataclass(frozen=True)
class PassView:
    """The latest scheduling cycle: the time of its begin, its duration, and the number of jobs that it
    placed.
    """

    at: float
    seconds: float
    placed: int


@dataclass(frozen=True)
class SchedulerView:
    """The scheduling policy in effect, and the numbers of waiting and running jobs.

    `policy` and `preemption` have the keys of [scheduler] and [preemption] in scheduler.toml. If there are
    scheduler profiles, each profile may replace keys of `policy` and `preemption`; `GET /v1/profiles` shows
    the profiles.
    """

    order: str
    """The plugin that orders the waiting jobs, such as `priority` or `multifactor`."""
    backfill: str
    policy: Mapping[str, Any]
    preemption: Mapping[str, Any]
    profiles: tuple[str, ...]
    """The names of the scheduler profiles; empty if there are no profiles."""
    quota_provider: str
    """The plugin that provides the quotas; `unlimited` if scheduler.toml has no quotas."""
    waiting: int
    """The number of jobs in the queue, which start as soon as the policy allows."""
    not_ready: int
    """The number of jobs that are not in the queue yet. Such jobs are held, or wait for a dependency, a time,
    data or a run slot of their array.
    """
    running: int
    """The number of jobs that hold resources."""
    passes: int
    """The number of scheduling cycles since the controller started."""
    pass_mean_s: Optional[float]
    """The mean duration of a scheduling cycle in seconds; None before the first cycle."""
    last_pass: Optional[PassView]
    seq: int


@dataclass(frozen=True)
class Triggered:
    """The result of a scheduling cycle that an operator has requested."""

    scheduled: int
    """The number of jobs that the cycle placed."""
    remaining: int
    """The number of jobs that still wait in the queue."""
    seq: int


@dataclass(frozen=True)
class SwitchView:
    """One network switch, from the table [topology] of scheduler.toml. `above` is the next wider switch;
    empty for the widest.
    """

    name: str
    above: str
    nodes: tuple[str, ...]
    """All nodes below the switch, ordered by name."""


@dataclass(frozen=True)
class GpuPlace:
    """The place of one GPU in its node: its NUMA node, and the `index` of each GPU with an NVLink to this
    GPU.
    """

    index: int
    model: str
    numa: int
    links: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeTopology:
    """The switches above a node, the widest first, and its GPUs."""

    name: str
    switches: tuple[str, ...]
    numa_nodes: int
    gpus: tuple[GpuPlace, ...] = ()


@dataclass(frozen=True)
class TopologyView:
    """The network switches, and the topology of each node. Without [topology] there are no switches."""

    switches: tuple[SwitchView, ...]
    nodes: tuple[NodeTopology, ...]
    seq: int
