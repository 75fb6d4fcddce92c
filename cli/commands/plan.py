"""corral plan: shows when and where the scheduler expects jobs to run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cli.commands.explain import Within
from cli.exit_codes import CommandError
from cli.flags import option, with_flag_groups
from cli.jobs.job_filter import JobFilter
from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import clock
from cli.registry import application, examples
from wire import amounts
from wire.api.forecasts import DRAIN, Plan, PlanEntry
from wire.http.client import Client
from wire.job.spec import gpus_text
from wire.text import counted, duration, printable

app = application()

Horizon = Annotated[
    float,
    option(
        "--horizon",
        "TIME",
        "Time from now that the plan covers (e.g. 7d). Default: 24h.",
        parser=amounts.seconds,
    ),
]
Picture = Annotated[
    Path | None,
    option(
        "--picture",
        "FILE",
        "Also draw the plan into FILE, which ends in .svg or .html. Default: draw nothing.",
    ),
]


@app.command(
    epilog=examples(
        "corral plan",
        "corral plan --horizon 7d -o json",
        "corral plan --project vision --sort ends_at",
        "corral plan --horizon 12h --picture plan.svg",
    )
)
@with_flag_groups
@list_command
def plan(
    only: JobFilter = JobFilter(),
    horizon: Horizon = 86_400.0,
    within: Within = None,
    picture: Picture = None,
    output: Output = Format.TABLE,
) -> int:
    """Show when and on which nodes jobs run in the next hours, as the scheduler expects it now.

    SURE says how START was found. certain: the job runs already. limit: START is the latest start, which
    assumes that all jobs use their whole time limits. likely: the latest start is not known, and START is
    predicted from the run times of earlier jobs. The column LIKELY has the predicted start. Jobs without a
    time limit have no END.
    """
    if picture is not None and picture.suffix not in (".svg", ".html"):
        raise CommandError(
            f"{picture} does not end in .svg or .html", "Write for example --picture plan.svg."
        )
    body = Client().plan(horizon, within)
    shown = [
        each
        for each in body.entries
        if only.selects(each.user, each.project, each.queue, each.name, each.nodes)
    ]
    body = replace(body, entries=tuple(shown))
    if picture is not None:
        from cli.output.plan_chart import plan_html, plan_svg

        text = plan_html(body) if picture.suffix == ".html" else plan_svg(body)
        try:
            picture.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"cannot write {picture}: {error.strerror}", "Choose another file.") from None
    table().show(output, body.entries, body)
    if output in (Format.TABLE, Format.WIDE):
        for line in _notes(body):
            print_note(line)
    return 0


def table() -> Table[PlanEntry]:
    return Table(
        [
            Column("START", lambda each: clock(each.starts_at)),
            Column("END", lambda each: "-" if each.ends_at is None else clock(each.ends_at)),
            Column("SURE", lambda each: each.certainty),
            Column("JOB", lambda each: each.label),
            Column("NAME", lambda each: each.name, rank=3, narrow=8),
            Column("USER", lambda each: each.user, rank=2, narrow=6),
            Column("QUEUE", lambda each: each.queue, rank=5, narrow=6),
            Column("GPUS", lambda each: gpus_text(each.gpus), right=True, rank=1),
            Column("LIKELY", lambda each: "" if each.likely_at is None else clock(each.likely_at), rank=4),
            Column("NODES", lambda each: ",".join(each.nodes), narrow=10),
        ],
        lambda each: each.label,
        kind=PlanEntry,
    )


def _notes(plan: Plan) -> list[str]:
    """Return sentences about reservations, drains, free GPUs, and jobs without a start."""
    lines = []
    for block in plan.blocks:
        what = f"node {block.name} is drained" if block.kind == DRAIN else f"reservation {block.name}"
        end = "" if block.ends_at is None else f" to {clock(block.ends_at)}"
        lines.append(printable(f"{what} from {clock(block.starts_at)}{end} on {', '.join(block.nodes)}", 300))
    if plan.free:
        least = min(plan.free, key=lambda each: each.gpus_free)
        lines.append(
            f"free GPUs: {gpus_text(max(0.0, plan.free[0].gpus_free))} of {plan.gpus} now, "
            f"at least {gpus_text(max(0.0, least.gpus_free))} (at {clock(least.at)})"
        )
    if plan.without_start:
        jobs = counted(plan.without_start, "waiting job")
        lines.append(f"{jobs} {'has' if plan.without_start == 1 else 'have'} no known start in this time")
    if plan.left_out:
        lines.append(f"{counted(plan.left_out, 'later job')} not shown")
    if plan.covers_until is not None:
        lines.append(
            f"the time for the answer was too short: starts are known for the next "
            f"{duration(plan.covers_until - plan.now)} (use --within)"
        )
    elif not plan.complete:
        lines.append("the time for the answer was too short for likely starts (use --within)")
    return lines
