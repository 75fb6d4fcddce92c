"""Everything in scheduler.toml about scheduling: the policy, and the settings of each subsystem."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.core.cluster.gpu_health import DEFAULT_HEALTH_POLICY, GpuHealthPolicy
from controller.core.fairshare.share_tree import FairshareConfig
from controller.core.framework.circuit_breaker import CircuitBreaker
from controller.core.framework.interfaces import SchedulingPolicy
from controller.core.lifecycle.idle_gpus import DEFAULT_IDLE_POLICY, IdlePolicy
from controller.core.lifecycle.node_loss import DEFAULT_NODE_LOSS, NodeLossPolicy
from controller.core.model.events import AS_IT_IS, Overcommit
from controller.core.model.wait_state import WAIT_RULES, WaitRules
from controller.core.pipeline.hooks import Hook, MetricsSource
from controller.core.quota.quotas import NO_QUOTAS, QuotaConfig
from controller.core.rebalance.proposals import NO_REBALANCING, RebalanceRules


@dataclass(frozen=True, slots=True)
class Pipeline(SchedulingPolicy):
    """The policy of the default profile, and the settings that the engine hands to each subsystem."""

    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    sharing: FairshareConfig = field(default_factory=FairshareConfig)
    losses: NodeLossPolicy = DEFAULT_NODE_LOSS
    """What happens to jobs on silent nodes."""
    overcommit: Overcommit = AS_IT_IS
    rules: QuotaConfig = NO_QUOTAS
    """Queues, quotas, licences and ceilings."""
    waiting: WaitRules = WAIT_RULES
    """Rules for waiting jobs."""
    idling: IdlePolicy = DEFAULT_IDLE_POLICY
    """What happens to jobs with idle GPUs."""
    rebalance: RebalanceRules = NO_REBALANCING
    """Whether running jobs may be moved, and at which cost."""
    care: GpuHealthPolicy = DEFAULT_HEALTH_POLICY
    """How unhealthy GPUs are treated."""
    metrics: tuple[MetricsSource, ...] = ()
    """Plugins that add metrics."""
    hooks: tuple[Hook, ...] = ()
    """Plugins that are called after placements."""
