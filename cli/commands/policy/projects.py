"""corral projects: shows projects with their members, weights, shares, quotas and budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from cli import completion
from cli.flags import argument, switch
from cli.output.formats import Column, Format, Output, Table, show_one
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import FAINT, RED, YELLOW
from cli.registry import application, examples
from wire.api.policy.projects import ProjectView
from wire.cluster.quota import AMOUNTS
from wire.http.client import Client
from wire.text import decimal, percent

Name = Annotated[str, argument("PROJECT", "Name of the project.", autocompletion=completion.projects)]
Mine = Annotated[bool, switch("--mine", "List only projects to which you may submit.")]
_UNKNOWN = {
    "open": "A job may name any other project, too: [scheduler] unknown_projects is 'open'.",
    "default": "A job in any other project is put into project 'default'.",
    "refuse": "A job in any other project is refused.",
}
_GPUS = next(each for each in AMOUNTS if each.field == "gpus")
_THEN = {"alert": "only recorded", "low": "its jobs start after all other jobs", "stop": "its jobs wait"}

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral projects",
        "corral projects --mine",
        "corral projects show vision",
        "corral projects --sort=-share",
    )
)
@list_command
def bare(context: typer.Context, mine: Mine = False, output: Output = Format.TABLE) -> int:
    """Show projects: members, weight, share, quota and budget. Without a command: list projects."""
    return listing(mine=mine, output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral projects list", "corral projects list --mine -o json"))
@list_command
def listing(mine: Mine = False, output: Output = Format.TABLE) -> int:
    """List all declared projects, and all other projects that have had jobs.

    SHARE is the part of the cluster to which a project is entitled while all declared projects have waiting
    jobs. FACTOR is 1 without usage, and falls as the usage grows in relation to the share. Projects are
    declared in the tables [projects.NAME] of scheduler.toml. 'corral shares set' changes weights, 'corral
    quota set' changes limits.
    """
    body = Client().projects()
    shown = tuple(each for each in body.projects if each.may_submit or not mine)
    project_table().show(output, shown, replace(body, projects=shown))
    if output in (Format.TABLE, Format.WIDE):
        print_note(_UNKNOWN[body.unknown])
    return 0


@app.command(epilog=examples("corral projects show vision", "corral projects show vision -o json"))
def show(name: Name, output: Output = Format.TABLE) -> int:
    """Show one project: its members, share, quota and budget."""
    view = Client().project(name)
    show_one(output, view, _facts(view), view.name)
    return 0


def _facts(view: ProjectView) -> Iterator[tuple[str, str]]:
    yield "project", view.name if view.declared else f"{view.name} (not declared)"
    yield "members", ", ".join(view.members) or "all users"
    yield "you", "" if view.may_submit else "may not submit to it"
    yield "default for", ", ".join(view.default_for)
    yield "queues", ", ".join(view.queues)
    yield "organisation", view.organisation
    yield "weight", f"{view.weight:g}"
    yield "share", "" if view.share is None else f"{_share(view)} of the cluster"
    yield "factor", f"{view.factor:.4f}"
    for each in AMOUNTS:
        yield each.word, view.quota.use_text(each)
    if view.budget is not None:
        used, then = percent(view.budget.percent), view.budget.then
        yield "budget", f"{used} of {view.budget.month} used; when it is used up: {_THEN.get(then, then)}"


def _share(view: ProjectView) -> str:
    return "-" if view.share is None else f"{view.share:.1%}"


def _members(view: ProjectView) -> str:
    return ",".join(view.members) or "all users"


def project_table() -> Table[ProjectView]:
    return Table(
        [
            Column(
                "PROJECT",
                lambda each: each.name,
                narrow=8,
                colour=lambda each: "" if each.may_submit else FAINT,
            ),
            Column("MEMBERS", _members, rank=4, narrow=9),
            Column("ORGANISATION", lambda each: each.organisation or "-", rank=7, narrow=6),
            Column("WEIGHT", lambda each: decimal(each.weight).removesuffix(".0"), rank=5, right=True),
            Column("SHARE", _share, right=True),
            Column("GPUS", lambda each: each.quota.use_text(_GPUS), right=True),
            Column("RUNNING", lambda each: str(each.quota.used.running or 0), rank=2, right=True),
            Column("WAITING", lambda each: str(each.quota.used.queued or 0), rank=3, right=True),
            Column(
                "BUDGET",
                _budget,
                rank=6,
                right=True,
                colour=lambda each: _budget_colour(each),
            ),
            Column("FACTOR", lambda each: f"{each.factor:.4f}", rank=8, right=True),
            Column("DEFAULT FOR", lambda each: ",".join(each.default_for), rank=9, wide=True),
            Column("QUEUES", lambda each: ",".join(each.queues), rank=9, wide=True),
            Column("DECLARED", lambda each: "yes" if each.declared else "no", rank=9, wide=True),
        ],
        lambda each: each.name,
        kind=ProjectView,
    )


def _budget(view: ProjectView) -> str:
    return "-" if view.budget is None else percent(view.budget.percent).replace(" ", "")


def _budget_colour(view: ProjectView) -> str:
    used = 0.0 if view.budget is None else view.budget.percent
    return RED if used >= 100 else YELLOW if used >= 80 else ""
