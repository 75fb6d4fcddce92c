"""Metrics of the present state: jobs, nodes, GPUs and quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from controller.api.handlers.service.cluster import wait_alarms
from controller.api.metrics import families as m
from controller.core.cluster.node import Node
from controller.core.engine import Engine
from controller.core.explain.why_pending import reason_of
from controller.core.pipeline.hooks import Sample
from controller.core.quota.usage_counters import GPU
from controller.core.rebalance.proposals import free_gpu_layout
from controller.core.state.state import State
from controller.engines.driver.foreign_attempts import Presence
from controller.engines.engines import Engines
from controller.engines.pools.machine_records import Stage
from wire.agent.reports import GpuSample
from wire.cluster.quota import ANY_NAME
from wire.names import SHOWN_STATES, WHOLE_GPU, GpuHealth, JobState, NodeState

_LIVE = tuple(state for state in SHOWN_STATES if not state.terminal)


def cluster_metrics(engine: Engine) -> Iterator[Sample]:
    """Yield the numbers of jobs, nodes and GPUs in each state, the queued jobs by reason, the wait alarms,
    the most free GPUs on one node, the fragmentation of the free GPUs, and the used part of each quota.
    """
    state = engine.state
    jobs = Counter(job.state for job in state.live())
    reasons = Counter(reason_of(state, job).value for job in state.live() if job.state is JobState.QUEUED)
    nodes = Counter(node.state for node in state.nodes)
    gpus = Counter(kind for node in state.nodes for kind in _gpu_states(node))
    yield from (m.JOBS(jobs[each], each.value) for each in _LIVE)
    yield from (m.QUEUED_JOBS(count, reason) for reason, count in sorted(reasons.items()))
    yield m.WAIT_ALARMS(wait_alarms(state))
    yield from (m.NODES(nodes[each], each.value) for each in NodeState)
    yield from (m.GPUS(count, kind) for kind, count in sorted(gpus.items()))
    columns = state.nodes.columns
    free = (columns.gpu_free == WHOLE_GPU) & columns.open[:, None]
    yield m.FREE_GPUS_IN_BLOCK(int(free.sum(axis=1).max(initial=0)))
    yield m.FRAGMENTATION(round(free_gpu_layout(columns).fragmentation, 4))
    yield from _quotas(state)


def _quotas(state: State) -> Iterator[Sample]:
    """Yield the used part (1 if the limit is reached) of each quota that limits the GPUs of one user, project
    or queue.
    """
    for scope, name in state.quotas.names():
        quota = state.quotas.quota((scope, name))
        most = quota.hard.gpus if quota.hard.gpus is not None else quota.soft.gpus
        if name == ANY_NAME or not most:
            continue
        account = state.accounts.by_key.get((scope, name))
        used = account.used[GPU] / WHOLE_GPU if account is not None else 0.0
        yield m.QUOTA_USED(round(used / most, 4), scope, name)


def gpu_metrics(engine: Engine, readings: Mapping[str, Mapping[str, GpuSample]]) -> Iterator[Sample]:
    """Yield 1 for every GPU whose health state is OK, and 0 for every other GPU. For each GPU on a connected
    node, also yield its latest measurements.
    """
    for node in engine.state.nodes:
        samples = readings.get(node.name, {}) if node.up else {}
        for gpu in node.facts.gpus:
            labels = node.name, gpu.number, gpu.uuid
            yield m.GPU_HEALTHY(node.health_of(gpu) is GpuHealth.OK, *labels)
            sample = samples.get(gpu.uuid)
            if sample is None:
                continue
            yield m.GPU_UTILISATION(sample.utilisation, *labels)
            yield m.GPU_MEMORY(sample.memory_used_mib << 20, *labels)
            yield m.GPU_TEMPERATURE(sample.temperature_c, *labels)
            yield m.GPU_POWER(sample.power_w, *labels)
            yield m.GPU_ECC(sample.ecc_uncorrected, *labels)


def engine_metrics(engines: Engines, now: float) -> Iterator[Sample]:
    """Yield for every execution engine whether it answers, and the numbers of its attempts and failures. For
    every machine pool, yield its machines, orders and failures, and the money spent today.
    """
    for name, driver in sorted(engines.drivers.items()):
        found = Counter(each.presence for each in driver.attempts if each.record.ended_at is None)
        yield m.ENGINE_UP(not driver.breaker.is_open, name)
        yield from (
            m.ENGINE_JOBS(found[each], name, each.value) for each in Presence if each is not Presence.ENDED
        )
        yield m.ENGINE_BREAKER(driver.breaker.opened, name)
        yield m.ENGINE_ORPHANS(driver.sweep.ended, name)
    for name, pool in sorted(engines.pools.items()):
        stages = pool.stages()
        yield from (
            m.POOL_MACHINES(stages[each], name, each.value) for each in Stage if each is not Stage.ENDED
        )
        yield m.POOL_ORDERS(pool.keeper.ordered, name)
        yield m.POOL_FAILURES(pool.back_off.failures, name)
        yield m.POOL_SPENT(pool.budget.spent_today(now), name)


def _gpu_states(node: Node) -> Iterator[str]:
    """Yield the state of each GPU of a node: free, shared, used, away (the node is not connected), or the
    health state of an unhealthy GPU."""
    used: Counter[str] = Counter()
    for allocation in node.held.values():
        used.update({hold.uuid: hold.milli for hold in allocation.gpus})
    for gpu in node.facts.gpus:
        health = node.health_of(gpu)
        if not node.up:
            yield "away"
        elif health is not GpuHealth.OK:
            yield health.value
        else:
            milli = used[gpu.uuid]
            yield "used" if milli >= WHOLE_GPU else "shared" if milli else "free"
