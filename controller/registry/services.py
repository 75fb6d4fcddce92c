"""Makes the services of scheduler.toml, and finds mistakes in the tables [services.NAME]."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config, ConfigProblem, Key, nearest, problem_at
from controller.config.tables.services import ServiceSection
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.model.services import LABEL, Service
from wire.cluster import hosts
from wire.job.health import HealthCheck
from wire.job.placement.job_affinity import JobTerm
from wire.job.spec import JobSpec, spec_problems
from wire.job.start_conditions import Restart, RestartWhen

_KEYS = {
    "cpu_milli": ("cpus",),
    "memory_mib": ("memory",),
    "env": ("environment",),
    "selector": ("select",),
    "restart": ("restart_delay_s",),
}
"""The JobSpec fields that have another name in [services.NAME]: from the field to the path of the key there.
"""


def services_of(config: Config) -> tuple[Service, ...]:
    """Return the services of scheduler.toml."""
    return tuple(
        Service(name, each.user, _spec(name, each), each.replicas, each.max_unavailable, each.ready_after_s)
        for name, each in config.services.items()
    )


def service_problems(config: Config) -> Iterator[ConfigProblem]:
    """Yield the mistakes in the tables [services.NAME]."""
    known = {*config.queues, DEFAULT_QUEUE}
    for service in services_of(config):
        for where, message in spec_problems(service.spec):
            field, _, rest = where.partition(".")
            key: Key = ("services", service.name, *_KEYS.get(field, (field,)), *([rest] if rest else []))
            yield problem_at(config.source, key, message)
        queue = service.spec.queue
        if config.queues and queue not in known:
            key = ("services", service.name, "queue")
            yield problem_at(config.source, key, f"there is no queue {queue!r}", nearest(queue, known))


def _spec(name: str, section: ServiceSection) -> JobSpec:
    spreads = JobTerm(LABEL, name, domains=None, prefer=section.spread == "prefer")
    health = section.health
    return JobSpec(
        command=tuple(section.command),
        name=name,
        project=section.project,
        queue=section.queue,
        priority=section.priority,
        cpu_milli=0 if section.cpus is None else max(1, round(section.cpus * 1_000)),
        memory_mib=0 if section.memory is None else hosts.memory_mib(section.memory),
        gpus=section.gpus,
        gpu_models=tuple(section.gpu_models),
        labels={LABEL: name},
        company=() if section.spread == "none" else (spreads,),
        nodes=section.nodes,
        selector=dict(section.select),
        env=dict(section.environment),
        workdir=section.workdir or None,
        restart=Restart(RestartWhen.ALWAYS, None, section.restart_delay_s, section.restart_delay_most_s),
        grace_s=section.grace_s,
        image=section.image,
        mounts=tuple(section.mounts),
        health=None
        if health is None
        else HealthCheck(
            tuple(health.command),
            health.url,
            health.every_s,
            health.timeout_s,
            health.failures,
            health.start_s,
        ),
    )
