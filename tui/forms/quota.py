"""The quota form: hard limit, soft limit and borrowing per resource."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tui.forms.form import Field, Form, FormContents, Typed, changed, cores_milli, count, memory_mib, number
from wire.api.forecasts import QuotaEdit, WhatIf
from wire.api.tenants import QuotaView
from wire.cluster.quota import SCOPES, UNLIMITED, Limits, Quota, quota_problems
from wire.job.spec import gpus_text
from wire.text import memory, printable


@dataclass(frozen=True)
class Amount:
    """A limited resource: its name in commands, its parser and its format."""

    word: str
    field: str
    read: Callable[[str], Any]
    told: Callable[[Any], str]


def _gpus(text: str) -> float:
    return number(text, "write 8 or 0.5, or none")


AMOUNTS: Final = (
    Amount("gpus", "gpus", _gpus, gpus_text),
    Amount("cpus", "cpu_milli", cores_milli, lambda milli: f"{milli / 1000:g}"),
    Amount("memory", "memory_mib", memory_mib, memory),
    Amount("running", "running", count, str),
    Amount("queued", "queued", count, str),
    Amount("gpu-hours", "gpu_hours", _gpus, gpus_text),
)
KINDS: Final = ("hard", "soft", "borrow")


def limit_text(amount: Amount, limits: Limits) -> str:
    """A limit as typed text; empty without a limit."""
    value = getattr(limits, amount.field)
    return "" if value is None else "none" if value == UNLIMITED else amount.told(value)


def edit(view: QuotaView) -> Form[QuotaEdit, QuotaView]:
    """The form for a quota that exists; only differences are sent."""
    told = FormContents(QuotaEdit(view.scope, view.name), {})
    return _form(f"Quota of {view.scope} {view.name}", (), lambda _: told, view.scope, view.quota)


def new() -> Form[QuotaEdit, QuotaView]:
    """The form for a tenant without a quota."""
    fields = (
        Field("of", "scope", "", ", ".join(SCOPES), str, "user"),
        Field("name", "name", "", "* is everybody without a quota of their own", str),
    )
    return _form("New quota", fields, _tenant, "project", Quota())


def _tenant(typed: Typed) -> FormContents[QuotaEdit]:
    scope, name = typed.get("of", "").strip(), typed.get("name", "").strip()
    wrong = {} if scope in SCOPES else {"of": f"write {', '.join(SCOPES)}"}
    return FormContents(QuotaEdit(scope, name), wrong if name else {**wrong, "name": "whose quota?"})


def _form(
    title: str,
    tenant: tuple[Field, ...],
    whose: Callable[[Typed], FormContents[QuotaEdit]],
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
            amount.read,
            limit_text(amount, getattr(now, kind)),
            row=amount.word,
        )
        for amount in AMOUNTS
        for kind in kinds
    )
    return Form(
        title,
        "Set",
        (*tenant, *limits),
        partial(_read, whose, limits),
        partial(_command, whose, limits),
        lambda client, asked: client.set_quota(asked.scope, asked.name, asked.quota or Quota()),
        lambda asked: WhatIf(quotas=(asked,)),
        heads=kinds,
    )


def _read(
    whose: Callable[[Typed], FormContents[QuotaEdit]], fields: tuple[Field, ...], typed: Typed
) -> FormContents[QuotaEdit]:
    tenant = whose(typed)
    wrong = dict(tenant.wrong)
    values: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for field, text in changed(fields, typed).items():
        kind, _, name = field.target.partition(".")
        try:
            values[kind][name] = UNLIMITED if text.lower() == "none" else field.read(text)
        except ValueError as error:
            wrong[field.name] = str(error)
    quota = Quota(*(Limits(**values[kind]) for kind in KINDS))
    for where, sentence in quota_problems(tenant.wish.scope if tenant.wish else "", quota):
        wrong.setdefault(next(field.name for field in fields if field.target == where), sentence)
    if tenant.wish is None or quota == Quota():
        return FormContents(None, wrong)
    return FormContents(QuotaEdit(tenant.wish.scope, tenant.wish.name, quota), wrong)


def _command(
    whose: Callable[[Typed], FormContents[QuotaEdit]], fields: tuple[Field, ...], typed: Typed
) -> str:
    tenant = whose(typed).wish
    scope, name = (tenant.scope or "…", tenant.name or "…") if tenant else ("…", "…")
    words = [f"{field.flag}{shlex.quote(text)}" for field, text in changed(fields, typed).items()]
    told = [word if word == "…" else shlex.quote(printable(word)) for word in (scope, name)]
    return " ".join(["corral quota set", *told, *(words or ["…"])])
