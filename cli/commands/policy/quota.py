"""corral quota: shows and changes quotas of users, projects and queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import typer

from cli.exit_codes import CommandError
from cli.flags import argument
from cli.output import what_if_table
from cli.output.formats import Column, Format, Output, Table
from cli.output.hours_line import print_hours
from cli.output.listing import list_command
from cli.output.what_if_table import DryRun
from cli.registry import application, examples
from wire.api.forecasts import QuotaEdit, WhatIf
from wire.api.policy.quotas import QuotaView, model_use_text
from wire.cluster.quota import (
    AMOUNTS,
    SCOPES,
    Amount,
    GpuLimit,
    Limits,
    Quota,
    gpu_limit,
)
from wire.http.client import Client
from wire.text import printable

_AMOUNTS = {each.word: each for each in AMOUNTS}
_KINDS = tuple(each.name for each in fields(Quota))

Scope = Annotated[str, argument("user|project|queue", "Kind of NAME: a user, a project or a queue.")]
Name = Annotated[
    str,
    argument(
        "NAME",
        "Name of the user, project or queue; '*' means all users, projects or queues without a quota of "
        "their own.",
    ),
]
Words = Annotated[list[str], argument("KEY=VALUE...", "Limits to set (e.g. gpus=8 soft.gpus=4).")]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral quota",
        "corral quota set user ada gpus=8 running=20",
        "corral quota set user '*' gpus=4 soft.gpus=2",
        "corral quota set project vision gpus=16 borrow.gpus=8 gpu-hours=2000",
        "corral quota set project speech gpus=25% gpus.H100=8",
        "corral quota unset user ada",
    )
)
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show, set and unset the quotas of users, projects and queues. Without a command: list quotas."""
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral quota list", "corral quota list -o json"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List the users, projects and queues that have a quota or jobs, with their usage and limits."""
    body = Client().quotas()
    quota_table().show(output, body.quotas, body)
    print_hours(body.hours, output, "[quota]")
    return 0


@app.command(
    "set",
    epilog=examples(
        "corral quota set user ada gpus=8 memory=512G",
        "corral quota set project vision gpus=16 borrow.gpus=8",
        "corral quota set queue short running=none",
    ),
)
def change(
    scope: Scope, name: Name, words: Words, dry_run: DryRun = False, output: Output = Format.TABLE
) -> int:
    """Set limits of a user, project or queue. The new limits apply at once and override the configuration;
    limits that you do not name are not changed.

    The limits are cpus, memory and gpus (the resources that running jobs hold), running (the number of
    running jobs), queued (the number of waiting jobs) and gpu-hours (used in the last week, or in window_s of
    [quota] in scheduler.toml). These are hard limits. A job that would exceed a hard limit waits. Only a
    submit that would exceed the limit queued is refused. Limits such as soft.gpus are soft: jobs above a soft
    limit start after all other jobs. Limits such as borrow.gpus, for projects only, are the amount above the
    hard limit that a project may use while other projects leave their quota unused.

    A number of GPUs may be a percentage of all GPUs of the cluster, such as gpus=50%. A limit on GPUs of one
    model is gpus.MODEL, such as gpus.H100=16 or soft.gpus.A100=25%. The value none means no limit.
    """
    if dry_run:
        edit = QuotaEdit(scope_of(scope), name, quota_of(words))
        return what_if_table.show(Client().what_if(WhatIf(quotas=(edit,))), output)
    return _print_view(Client().set_quota(scope_of(scope), name, quota_of(words)), output)


@app.command(epilog=examples("corral quota sync project vision"))
def sync(scope: Scope, name: Name, output: Output = Format.TABLE) -> int:
    """Read the limits of a project again from the execution engine that sets them, and apply them."""
    return _print_view(Client().sync_quota(scope_of(scope), name), output)


@app.command(epilog=examples("corral quota unset user ada"))
def unset(scope: Scope, name: Name, output: Output = Format.TABLE) -> int:
    """Remove all limits that 'corral quota set' has set. The limits of the configuration then apply again."""
    return _print_view(Client().unset_quota(scope_of(scope), name), output)


def quota_of(words: list[str]) -> Quota:
    """Return the quota that words such as gpus=8 and soft.gpus=4 describe. Raise CommandError for any other
    word.
    """
    limits: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    for word in words:
        key, equals, text = word.partition("=")
        kind, dot, amount = key.partition(".")
        if kind not in limits:
            kind, dot, amount = "hard", ".", key
        amount, of_model, model = amount.partition(".")
        if equals and of_model and amount == "gpus" and model:
            limits[kind].setdefault("gpus_per_model", {})[model] = _gpu_limit(key, text)
            continue
        dot, amount = "" if of_model else dot, amount.replace("_", "-")
        if not equals or not dot or kind not in limits or amount not in _AMOUNTS:
            raise CommandError(
                f"{word!r} is not a limit",
                f"Write one of {', '.join(_AMOUNTS)}, as in gpus=8, gpus.H100=8 or soft.gpus=4.",
            )
        try:
            limits[kind][_AMOUNTS[amount].field] = _AMOUNTS[amount].read_limit(text)
        except ValueError as error:
            raise CommandError(f"{key}: {error}", "The word none means no limit.") from None
    return Quota(*(Amount.limits(limits[kind]) for kind in _KINDS))


def _gpu_limit(key: str, text: str) -> GpuLimit:
    try:
        return gpu_limit(text)
    except ValueError as error:
        raise CommandError(f"{key}: {error}", "The word none means no limit.") from None


def scope_of(word: str) -> str:
    if word not in SCOPES:
        raise CommandError(f"{word!r} is not a kind of quota", f"Write one of {', '.join(SCOPES)}.")
    return word


def _print_view(view: QuotaView, output: Format) -> int:
    sentence = f"quota of {view.scope} {printable(view.name)}: {limits_text(view.quota) or 'none'}"
    sentence += f" ({printable(view.source)})" if view.source else ""
    quota_table().show_changed(output, view, sentence)
    return 0


def limits_text(quota: Quota) -> str:
    """Return a quota as words, such as gpus=8 soft.gpus=4."""
    words = []
    for kind in _KINDS:
        limits: Limits = getattr(quota, kind)
        prefix = "" if kind == "hard" else f"{kind}."
        texts = [(each.word, each.limit_text(limits)) for each in AMOUNTS]
        texts += [(f"gpus.{model}", each.text) for model, each in sorted(limits.gpus_per_model.items())]
        words += [f"{prefix}{word}={text}" for word, text in texts if text]
    return " ".join(words)


def quota_table() -> Table[QuotaView]:
    def cell(word: str) -> Callable[[QuotaView], str]:
        return lambda view: view.use_text(_AMOUNTS[word])

    return Table(
        [
            Column("OF", lambda view: view.scope),
            Column("NAME", lambda view: view.name, narrow=8),
            Column("GPUS", cell("gpus"), rank=1, right=True),
            Column("CPUS", cell("cpus"), rank=4, right=True),
            Column("MEMORY", cell("memory"), rank=5, right=True),
            Column("RUNNING", cell("running"), rank=2, right=True),
            Column("QUEUED", cell("queued"), rank=3, right=True),
            Column("GPU-HOURS", cell("gpu-hours"), rank=6, right=True),
            Column("GPUS BY MODEL", model_use_text, rank=7),
            Column(
                "SOFT, BORROW",
                lambda view: limits_text(Quota(soft=view.quota.soft, borrow=view.quota.borrow)),
                rank=8,
            ),
            Column("SET", lambda view: view.source or ("yes" if view.edited else ""), rank=9),
        ],
        lambda view: f"{view.scope}/{view.name}",
        kind=QuotaView,
    )
