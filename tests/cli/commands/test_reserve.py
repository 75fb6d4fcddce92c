"""corral reserve: its options and its table."""

from __future__ import annotations

from cli.commands.policy.reserve import reservation_table
from wire.api.policy.reservations import ReservationView
from wire.cluster.reservation import ReservationSpec, reservation_problems


def test_reservation_table_shows_time_nodes_and_users() -> None:
    first = ReservationSpec("fans", 1e9, 7200.0, ("gpu01",), why="new fans")
    second = ReservationSpec(
        "course", 1e9, 7200.0, gpus=16, users=("ada",), projects=("ai",), every_s=86_400.0
    )
    rows = [
        ReservationView(first, ("gpu01",), 1e9, 1e9 + 7200, True, "root"),
        ReservationView(second, ("gpu02", "gpu03"), 1e9, 1e9 + 7200, False, "root"),
    ]
    lines = list(reservation_table().lines(rows, None))
    assert [line.split()[:2] for line in lines[1:]] == [["fans", "on"], ["course", "to"]]
    assert lines[1].split()[-5:] == ["-", "maintenance", "gpu01", "new", "fans"]
    assert "1d00h  ada, project ai  gpu02,gpu03" in lines[2]


def test_valid_reservation_has_no_problems() -> None:
    assert reservation_problems(ReservationSpec("fans", 1e9, 7200.0, ("gpu01",))) == []
