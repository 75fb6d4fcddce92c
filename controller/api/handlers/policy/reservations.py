"""Routes of reservations: list, show, make, cancel."""

from __future__ import annotations

from controller.api.server.errors import rejected
from controller.api.server.request import Call
from controller.core.model.inputs import policy_inputs
from controller.core.reservations.reservations import Reservation
from controller.core.state.state import State
from wire.api.policy.reservations import ReservationList, ReservationView, ReserveRequest


async def listing(call: Call) -> ReservationList:
    """List current and future reservations of nodes, in the order of their start."""
    await call.daemon.settled()
    state = call.daemon.state
    found = sorted(state.reservations.by_name.values(), key=lambda each: (each.starts_at, each.spec.name))
    return ReservationList(tuple(_view(state, each) for each in found), call.daemon.seq)


async def show(call: Call) -> ReservationView:
    """Show one reservation of nodes."""
    return _view(call.daemon.state, await _named(call))


async def reserve(call: Call, request: ReserveRequest) -> ReservationView:
    """Reserve nodes for a time. Return the reservation with its nodes."""
    await call.ask(policy_inputs.Reserve(request.reservation, call.caller.user, request.anyway))
    state = call.daemon.state
    return _view(state, state.reservations.by_name[request.reservation.name])


async def cancel(call: Call) -> ReservationView:
    """Cancel a reservation. Return the cancelled reservation."""
    found = await _named(call)
    view = _view(call.daemon.state, found)
    await call.ask(policy_inputs.CancelReservation(found.spec.name, call.caller.user))
    return view


async def delete(call: Call) -> ReservationView:
    """Cancel a reservation, like the route that ends in `/cancel`. Return the cancelled reservation."""
    return await cancel(call)


async def _named(call: Call) -> Reservation:
    await call.daemon.settled()
    name = call.path["reservation"]
    found = call.daemon.state.reservations.by_name.get(name)
    if found is None:
        message, hint = f"there is no reservation {name!r}", "'corral reserve list' lists the reservations."
        raise rejected("not_found", message, "reservation", hint)
    return found


def _view(state: State, each: Reservation) -> ReservationView:
    held = {job for name in each.nodes if (node := state.nodes.get(name)) is not None for job in node.held}
    return ReservationView(
        each.spec, each.nodes, each.starts_at, each.ends_at, each.began, each.by, tuple(sorted(held))
    )
