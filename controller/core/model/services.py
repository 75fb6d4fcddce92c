"""Services: the jobs (replicas) that scheduler.toml wants to run at all times, and the orders of operators
about them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace

from wire.codec import dumps, encode
from wire.job.spec import JobSpec

LABEL = "service"
"""The job label with the name of the service. Replicas are spread over nodes by this label."""

MOVE_BEFORE_S = 1_800.0
"""Replicas leave a node this many seconds before a reservation of the node for others begins."""

_PLAIN = JobSpec(command=())


@dataclass(frozen=True, slots=True)
class Service:
    """A service of scheduler.toml. It wants `replicas` running jobs with the request `spec`.

    While replicas are restarted one after the other, at most `max_unavailable` of them may be unready. A
    replica without a health check is ready when it has run for `ready_after_s` seconds.
    """

    name: str
    user: str
    spec: JobSpec
    replicas: int = 1
    max_unavailable: int = 1
    ready_after_s: float = 10.0

    def revision(self, restarts: int) -> str:
        """Return a short hash of the request and of the number of ordered restarts. A replica with another
        revision has to be restarted.

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
        """Return the request of the replica with this number. Its name and its environment contain the
        number.
        """
        env = {**self.spec.env, "CORRAL_SERVICE": self.name, "CORRAL_REPLICA": str(number)}
        return replace(self.spec, name=f"{self.name}.{number}", env=env)


@dataclass(frozen=True, slots=True)
class Replica:
    """The place of a job in its service: the job is replica `number` of the service, with the settings of
    `revision`.

    `replaces` is the job that ends when this one is ready; None if this job replaces no running job.
    """

    service: str
    number: int
    revision: str
    replaces: int | None = None


@dataclass(frozen=True, slots=True)
class ServiceOrders:
    """What operators have ordered for one service: how often it was restarted, and its number of replicas.

    `scaled` is None if scheduler.toml decides the number. `declared` is the number in scheduler.toml at the
    time of the order. The order applies until that number changes.
    """

    restarts: int = 0
    scaled: int | None = None
    declared: int = 0

    def wanted(self, service: Service) -> int:
        """Return the number of replicas that must run."""
        if self.scaled is None or self.declared != service.replicas:
            return service.replicas
        return self.scaled


NO_ORDERS = ServiceOrders()
