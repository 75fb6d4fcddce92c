"""The quota form, with the hard limit, the soft limit and the borrowing limit of each resource."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, Final

from tui.forms.form import Field, Form, FormContents, Typed, changed, read_fields
from wire.api.forecasts import QuotaEdit, WhatIf
from wire.api.policy.quotas import QuotaView
from wire.cluster.quota import AMOUNTS, SCOPES, Amount, Quota, quota_problems
from wire.text import printable

KINDS: Final = ("hard", "soft", "borrow")


def edit(view: QuotaView) -> Form[QuotaEdit, QuotaView]:
    """Return the form for an existing quota. Only limits that the user has changed are sent."""
    tenant = FormContents(QuotaEdit(view.scope, view.name), {})
    return _form(f"Quota of {view.scope} {view.name}", (), lambda _: tenant, view.scope, view.quota)


def new() -> Form[QuotaEdit, QuotaView]:
    """Return the form that sets a quota for a user, project or queue without a quota."""
    fields = (
        Field("of", "scope", "", ", ".join(SCOPES), str, "user", picks="scope"),
        Field("name", "name", "", "*: each one without a quota of its own", str, picks="tenant"),
    )
    return _form("New quota", fields, _tenant, "project", Quota())


def _tenant(typed: Typed) -> FormContents[QuotaEdit]:
    scope, name = typed.get("of", "").strip(), typed.get("name", "").strip()
    wrong = {} if scope in SCOPES else {"of": f"write {', '.join(SCOPES)}"}
    return FormContents(QuotaEdit(scope, name), wrong if name else {**wrong, "name": "write a name, or *"})


def _form(
    title: str,
    tenant_fields: tuple[Field, ...],
    tenant_of: Callable[[Typed], FormContents[QuotaEdit]],
    scope: str,
    now: Quota,
) -> Form[QuotaEdit, QuotaView]:
    kinds = KINDS if scope == "project" else KINDS[:2]
    limits = tuple(
        Field(
            f"{kind} {amount.word}",
            f"{kind}.{amount.field}",
            f"{'' if kind == 'hard' else f'{kind}.'}{amount.word}=",
            "·",
            amount.read_limit,
            amount.limit_text(getattr(now, kind)),
            row=amount.word,
        )
        for amount in AMOUNTS
        for kind in kinds
    )

    def read(typed: Typed) -> FormContents[QuotaEdit]:
        tenant = tenant_of(typed)
        found, errors = read_fields(changed(limits, typed))
        wrong = {**tenant.wrong, **errors}
        values: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for target, value in found.items():
            kind, _, name = target.partition(".")
            values[kind][name] = value
        quota = Quota(*(Amount.limits(values[kind]) for kind in KINDS))
        for where, sentence in quota_problems(tenant.request.scope if tenant.request else "", quota):
            target = where.removesuffix("_percent")
            wrong.setdefault(next(field.name for field in limits if field.target == target), sentence)
        if tenant.request is None or quota == Quota():
            return FormContents(None, wrong)
        return FormContents(QuotaEdit(tenant.request.scope, tenant.request.name, quota), wrong)

    def command(typed: Typed) -> str:
        tenant = tenant_of(typed).request
        names = (tenant.scope, tenant.name) if tenant else ("", "")
        words = [f"{field.flag}{shlex.quote(text)}" for field, text in changed(limits, typed).items()]
        shown = [shlex.quote(printable(name)) if name else "…" for name in names]
        return " ".join(["corral quota set", *shown, *(words or ["…"])])

    return Form(
        title,
        "Set",
        (*tenant_fields, *limits),
        read,
        command,
        lambda client, change: client.set_quota(change.scope, change.name, change.quota or Quota()),
        lambda change: WhatIf(quotas=(change,)),
        heads=kinds,
    )
