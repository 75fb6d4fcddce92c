"""API bodies for the whole cluster: the summary, health, events and the event stream."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Mapping, Optional

from wire.api.jobs import JobView
from wire.api.nodes import NodeView
from wire.dataclass import dataclass


@dataclass(frozen=True)
class ClusterView:
    """Summary of the cluster: numbers of jobs and nodes by state, and used resources."""

    name: str
    version: str
    now: float
    seq: int
    jobs: Mapping[str, int]
    nodes: Mapping[str, int]
    gpus: int
    gpus_used: float
    cpu_milli: int
    cpu_used_milli: int
    started_at: float
    wait_alarms: int = 0
    """The number of waiting jobs that have waited more than `[scheduler] wait_alarm` times as long as similar
    jobs usually wait.
    """


@dataclass(frozen=True)
class EventView:
    """One event of the journal. `text` describes the event in a sentence for users."""

    seq: int
    at: float
    kind: str
    text: str
    job: Optional[int] = None
    node: Optional[str] = None
    data: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    """Label of the job: 17, or 12_3 for an element of array 12."""


@dataclass(frozen=True)
class EventList:
    """A page of events from the journal. Retention has deleted all events with numbers up to and including
    `begins`. If no event was deleted, `begins` is 0.
    """

    events: tuple[EventView, ...]
    seq: int
    begins: int = 0


@dataclass(frozen=True)
class PulseSample:
    """Figures of the cluster at the time `at`. The samples of the last minutes are one second apart. The
    samples of the last day are one minute apart, and each of their figures is the mean over that minute.
    """

    at: float
    gpus: int
    """The GPUs of all nodes, also of nodes without a connection."""
    gpus_held: float
    load: Optional[float]
    """The mean utilisation of the measured GPUs in percent; None if none is measured."""
    power_w: Optional[float]
    """The power of the measured GPUs together, in watts; None if none is measured."""
    waiting: float
    """The number of jobs in the queue."""
    waiting_gpu_hours: float
    """The GPU-hours that the jobs in the queue request: the sum of their GPUs multiplied by their time
    limits.
    """
    started_per_hour: float
    """The number of jobs that started for the first time in the last hour."""
    failed_per_hour: float
    """The number of jobs that failed in the last hour."""
    wait_p50_s: Optional[float] = None
    """The median wait in seconds of the jobs that started in the last hour; None if no job started."""
    wait_p90_s: Optional[float] = None
    fragmentation: float = 0.0
    """The fraction (0 to 1) of the free GPU capacity that is on nodes with at least one used GPU."""
    alarms: tuple[str, ...] = ()
    """Alarms about the controller itself, such as an overdue scheduling cycle. The samples of minutes have
    none.
    """


@dataclass(frozen=True)
class PulseView:
    """The samples that the controller has kept, oldest first. No samples are taken while the controller
    cannot write its store.
    """

    samples: tuple[PulseSample, ...]
    step_s: float
    """Seconds between two samples."""
    kept_s: float
    """Seconds for which a sample is kept."""
    started_at: float
    """The time at which the controller started. There are no samples from before this time."""
    now: float


@dataclass(frozen=True)
class GpuLoadView:
    """The loads (utilisation in percent) of GPUs over the last 10 minutes, oldest first. Each load is the
    mean over `step_s` seconds, and None if there is no reading from this time.

    `nodes` is a dict from node name to a dict from GPU UUID to the loads of this GPU. `jobs` is a dict from
    job id to the mean loads of the job's GPUs; the loads before the start of the last attempt are None.
    """

    nodes: Mapping[str, Mapping[str, tuple[Optional[int], ...]]]
    jobs: Mapping[str, tuple[Optional[int], ...]]
    step_s: float
    now: float


@dataclass(frozen=True)
class StreamBatch:
    """A message of the event stream: the events of one commit to the journal, and the new state of each job
    and node that these events change.

    GPU readings are not in the journal. They arrive in messages without events, with the nodes that have new
    GPU readings. If the client has requested pulse=1, other messages without events have a sample of the
    cluster's figures.
    """

    seq: int
    events: tuple[EventView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    pulse: Optional[PulseSample] = None


@dataclass(frozen=True)
class Health:
    """The health of the controller. `status` is `ok`, or the reason why the controller takes no work. `user`
    and `role` are the name and the role of the user that sent the request. `alarms` has sentences about an
    overdue scheduling cycle, a long commit and a blocked event loop.
    """

    status: str
    version: str
    uptime_s: float
    seq: int
    user: str = ""
    role: str = ""
    alarms: tuple[str, ...] = ()
