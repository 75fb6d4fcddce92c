"""The reservation form, with nodes, start, length and users."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tui.forms.form import Field, Form, FormContents, Typed, changed, filled, pairs, read_fields, yes_or_no
from wire import amounts
from wire.api.forecasts import WhatIf
from wire.api.policy.reservations import ReservationView
from wire.cluster.reservation import ReservationSpec, reservation_problems
from wire.text import printable


@dataclass(frozen=True)
class ReservationRequest:
    """The request for a reservation. If `anyway` is true, the nodes are reserved even if running jobs may
    still use the nodes at the start of the reservation.
    """

    spec: ReservationSpec
    anyway: bool = False


FIELDS: Final = (
    Field("name", "name", "", "name of the reservation", str),
    Field("nodes", "nodes", "--node", "gpu01 gpu02; or a number:", amounts.words, picks="node"),
    Field("or nodes", "count", "--count", "number of nodes", amounts.count),
    Field("or gpus", "gpus", "--gpus", "whole nodes with this number of GPUs", amounts.count),
    Field("among", "selector", "--select", "label=value", pairs),
    Field("users", "users", "--user", "no users and no projects: maintenance", amounts.words, picks="user"),
    Field("projects", "projects", "--project", "", amounts.words, picks="project"),
    Field("start", "starts_at", "--start", "now, +2h, 18:30, 2030-05-01T08:00", amounts.moment, "now"),
    Field("for", "duration_s", "--for", "length: 4h, 2d", amounts.seconds),
    Field("again every", "every_s", "--every", "never; 1d, 7d", amounts.seconds),
    Field("why", "why", "--why", "shown to all users", str),
    Field("anyway", "anyway", "--anyway", "yes: even if jobs may still run there", yes_or_no),
)


def new(clock: Callable[[], float]) -> Form[ReservationRequest, ReservationView]:
    """Return the reservation form. `clock` returns the time of the controller."""
    fields = tuple(
        replace(field, read=lambda text: amounts.moment(text, clock()))
        if field.target == "starts_at"
        else field
        for field in FIELDS
    )
    return Form(
        "New reservation",
        "Reserve",
        fields,
        lambda typed: _read(fields, typed),
        command,
        lambda client, wanted: client.reserve(wanted.spec, anyway=wanted.anyway),
        lambda wanted: None if wanted.anyway else WhatIf(reserve=(wanted.spec,)),
    )


def _read(fields: tuple[Field, ...], typed: Typed) -> FormContents[ReservationRequest]:
    values, wrong = read_fields(filled(fields, typed))
    anyway = values.pop("anyway", False)
    spec = ReservationSpec(**{"name": "", "starts_at": 1.0, "duration_s": 0.0, **values})
    for where, sentence in reservation_problems(spec):
        name = next(field.name for field in FIELDS if field.target == where)
        missing = where == "duration_s" and "duration_s" not in values
        wrong.setdefault(name, "write the length: 4h" if missing else sentence)
    return FormContents(ReservationRequest(spec, anyway), wrong)


def command(typed: Typed) -> str:
    """Return the `corral reserve create` command that makes the same reservation."""
    flags = [flag for field, text in changed(FIELDS[1:], typed).items() for flag in field.flags(text)]
    name = typed.get("name", "").strip()
    return " ".join(["corral reserve create", shlex.quote(printable(name)) if name else "…", *flags])
