"""The share form: weight and limits."""

from __future__ import annotations

import shlex
from functools import partial

from tui.forms.form import Field, Form, FormContents, Typed, changed, number
from wire.api.forecasts import WhatIf
from wire.api.tenants import ShareList, ShareView, ShareWeight
from wire.cluster.quota import UNLIMITED
from wire.text import printable


def _weight(text: str) -> float:
    return number(text, "write 2 or 0.5")


def _limit(text: str) -> float:
    return UNLIMITED if text.lower() == "none" else number(text, "write units such as 500, or none")


def edit(share: ShareView) -> Form[ShareWeight, ShareList]:
    """The form for a share; only differences are sent."""
    fields = (
        Field("weight", "weight", "", "against those beside it; 1 is usual", _weight, f"{share.weight:g}"),
        Field("soft limit", "soft", "--soft", "none", _limit, _shown(share.soft)),
        Field("hard limit", "hard", "--hard", "none", _limit, _shown(share.hard)),
    )
    return Form(
        f"Share of {share.share}",
        "Set",
        fields,
        partial(_read, share.share, fields),
        partial(_command, share.share, fields),
        lambda client, change: client.set_share(change),
        lambda change: WhatIf(shares=(change,)),
    )


def _shown(limit: float | None) -> str:
    return "" if limit is None else f"{limit:.12g}"


def _read(share: str, fields: tuple[Field, ...], typed: Typed) -> FormContents[ShareWeight]:
    values: dict[str, float] = {}
    wrong: dict[str, str] = {}
    for field, text in changed(fields, typed).items():
        try:
            values[field.target] = field.read(text)
        except ValueError as error:
            wrong[field.name] = str(error)
    return FormContents(ShareWeight(share, **values) if values else None, wrong)


def _command(share: str, fields: tuple[Field, ...], typed: Typed) -> str:
    said = [f"{field.flag} {shlex.quote(text)}".strip() for field, text in changed(fields, typed).items()]
    return " ".join(["corral shares set", shlex.quote(printable(share, 400)), *(said or ["…"])])
