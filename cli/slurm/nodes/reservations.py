"""Formats reservations as `scontrol show reservation` and `sinfo -T` print them."""

from __future__ import annotations

from typing import Any

from cli.slurm.formats.times import long_span, moment
from cli.slurm.show.controller import ask
from wire.cluster.hostlist import fold_hostlist
from wire.http.controllers import Controllers


def reservations(transport: Controllers) -> list[dict[str, Any]]:
    """Return all reservations. Each is a ReservationView of wire.api.tenants as JSON."""
    found: list[dict[str, Any]] = ask(transport, "/v1/reservations")["reservations"]
    return found


def reservation_pairs(view: dict[str, Any]) -> list[str]:
    """Return the lines of `scontrol show reservation` about one reservation."""
    spec = view["spec"]
    state = "ACTIVE" if view["on"] else "INACTIVE"
    flags = "MAINT" if not spec["users"] and not spec["projects"] else "SPEC_NODES"
    length = long_span(view["ends_at"] - view["starts_at"])
    return [
        f"ReservationName={spec['name']} StartTime={moment(view['starts_at'], 'Unknown')} "
        f"EndTime={moment(view['ends_at'], 'Unknown')} Duration={length}",
        f"Nodes={fold_hostlist(view['nodes'])} NodeCnt={len(view['nodes'])} CoreCnt=0 Features=(null) "
        f"PartitionName=(null) Flags={flags}",
        "TRES=(null)",
        f"Users={','.join(spec['users']) or '(null)'} Groups=(null) "
        f"Accounts={','.join(spec['projects']) or '(null)'} Licenses=(null) State={state} "
        "BurstBuffer=(null) Watts=n/a",
        "MaxStartDelay=(null)",
    ]


def print_reservation_table(transport: Controllers, *, header: bool) -> None:
    """Print the table of all reservations, as `sinfo -T` does."""
    found = reservations(transport)
    if not found:
        print("No reservations in the system")
        return
    form = "{:<10} {:>8} {:>19} {:>19} {:>11}  {}"
    if header:
        print(form.format("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"))
    for view in found:
        state = "ACTIVE" if view["on"] else "INACTIVE"
        times = (moment(view["starts_at"], ""), moment(view["ends_at"], ""))
        length = long_span(view["ends_at"] - view["starts_at"])
        print(form.format(view["spec"]["name"], state, *times, length, fold_hostlist(view["nodes"])))
