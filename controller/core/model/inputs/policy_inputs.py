"""Commands of operators on quotas, shares, reservations, rebalancing and services."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.inputs.input import Input
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec


@dataclass(frozen=True, slots=True)
class SetQuota(Input):
    """Set limits of a user, project or queue. Limits that the command does not name stay unchanged."""

    scope: str
    name: str
    quota: Quota
    by: str


@dataclass(frozen=True, slots=True)
class UnsetQuota(Input):
    """Remove the limits that an operator set for a tenant. The limits of the configuration then apply
    again.
    """

    scope: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class Reserve(Input):
    """Reserve nodes for a time. If jobs may still run on the nodes when the reservation begins, the command
    is refused, except with `anyway`.
    """

    spec: ReservationSpec
    by: str
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class Rebalance(Input):
    """Carry out the rebalancing proposal (moves of running jobs) with the id `proposal`, if the proposal
    still exists. Without an id, carry out proposals until there are none left.
    """

    by: str
    proposal: str = ""


@dataclass(frozen=True, slots=True)
class RestartService(Input):
    """Restart all replicas of a service, at most `max_unavailable` of them at a time."""

    service: str
    by: str


@dataclass(frozen=True, slots=True)
class ScaleService(Input):
    """Set the number of replicas of a service; with None, the number in scheduler.toml applies again."""

    service: str
    replicas: int | None
    by: str


@dataclass(frozen=True, slots=True)
class CancelReservation(Input):
    reservation: str
    by: str


@dataclass(frozen=True, slots=True)
class SetShare(Input):
    """Set the weight or limits of the share of an organisation, project or user (`project/user`); None leaves
    a value unchanged.
    """

    share: str
    weight: float | None
    by: str
    soft: float | None = None
    hard: float | None = None
