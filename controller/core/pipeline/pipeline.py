"""The Pipeline: the scheduling policy of scheduler.toml, and the settings of each part of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.core.cluster.dataset_reads import DEFAULT_DATASETS, DatasetPolicy
from controller.core.cluster.gpus.gpu_health import DEFAULT_HEALTH_POLICY, GpuHealthPolicy
from controller.core.cluster.hypothetical_nodes import HypotheticalNodes
from controller.core.fairshare.usage import FairshareConfig
from controller.core.framework.circuit_breaker import CircuitBreaker
from controller.core.framework.interfaces import SchedulingPolicy
from controller.core.lifecycle.failure_classes import FailureRule
from controller.core.lifecycle.idle_gpus import DEFAULT_IDLE_POLICY, IdlePolicy
from controller.core.lifecycle.node_loss import DEFAULT_NODE_LOSS, NodeLossPolicy
from controller.core.model.events.nodes import AS_IT_IS, Overcommit
from controller.core.model.services import Service
from controller.core.model.time_limits import TIME_LIMIT_RULES, TimeLimitRules
from controller.core.model.wait_state import WAIT_RULES, WaitRules
from controller.core.pipeline.hooks import Hook, MetricsSource
from controller.core.queue.order import Order
from controller.core.quota.quota_config import NO_QUOTAS, QuotaConfig
from controller.core.rebalance.proposals import NO_REBALANCING, RebalanceRules


@dataclass(frozen=True, slots=True)
class Pipeline(SchedulingPolicy):
    """The scheduling policy of the default scheduler profile, and the settings of each part of the engine."""

    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    sharing: FairshareConfig = field(default_factory=FairshareConfig)
    losses: NodeLossPolicy = DEFAULT_NODE_LOSS
    """The settings for jobs on silent nodes: the time after which jobs count as lost, and whether lost jobs
    are queued again.
    """
    overcommit: Overcommit = AS_IT_IS
    rules: QuotaConfig = NO_QUOTAS
    """Queues, quotas, licences and ceilings."""
    waiting: WaitRules = WAIT_RULES
    """The settings for waiting jobs."""
    limits: TimeLimitRules = TIME_LIMIT_RULES
    """The settings about the time limits of running jobs."""
    datasets: DatasetPolicy = DEFAULT_DATASETS
    """The settings of [datasets]: for how long jobs prefer nodes that have read their data sets."""
    idling: IdlePolicy = DEFAULT_IDLE_POLICY
    """The settings for jobs with idle GPUs: when GPUs count as idle, and whether the job is ended."""
    rebalance: RebalanceRules = NO_REBALANCING
    """The settings of rebalancing: whether running jobs may be moved, and at what cost."""
    health_policy: GpuHealthPolicy = DEFAULT_HEALTH_POLICY
    """The settings for GPU faults: which faults take a GPU out of service, and when the GPU is checked
    again.
    """
    services: tuple[Service, ...] = ()
    """The services whose replicas must run at all times."""
    failures: tuple[FailureRule, ...] = ()
    """The failure classes that the site has defined in addition to those of Corral."""
    metrics: tuple[MetricsSource, ...] = ()
    """Plugins that add samples to /metrics."""
    order_of_projects: Order | None = None
    """The order plugin that replaces `order` as soon as the cluster has jobs of a second project. None:
    `order` is never replaced.
    """
    pool_nodes: tuple[HypotheticalNodes, ...] = ()
    """The nodes that machine pools could start. A job that fits only on these nodes is accepted."""
    hooks: tuple[Hook, ...] = ()
    """Plugins that are called after placements."""
