"""Routes of queues: the policy of each queue, what its jobs use, and how long its jobs waited."""

from __future__ import annotations

from controller.api.server.request import Call
from controller.core.accounting.hours import HOUR_S, QueueFigures
from controller.core.accounting.wait_histogram import quantile
from controller.core.quota.usage_counters import GPU, QUEUED, RUNNING
from controller.registry.checks.policy_summary import queue_policies
from wire.api.policy.queues import QueueDay, QueueList, QueueView
from wire.names import WHOLE_GPU

DAY_S = 86_400.0


async def listing(call: Call) -> QueueList:
    """List all queues with their policies and the figures of the last day, the highest priority first."""
    await call.daemon.settled()
    now = call.daemon.now()
    since, figures = call.daemon.accounting.periods.since(now - DAY_S, now)
    state, config = call.daemon.state, call.daemon.config
    policies = {each.queue: each for each in queue_policies(config, call.daemon.engine.pipeline)}
    used = {
        name for (scope, name), each in state.accounts.by_key.items() if scope == "queue" and any(each.used)
    }
    views = []
    for name in [*policies, *sorted((used | figures.queues.keys()) - policies.keys())]:
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
                queue_day(figures.queues.get(name), since, now),
            )
        )
    return QueueList(tuple(views), call.daemon.seq)


def queue_day(figures: QueueFigures | None, since: float, now: float) -> QueueDay:
    """Return the numbers of started and ended jobs of a queue, and the waits of its jobs, between `since` and
    `now`. If `figures` is None, the numbers are 0 and the waits are None.
    """
    each = figures or QueueFigures()
    hours = (now - since) / HOUR_S
    return QueueDay(
        since,
        each.started,
        each.completed,
        each.failed,
        quantile(each.waits, 0.5),
        quantile(each.waits, 0.95),
        each.longest_wait_s if each.started else None,
        round(each.ended / hours, 3) if hours > 0 else 0.0,
    )


def phrases_by_queue(call: Call) -> dict[str, tuple[str, ...]]:
    """Return a dict from queue to the phrases that describe its policy, such as "at most 8 GPUs per job"."""
    found = queue_policies(call.daemon.config, call.daemon.engine.pipeline)
    return {each.queue: each.phrases for each in found}
