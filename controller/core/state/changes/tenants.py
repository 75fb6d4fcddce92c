"""Applies events about tenants, quotas, shares, reservations, services and the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.core.fairshare.offqueue_usage import OffQueueUse
from controller.core.model import events
from controller.core.reservations.reservations import Reservation
from controller.core.state.state import AppliedConfig, State


def _offqueue_process_started(state: State, event: events.OffQueueProcessStarted) -> None:
    stint = OffQueueUse(event.node, event.uuid, event.user, event.pid, event.command, event.at, event.rate)
    state.offqueue.begin(stint, state.shares)


def _offqueue_process_ended(state: State, event: events.OffQueueProcessEnded) -> None:
    state.offqueue.end((event.node, event.uuid, event.user), event.at, state.shares)


def _quota_set(state: State, event: events.QuotaSet) -> None:
    state.limit((event.scope, event.name), event.quota)


def _quota_unset(state: State, event: events.QuotaUnset) -> None:
    state.limit((event.scope, event.name), None)


def _budget_reached(state: State, event: events.BudgetReached) -> None:
    state.budgets.note_alert(event.project, event.percent, event.at)


def _hours_changed(state: State, event: events.HoursChanged) -> None:
    state.follow_hours(event.tables)


def _share_set(state: State, event: events.ShareSet) -> None:
    if event.weight is not None:
        state.shares.set_weight(event.share, event.weight)
    if event.soft is not None or event.hard is not None:
        state.limit_share(event.share, event.soft, event.hard)


def _reservation_made(state: State, event: events.ReservationMade) -> None:
    state.reservations.add(Reservation(event.asked, event.nodes, event.asked.starts_at, event.by))


def _reservation_began(state: State, event: events.ReservationBegan) -> None:
    state.reservations.begin(event.reservation)


def _reservation_ended(state: State, event: events.ReservationEnded) -> None:
    state.reservations.end(event.reservation, event.again_at)


def _reservation_cancelled(state: State, event: events.ReservationCancelled) -> None:
    state.reservations.remove(event.reservation)


def _service_restarted(state: State, event: events.ServiceRestarted) -> None:
    orders = state.orders_of(event.service)
    state.services[event.service] = replace(orders, restarts=orders.restarts + 1)


def _service_scaled(state: State, event: events.ServiceScaled) -> None:
    orders = state.orders_of(event.service)
    state.services[event.service] = replace(orders, scaled=event.replicas, declared=event.declared)


def _config_applied(state: State, event: events.ConfigApplied) -> None:
    state.config = AppliedConfig(event.digest, event.at, event.by)
    state.budgets.advance(event.at)
    if event.overcommit is not None:
        for node in list(state.nodes):
            if node.boot_id:
                state.nodes.set_facts(node, node.facts, node.boot_id, event.overcommit)


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    events.OffQueueProcessStarted: _offqueue_process_started,
    events.OffQueueProcessEnded: _offqueue_process_ended,
    events.QuotaSet: _quota_set,
    events.QuotaUnset: _quota_unset,
    events.BudgetReached: _budget_reached,
    events.HoursChanged: _hours_changed,
    events.ShareSet: _share_set,
    events.ReservationMade: _reservation_made,
    events.ReservationBegan: _reservation_began,
    events.ReservationEnded: _reservation_ended,
    events.ReservationCancelled: _reservation_cancelled,
    events.ServiceRestarted: _service_restarted,
    events.ServiceScaled: _service_scaled,
    events.ConfigApplied: _config_applied,
}
