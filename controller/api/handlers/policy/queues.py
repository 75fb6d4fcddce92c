"""Routes of queues: the policy of each queue, and what its jobs use."""

from __future__ import annotations

from controller.api.server.request import Call
from controller.core.quota.usage_counters import GPU, QUEUED, RUNNING
from controller.registry.checks.policy_summary import queue_policies
from wire.api.tenants import QueueList, QueueView
from wire.names import WHOLE_GPU


async def listing(call: Call) -> QueueList:
    """List all queues with their policies, the highest priority first."""
    await call.daemon.settled()
    state, config = call.daemon.state, call.daemon.config
    policies = {each.queue: each for each in queue_policies(config, call.daemon.engine.pipeline)}
    used = {
        name for (scope, name), each in state.accounts.by_key.items() if scope == "queue" and any(each.used)
    }
    views = []
    for name in [*policies, *sorted(used - policies.keys())]:
        amounts = state.accounts.tenant(("queue", name)).used
        policy = policies.get(name)
        section = config.queues.get(name)
        views.append(
            QueueView(
                name,
                policy.priority if policy else 0,
                policy.phrases if policy else (),
                amounts[QUEUED],
                amounts[RUNNING],
                amounts[GPU] / WHOLE_GPU,
                section.model_dump(mode="json", exclude_unset=True) if section else {},
            )
        )
    return QueueList(tuple(views), call.daemon.seq)


def phrases_by_queue(call: Call) -> dict[str, tuple[str, ...]]:
    """Return for each queue the phrases, such as "at most 8 GPUs per job", that describe its policy."""
    found = queue_policies(call.daemon.config, call.daemon.engine.pipeline)
    return {each.queue: each.phrases for each in found}
