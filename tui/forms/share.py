"""The tenant form, with the weight and the limits of a tenant."""

from __future__ import annotations

import shlex

from tui.forms.form import Field, Form, FormContents, Typed, changed, read_fields
from wire import amounts
from wire.api.forecasts import WhatIf
from wire.api.policy.shares import ShareList, ShareView, ShareWeight
from wire.text import printable


def edit(share: ShareView) -> Form[ShareWeight, ShareList]:
    fields = (
        Field(
            "weight",
            "weight",
            "",
            "compared with shares of the same parent; usually 1",
            amounts.number,
            f"{share.weight:g}",
        ),
        Field("soft limit", "soft", "--soft", "none", amounts.limit, _shown(share.soft)),
        Field("hard limit", "hard", "--hard", "none", amounts.limit, _shown(share.hard)),
    )

    def read(typed: Typed) -> FormContents[ShareWeight]:
        values, wrong = read_fields(changed(fields, typed))
        return FormContents(ShareWeight(share.share, **values) if values else None, wrong)

    def command(typed: Typed) -> str:
        flags = [flag for field, text in changed(fields, typed).items() for flag in field.flags(text)]
        return " ".join(["corral shares set", shlex.quote(printable(share.share, 400)), *(flags or ["…"])])

    return Form(
        f"Share of {share.share}",
        "Set",
        fields,
        read,
        command,
        lambda client, change: client.set_share(change),
        lambda change: WhatIf(shares=(change,)),
    )


def _shown(limit: float | None) -> str:
    return "" if limit is None else f"{limit:.12g}"
