"""The values that decide whether a new search has changed the reservation of a waiting job."""

from __future__ import annotations

from dataclasses import fields

from controller.core.backfill.conservative.reservation import BackfillReservation
from controller.core.model.request import request_of
from controller.core.placement.placer import Placement
from tests.engine_harness import spec


def test_values_of_a_reservation_are_all_compared_fields_except_the_job() -> None:
    part = request_of(spec(1)).part
    reservation = BackfillReservation(1, 10.0, 20.0, 3, Placement((), 100), part, True, (("ansys", 1),), 2)
    compared = [each.name for each in fields(BackfillReservation) if each.compare and each.name != "job"]
    assert reservation.values == tuple(getattr(reservation, name) for name in compared)
    assert BackfillReservation(1, *reservation.values) == reservation
