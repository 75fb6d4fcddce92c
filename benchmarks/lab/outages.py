"""Planned outages in each week of the lab: two nodes are drained for 12 hours, and two other nodes are
reserved for maintenance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.lab.workload import HOUR_S, START_S, WEEK_H
from controller.core.accounting.idle_causes import IdleCause
from controller.core.model import inputs
from controller.core.model.inputs import Input
from wire.cluster.reservation import ReservationSpec

_DRAIN_H, _RESUME_H = 50.0, 62.0
_ANNOUNCED_H, _MAINTENANCE_H, _MAINTENANCE_HOURS = 112.0, 136.0, 4.0
_ADMIN = "root"
DRAIN, MAINTENANCE = IdleCause.DRAINED.value, IdleCause.MAINTENANCE.value


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which nodes take no new jobs."""

    cause: str
    nodes: tuple[str, ...]
    starts_at: float
    ends_at: float


def outages(nodes: Sequence[str], days: float) -> list[Outage]:
    """Return the outages of each whole week: the third and fourth node are drained, the first and second
    reserved.
    """
    found = []
    for week in range(int(days // 7)):
        begin = START_S + week * WEEK_H * HOUR_S
        ends_h = _MAINTENANCE_H + _MAINTENANCE_HOURS
        found += [
            Outage(DRAIN, tuple(nodes[2:4]), begin + _DRAIN_H * HOUR_S, begin + _RESUME_H * HOUR_S),
            Outage(MAINTENANCE, tuple(nodes[:2]), begin + _MAINTENANCE_H * HOUR_S, begin + ends_h * HOUR_S),
        ]
    return found


def commands_of(outage: Outage) -> list[tuple[float, Input]]:
    """Return the commands of the admin for an outage, each with its time."""
    if outage.cause == DRAIN:
        drains = [(outage.starts_at, inputs.Drain(node, _ADMIN, "rack power")) for node in outage.nodes]
        return [*drains, *((outage.ends_at, inputs.Resume(node, _ADMIN)) for node in outage.nodes)]
    spec = ReservationSpec(
        name=f"maintenance-{outage.starts_at:.0f}",
        starts_at=outage.starts_at,
        duration_s=outage.ends_at - outage.starts_at,
        nodes=outage.nodes,
    )
    announced_at = outage.starts_at - (_MAINTENANCE_H - _ANNOUNCED_H) * HOUR_S
    return [(announced_at, inputs.Reserve(spec, _ADMIN, anyway=True))]
