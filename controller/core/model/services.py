"""Services: jobs (replicas) that scheduler.toml keeps running at all times, and the orders of operators to
restart or scale services.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace

from wire.codec import dumps, encode
from wire.job.spec import JobSpec

LABEL = "service"
"""The key of the job label that has the service's name as its value. Replicas are spread over nodes by this
label.
"""

MOVE_BEFORE_S = 1_800.0
"""Replicas leave a node this many seconds before a reservation for other users, or a timed drain, begins on
the node.
"""

_PLAIN = JobSpec(command=())


@dataclass(frozen=True, slots=True)
class Service:
    """A service of scheduler.toml. The controller keeps `replicas` jobs with the spec `spec` running at all
    times.

    A restart of the service replaces its replicas (jobs) in turn. At most `max_unavailable` replicas may be
    unready at a time. A replica without a health check is ready after it has run for `ready_after_s` seconds.
    """

    name: str
    user: str
    spec: JobSpec
    replicas: int = 1
    max_unavailable: int = 1
    ready_after_s: float = 10.0

    def revision(self, restarts: int) -> str:
        """Return a short hash of the service's user, the replicas' spec and the number of restarts that
        operators have ordered. A replica with another revision is restarted.

        Fields with their default value are left out, so that a new field of JobSpec does not change the hash.
        """
        values = encode(self.spec)
        changed = {
            each.name: values[each.name]
            for each in fields(JobSpec)
            if getattr(self.spec, each.name) != getattr(_PLAIN, each.name)
        }
        return hashlib.sha256(dumps([self.user, changed, restarts]).encode()).hexdigest()[:12]

    def replica_spec(self, number: int) -> JobSpec:
        """Return the job spec of the replica with this number. The job name and the environment in the spec
        contain the number.
        """
        env = {**self.spec.env, "CORRAL_SERVICE": self.name, "CORRAL_REPLICA": str(number)}
        return replace(self.spec, name=f"{self.name}.{number}", env=env)


@dataclass(frozen=True, slots=True)
class Replica:
    """One job of a service (a replica): its number, and a hash of its settings (`revision`).

    `replaces` is the id of the older replica that ends when this job is ready. `replaces` is None if there is
    no older replica.
    """

    service: str
    number: int
    revision: str
    replaces: int | None = None


@dataclass(frozen=True, slots=True)
class ServiceOrders:
    """The orders of operators for one service: how often they have ordered a restart (`restarts`), and the
    ordered number of replicas (`scaled`).

    `scaled` is None if the number in scheduler.toml applies. `declared` was the number in scheduler.toml when
    `scaled` was ordered. When scheduler.toml is changed to another number, `scaled` no longer applies.
    """

    restarts: int = 0
    scaled: int | None = None
    declared: int = 0

    def wanted(self, service: Service) -> int:
        """Return the number of replicas that the service must run."""
        if self.scaled is None or self.declared != service.replicas:
            return service.replicas
        return self.scaled


NO_ORDERS = ServiceOrders()
