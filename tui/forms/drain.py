"""The form of a timed drain: the time by which nodes are to be empty, and the reason."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tui.forms.form import Field, Form, FormContents, Typed, filled, read_fields
from wire import amounts
from wire.api.forecasts import WhatIf
from wire.api.nodes import NodeView
from wire.text import printable


@dataclass(frozen=True)
class TimedDrain:
    """The request for a timed drain. `empty_by` is in seconds since 1970."""

    empty_by: float
    why: str = ""


BY: Final = "empty by"


def new(nodes: Sequence[NodeView], clock: Callable[[], float]) -> Form[TimedDrain, tuple[NodeView, ...]]:
    """Return the form that drains these nodes so that they are empty at a time that the user types. `clock`
    returns the time of the controller.
    """
    fields = (
        Field(
            BY,
            "empty_by",
            "--by",
            "18:00, 2h, 2030-05-01T08:00",
            lambda text: amounts.moment_or_delay(text, clock()),
        ),
        Field("why", "why", "--why", "shown to all users", str),
    )
    names = [node.name for node in nodes]
    quoted = shlex.join(printable(name) for name in names)

    def read(typed: Typed) -> FormContents[TimedDrain]:
        values, wrong = read_fields(filled(fields, typed))
        if values.get("empty_by", clock() + 1.0) <= clock():
            wrong[BY] = "the time is in the past"
        return FormContents(TimedDrain(**values) if "empty_by" in values else None, wrong)

    def command(typed: Typed) -> str:
        flags = [flag for field, text in filled(fields, typed).items() for flag in field.flags(text)]
        return " ".join(["corral nodes drain", quoted, *(flags or ["--by …"])])

    return Form(
        f"Drain {', '.join(names)} by a time",
        "Drain",
        fields,
        read,
        command,
        lambda client, wanted: tuple(client.drain(name, wanted.why, wanted.empty_by) for name in names),
        lambda wanted: WhatIf(drain=tuple(names), drain_by=wanted.empty_by),
    )
