"""Routes of services: list, show, restart, scale."""

from __future__ import annotations

from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.core.engine import Engine
from controller.core.explain.why_pending import reason_of
from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs import policy_inputs
from controller.core.model.job import Job
from controller.core.model.services import Service
from controller.core.services.readiness import is_ready
from wire.api.policy.services import ReplicaView, ScaleRequest, ServiceList, ServiceView


async def listing(call: Call) -> ServiceList:
    """List all services with their replicas."""
    await call.daemon.settled()
    return ServiceList(service_views(call.daemon.engine, call.daemon.now()), call.daemon.seq)


async def show(call: Call) -> ServiceView:
    """Show one service with its replicas."""
    await call.daemon.settled()
    return _named(call)


async def restart(call: Call) -> ServiceView:
    """Restart the replicas of a service in turn, as max_unavailable allows. Return the service."""
    await call.ask(policy_inputs.RestartService(call.path["service"], call.caller.user))
    return _named(call)


async def scale(call: Call, request: ScaleRequest) -> ServiceView:
    """Set the number of replicas of a service, until scheduler.toml sets another number."""
    await call.ask(policy_inputs.ScaleService(call.path["service"], request.replicas, call.caller.user))
    return _named(call)


def service_views(engine: Engine, now: float) -> tuple[ServiceView, ...]:
    """Return the API's views of all services, ordered by name."""
    return tuple(
        _view(engine, each, now) for each in sorted(engine.pipeline.services, key=lambda each: each.name)
    )


def _named(call: Call) -> ServiceView:
    name, engine = call.path["service"], call.daemon.engine
    for service in engine.pipeline.services:
        if service.name == name:
            return _view(engine, service, call.daemon.now())
    hint = "'corral service list' shows all services."
    raise rejected("not_found", f"there is no service {name!r}", "service", hint)


def _view(engine: Engine, service: Service, now: float) -> ServiceView:
    state = engine.state
    orders = state.orders_of(service.name)
    revision = service.revision(orders.restarts)
    jobs = [state.jobs[job] for job in sorted(state.replicas.get(service.name, ()))]
    replicas = sorted(
        (_replica(engine, service, job, revision, now) for job in jobs),
        key=lambda each: (each.number, each.job),
    )
    refusal = engine.services.refusals.get(service.name)
    return ServiceView(
        name=service.name,
        user=service.user,
        project=service.spec.project,
        queue=service.spec.queue,
        wanted=orders.wanted(service),
        declared=service.replicas,
        ready=len({each.number for each in replicas if each.ready}),
        current=len({each.number for each in replicas if each.ready and each.current}),
        max_unavailable=service.max_unavailable,
        replicas=tuple(replicas),
        problem="" if refusal is None else _problem_of(refusal),
    )


def _problem_of(refusal: Refusal) -> str:
    """Return the message of the refusal, preceded by the name of the field if the message does not contain
    this name.
    """
    if not refusal.where or refusal.where in refusal.message:
        return refusal.message
    return f"{refusal.where}: {refusal.message}"


def _replica(engine: Engine, service: Service, job: Job, revision: str, now: float) -> ReplicaView:
    assert job.replica is not None
    return ReplicaView(
        job.replica.number,
        job.id,
        job.state,
        reason_of(engine.state, job),
        job.detail,
        tuple(member.allocation.node for member in job.running),
        is_ready(engine.state, service, job, now),
        job.replica.revision == revision,
        job.wait.restarts,
        job.started_at,
        job.replica.replaces,
    )
