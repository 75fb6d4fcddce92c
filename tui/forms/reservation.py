"""The reservation form: nodes, begin, duration, users."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from tui.forms.form import Field, Form, FormContents, Typed, changed, count, pairs, span, words
from wire.api.forecasts import WhatIf
from wire.api.tenants import ReservationView
from wire.cluster.reservation import ReservationSpec, reservation_problems
from wire.text import printable

_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})")


@dataclass(frozen=True)
class ReservationRequest:
    """A reservation, and whether to make it although running jobs may overlap it."""

    spec: ReservationSpec
    anyway: bool = False


def moment(text: str, now: float) -> float:
    """The time of now, +2h, 18:30 (the next one) or 2030-05-01T08:00."""
    if text == "now":
        return now
    if text.startswith("+"):
        return now + span(text[1:])
    clock = _CLOCK.fullmatch(text)
    try:
        if clock is None:
            return datetime.fromisoformat(text).timestamp()
        # Local wall-clock time, including daylight saving time.
        today = datetime.fromtimestamp(now, UTC).astimezone().replace(tzinfo=None)
        today = today.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return (today if today.timestamp() > now else today + timedelta(days=1)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("write now, +2h, 18:30 or 2030-05-01T08:00") from None


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise ValueError("write yes or no")
    return text.lower() == "yes"


FIELDS: Final = (
    Field("name", "name", "", "what to call it", str),
    Field("nodes", "nodes", "--node", "gpu01 gpu02; or an amount:", words),
    Field("or nodes", "count", "--count", "so many nodes", count),
    Field("or gpus", "gpus", "--gpus", "whole nodes with so many GPUs", count),
    Field("among", "selector", "--select", "label=value", pairs),
    Field("users", "users", "--user", "neither users nor projects: maintenance", words),
    Field("projects", "projects", "--project", "", words),
    Field("start", "starts_at", "--start", "now, +2h, 18:30, 2030-05-01T08:00", str, "now"),
    Field("for", "duration_s", "--for", "how long: 4h, 2d", span),
    Field("again every", "every_s", "--every", "never; 1d, 7d", span),
    Field("why", "why", "--why", "everybody will see it", str),
    Field("anyway", "anyway", "--anyway", "yes: although jobs there may run into it", _yes),
)


def new(clock: Callable[[], float]) -> Form[ReservationRequest, ReservationView]:
    """The form; `clock` is the time of the controller."""
    return Form(
        "New reservation",
        "Reserve",
        FIELDS,
        partial(_read, clock),
        command,
        lambda client, wanted: client.reserve(wanted.spec, anyway=wanted.anyway),
        lambda wanted: None if wanted.anyway else WhatIf(reserve=(wanted.spec,)),
    )


def _read(clock: Callable[[], float], typed: Typed) -> FormContents[ReservationRequest]:
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field in FIELDS:
        text = typed.get(field.name, field.default).strip()
        try:
            if field.target == "starts_at":
                values["starts_at"] = moment(text or "now", clock())
            elif text:
                values[field.target] = field.read(text)
        except ValueError as error:
            wrong[field.name] = str(error)
    anyway = values.pop("anyway", False)
    spec = ReservationSpec(**{"name": "", "starts_at": 1.0, "duration_s": 0.0, **values})
    for where, sentence in reservation_problems(spec):
        name = next(field.name for field in FIELDS if field.target == where)
        missing = where == "duration_s" and "duration_s" not in values
        wrong.setdefault(name, "how long?" if missing else sentence)
    return FormContents(ReservationRequest(spec, anyway), wrong)


def command(typed: Typed) -> str:
    """The shell command, with the typed words."""
    flags: list[str] = []
    for field, text in changed(FIELDS[1:], typed).items():
        flags += _flags(field, text)
    name = typed.get("name", "").strip()
    return " ".join(["corral reserve create", shlex.quote(printable(name)) if name else "…", *flags])


def _flags(field: Field, text: str) -> list[str]:
    if field.read is _yes:
        return [field.flag] if text.lower() == "yes" else []
    try:
        values = words(text) if field.read in (pairs, words) else (text,)
    except ValueError:
        values = (text,)
    return [f"{field.flag} {shlex.quote(value)}" for value in values]
