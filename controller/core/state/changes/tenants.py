"""Applies events about tenants, quotas, shares, reservations, services and the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.core.fairshare.offqueue_usage import OffQueueUse
from controller.core.model.events.controller import ConfigApplied
from controller.core.model.events.reservations import (
    ReservationBegan,
    ReservationCancelled,
    ReservationEnded,
    ReservationMade,
)
from controller.core.model.events.services import ServiceRestarted, ServiceScaled
from controller.core.model.events.tenants import (
    BudgetReached,
    HoursChanged,
    OffQueueProcessEnded,
    OffQueueProcessStarted,
    QuotaSet,
    QuotaUnset,
    ShareSet,
)
from controller.core.reservations.reservations import Reservation
from controller.core.state.state import AppliedConfig, State


def _offqueue_process_started(state: State, event: OffQueueProcessStarted) -> None:
    stint = OffQueueUse(event.node, event.uuid, event.user, event.pid, event.command, event.at, event.rate)
    state.offqueue.begin(stint, state.shares)


def _offqueue_process_ended(state: State, event: OffQueueProcessEnded) -> None:
    state.offqueue.end((event.node, event.uuid, event.user), event.at, state.shares)


def _quota_set(state: State, event: QuotaSet) -> None:
    state.limit((event.scope, event.name), event.quota)


def _quota_unset(state: State, event: QuotaUnset) -> None:
    state.limit((event.scope, event.name), None)


def _budget_reached(state: State, event: BudgetReached) -> None:
    state.budgets.note_alert(event.project, event.percent, event.at)


def _hours_changed(state: State, event: HoursChanged) -> None:
    state.follow_hours(event.tables)


def _share_set(state: State, event: ShareSet) -> None:
    if event.weight is not None:
        state.shares.set_weight(event.share, event.weight)
    if event.soft is not None or event.hard is not None:
        state.limit_share(event.share, event.soft, event.hard)


def _reservation_made(state: State, event: ReservationMade) -> None:
    state.reservations.add(Reservation(event.asked, event.nodes, event.asked.starts_at, event.by))


def _reservation_began(state: State, event: ReservationBegan) -> None:
    state.reservations.begin(event.reservation)


def _reservation_ended(state: State, event: ReservationEnded) -> None:
    state.reservations.end(event.reservation, event.again_at)


def _reservation_cancelled(state: State, event: ReservationCancelled) -> None:
    state.reservations.remove(event.reservation)


def _service_restarted(state: State, event: ServiceRestarted) -> None:
    orders = state.orders_of(event.service)
    state.services[event.service] = replace(orders, restarts=orders.restarts + 1)


def _service_scaled(state: State, event: ServiceScaled) -> None:
    orders = state.orders_of(event.service)
    state.services[event.service] = replace(orders, scaled=event.replicas, declared=event.declared)


def _config_applied(state: State, event: ConfigApplied) -> None:
    state.config = AppliedConfig(event.digest, event.at, event.by)
    state.budgets.advance(event.at)
    if event.overcommit is not None:
        for node in list(state.nodes):
            if node.boot_id:
                state.nodes.set_facts(node, node.facts, node.boot_id, event.overcommit)


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    OffQueueProcessStarted: _offqueue_process_started,
    OffQueueProcessEnded: _offqueue_process_ended,
    QuotaSet: _quota_set,
    QuotaUnset: _quota_unset,
    BudgetReached: _budget_reached,
    HoursChanged: _hours_changed,
    ShareSet: _share_set,
    ReservationMade: _reservation_made,
    ReservationBegan: _reservation_began,
    ReservationEnded: _reservation_ended,
    ReservationCancelled: _reservation_cancelled,
    ServiceRestarted: _service_restarted,
    ServiceScaled: _service_scaled,
    ConfigApplied: _config_applied,
}
