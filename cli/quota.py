"""corral quota …: what users, projects and queues may hold, and what they do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import typer

from cli import units
from cli.commands import application, examples
from cli.exits import Mistake
from cli.messages import note
from cli.output import Column, Format, Output, Table
from cli.tables import cores
from wire.api.tenants import QuotaView
from wire.client import Client
from wire.quota import EVERYBODY, SCOPES, UNLIMITED, Limits, Quota
from wire.spec import gpus_text
from wire.text import memory, plain

_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "cpus": ("cpu_milli", units.cores_milli),
    "memory": ("memory_mib", units.memory_mib),
    "gpus": ("gpus", units.gpus),
    "running": ("running", lambda text: _whole(text)),
    "queued": ("queued", lambda text: _whole(text)),
    "gpu-hours": ("gpu_hours", units.gpus),
}
_KINDS = tuple(each.name for each in fields(Quota))

Scope = Annotated[str, typer.Argument(metavar="user|project|queue", show_default=False)]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="'*' is everybody without words of their own.", show_default=False),
]
Words = Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", show_default=False)]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral quota",
        "corral quota set user ada gpus=8 running=20",
        "corral quota set user '*' gpus=4 soft.gpus=2",
        "corral quota set project vision gpus=16 borrow.gpus=8 gpu-hours=2000",
        "corral quota unset user ada",
    )
)
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show, set and unset quotas of users, projects and queues. Without a command: list them."""
    return listing(output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral quota list", "corral quota list -o json"))
def listing(output: Output = Format.TABLE) -> int:
    """List every user, project and queue with a quota or with jobs: used, and allowed."""
    body = Client().quotas()
    quota_table().show(output, body.quotas, body)
    return 0


@app.command(
    "set",
    epilog=examples(
        "corral quota set user ada gpus=8 memory=512G",
        "corral quota set project vision gpus=16 borrow.gpus=8",
        "corral quota set queue short running=none",
    ),
)
def change(scope: Scope, name: Name, words: Words, output: Output = Format.TABLE) -> int:
    """Set limits at once, over what the configuration says; those not named stay as they are.

    Keys are cpus, memory, gpus, running, queued and gpu-hours: hard limits, which nobody passes. With soft.
    in front: who is over it comes after everybody else. With borrow. in front, for projects: how much more it
    may have while other projects leave theirs unused. The value none means no limit.
    """
    return _told(Client().set_quota(scope_of(scope), name, quota_of(words)), output)


@app.command(epilog=examples("corral quota unset user ada"))
def unset(scope: Scope, name: Name, output: Output = Format.TABLE) -> int:
    """Take back what was set: what the configuration says holds again."""
    return _told(Client().unset_quota(scope_of(scope), name), output)


def quota_of(words: list[str]) -> Quota:
    """gpus=8 soft.gpus=4: the quota that these words mean."""
    given: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
    for word in words:
        key, equals, text = word.partition("=")
        kind, dot, amount = key.partition(".") if "." in key else ("hard", ".", key)
        amount = amount.replace("_", "-")
        if not equals or not dot or kind not in given or amount not in _READ:
            raise Mistake(
                f"{word!r} is not a limit", f"Write one of {', '.join(_READ)} as in gpus=8 or soft.gpus=4."
            )
        field, read = _READ[amount]
        try:
            given[kind][field] = UNLIMITED if text.lower() == "none" else read(text)
        except ValueError as error:
            raise Mistake(f"{key}: {error}", "Or write none for no limit.") from None
    return Quota(*(Limits(**given[kind]) for kind in _KINDS))


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError(f"{text!r} is not a whole number; write 20")
    return int(text)


def scope_of(word: str) -> str:
    """user, project or queue."""
    if word not in SCOPES:
        raise Mistake(f"{word!r} has no quotas", f"It is one of {', '.join(SCOPES)}.")
    return word


def _told(view: QuotaView, output: Format) -> int:
    if output is Format.TABLE:
        note(f"quota of {view.scope} {plain(view.name)}: {limits_text(view.quota) or 'none'}")
    else:
        quota_table().show(output, [view], view)
    return 0


def limits_text(quota: Quota) -> str:
    """gpus=8 soft.gpus=4: a quota as it would be set."""
    told = []
    for kind in _KINDS:
        limits: Limits = getattr(quota, kind)
        for word, (field, _) in _READ.items():
            value = getattr(limits, field)
            if value is not None:
                shown = "none" if value == UNLIMITED else _amount(field, value)
                told.append(f"{'' if kind == 'hard' else kind + '.'}{word}={shown}")
    return " ".join(told)


def _amount(field: str, value: float) -> str:
    if field == "cpu_milli":
        return cores(int(value))
    if field == "memory_mib":
        return memory(int(value))
    return gpus_text(value) if value != math.inf else "none"


def quota_table() -> Table[QuotaView]:
    """Tenants: used, and the hard limit behind it where there is one."""

    def cell(field: str) -> Callable[[QuotaView], str]:
        def text(view: QuotaView) -> str:
            used, limit = getattr(view.used, field), getattr(view.quota.hard, field)
            bound = "" if limit in (None, UNLIMITED) else f"/{_amount(field, limit)}"
            mine = "-" if view.name == EVERYBODY else _amount(field, used)
            return f"{mine}{bound}"

        return text

    return Table(
        [
            Column("OF", lambda view: view.scope),
            Column("NAME", lambda view: view.name, least=8),
            Column("GPUS", cell("gpus"), keep=1, right=True),
            Column("CPUS", cell("cpu_milli"), keep=4, right=True),
            Column("MEMORY", cell("memory_mib"), keep=5, right=True),
            Column("RUNNING", cell("running"), keep=2, right=True),
            Column("QUEUED", cell("queued"), keep=3, right=True),
            Column("GPU-HOURS", cell("gpu_hours"), keep=6, right=True),
            Column(
                "SOFT, BORROW",
                lambda view: limits_text(Quota(soft=view.quota.soft, borrow=view.quota.borrow)),
                keep=7,
            ),
            Column("SET", lambda view: "yes" if view.edited else "", keep=8),
        ],
        lambda view: f"{view.scope}/{view.name}",
    )
