"""corral plan: shows when and where the scheduler expects jobs to run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

from cli import completion
from cli.commands.explain import Within
from cli.exit_codes import CommandError
from cli.flags import option, with_flag_groups
from cli.jobs.job_filter import JobFilter
from cli.output.formats import WORDS, Column, Format, Table, read_format
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
PICTURES: Final = ("svg", "html", "png")


def _plan_format(text: str | Format) -> Format:
    """Return the format for the value of -o, which for this command can also be a picture."""
    if isinstance(text, str) and text in PICTURES:
        return Format(text)
    try:
        return read_format(text)
    except ValueError as error:
        raise ValueError(f"{error}, {', '.join(PICTURES)}") from None


Picture = Annotated[
    Path | None,
    option(
        "--picture",
        "FILE",
        "Also draw the plan into FILE, whose name ends in .svg, .html or .png. Default: draw nothing.",
    ),
]
PlanOutput = Annotated[
    Format,
    option(
        "-o --output",
        "FORMAT",
        "Format of what the command prints: table, wide, json, yaml, csv, name or jsonpath=TEMPLATE; or a "
        "picture: svg, html or png. Default: table.",
        parser=_plan_format,
        autocompletion=completion.words(*WORDS, *PICTURES),
    ),
]


@app.command(
    epilog=examples(
        "corral plan",
        "corral plan --horizon 7d -o json",
        "corral plan --project vision --sort ends_at",
        "corral plan --horizon 12h --picture plan.svg",
        "corral plan -o png > plan.png",
    )
)
@with_flag_groups
@list_command
def plan(
    only: JobFilter = JobFilter(),
    horizon: Horizon = 86_400.0,
    within: Within = None,
    picture: Picture = None,
    output: PlanOutput = Format.TABLE,
) -> int:
    """Show when and on which nodes jobs run in the next hours, as the scheduler expects it now.

    SURE says how START was found. certain: the job runs already. limit: START is the latest start, which
    assumes that all jobs use their whole time limits. likely: the latest start is not known, and START is
    predicted from the run times of earlier jobs. The column LIKELY has the predicted start. Jobs without a
    time limit have no END.
    """
    suffix = "" if picture is None else picture.suffix.removeprefix(".")
    if picture is not None and suffix not in PICTURES:
        raise CommandError(
            f"{picture} does not end in .svg, .html or .png", "Write for example --picture plan.svg."
        )
    body = Client().plan(horizon, within)
    shown = [
        each
        for each in body.entries
        if only.selects(each.user, each.project, each.queue, each.name, each.nodes)
    ]
    body = replace(body, entries=tuple(shown))
    if picture is not None:
        try:
            picture.write_bytes(_drawn(body, suffix))
        except OSError as error:
            raise CommandError(f"cannot write {picture}: {error.strerror}", "Choose another file.") from None
    if output.word in PICTURES:
        _print_picture(body, output.word)
        return 0
    table().show(output, body.entries, body)
    if output in (Format.TABLE, Format.WIDE):
        for line in _notes(body):
            print_note(line)
    return 0


def _drawn(plan: Plan, kind: str) -> bytes:
    """Return the plan as a picture. `kind` is svg, html or png."""
    from cli.output.pictures.plan_chart import plan_html, plan_svg

    if kind == "png":
        from cli.output.pictures.png import png_of

        return png_of(plan_svg(plan))
    return f"{plan_html(plan) if kind == 'html' else plan_svg(plan)}".encode()


def _print_picture(plan: Plan, kind: str) -> None:
    if kind == "png" and sys.stdout.isatty():
        raise CommandError(
            "a PNG image cannot be shown in a terminal", "Write it to a file: corral plan -o png > plan.png"
        )
    drawn = _drawn(plan, kind)
    if kind == "png":
        sys.stdout.buffer.write(drawn)
        sys.stdout.buffer.flush()
    else:
        print(drawn.decode())


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
