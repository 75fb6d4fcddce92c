"""corral what-if: shows which jobs a change would start sooner or later, without making the change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.explain import Within
from cli.commands.job import Clear
from cli.commands.policy import reserve
from cli.commands.policy.quota import Name, Scope, quota_of, scope_of
from cli.commands.policy.shares import ShareFlags
from cli.commands.service.config import read_text
from cli.commands.submit import JOB_SETTINGS, JobCommand, Words
from cli.exit_codes import CommandError
from cli.flags import argument, option, switch, with_flag_groups
from cli.jobs.selection import Jobs, select
from cli.output.formats import Format, JobFormat, Output
from cli.output.what_if_table import show
from cli.registry import application, examples
from cli.spec.edit_fields import changes_of, split_extension
from cli.spec.spec_builder import spec_of
from cli.spec.submit_options.flag_groups import EditOptions, SubmitOptions
from wire import amounts
from wire.api.forecasts import ConfigFile, JobEdit, MoreNodes, QuotaEdit, WhatIf
from wire.api.jobs import JobView
from wire.http.client import Client

Nodes = Annotated[list[str], argument("NODE...", "Names of nodes.")]
NodesOrGpus = Annotated[
    list[str],
    argument("NODE[:GPU]...", "Names of nodes (e.g. gpu01), or GPUs by node and number (e.g. gpu01:3)."),
]

File = Annotated[
    Path,
    argument(
        "FILE", "Path of a scheduler.toml on this machine, to compare with the configuration in effect."
    ),
]

app = application("Show which jobs would start sooner or later after a change. Nothing is changed.")


@app.command(
    "submit",
    cls=JobCommand,
    context_settings=JOB_SETTINGS,
    epilog=examples(
        "corral what-if submit --gpus 8 --time 4h -- python train.py",
        "corral what-if submit --gpus 16 --nodes 2 --priority high train.sh",
    ),
)
@with_flag_groups
def submit(
    context: typer.Context,
    options: SubmitOptions,
    words: Words = [],  # noqa: B006 - never changed
    within: Within = None,
    answer: JobFormat = Format.TABLE,
) -> int:
    """Show the start of this job if it were submitted now, and the other jobs that would then start later."""
    spec = spec_of(options, words, is_command=context.meta["is_command"])
    return _answer(WhatIf(submit=(spec,)), answer, within)


@app.command(
    "set",
    epilog=examples("corral what-if set 7 --priority 90", "corral what-if set 7_[0-9] --time 1h --gpus 4"),
)
@with_flag_groups
def change(
    options: EditOptions,
    jobs: Jobs,
    clear: Clear = "",
    within: Within = None,
    answer: JobFormat = Format.TABLE,
) -> int:
    """Show which jobs would start sooner or later if these jobs had other options.

    The options are those of 'corral submit', as in 'corral job set'.
    """
    written, extend_s = split_extension(options)
    changes = changes_of(written, clear, extends=extend_s > 0)
    found = select(Client(), jobs, mine=False)

    def edit(job: JobView) -> JobEdit:
        longer = {"time_limit_s": (job.time_limit_s or 0.0) + extend_s} if extend_s else {}
        return JobEdit(job.id, {**changes, **longer})

    return _answer(WhatIf(edit=tuple(map(edit, found))), answer, within)


@app.command(epilog=examples("corral what-if cancel 7", "corral what-if cancel 7_[0-3]"))
def cancel(jobs: Jobs, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show which jobs would start sooner if these jobs were cancelled."""
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(cancel=tuple(job.id for job in found)), output, within)


@app.command(epilog=examples("corral what-if preempt 7", "corral what-if preempt 7 --hold"))
def preempt(
    jobs: Jobs,
    hold: Annotated[bool, switch("--hold", "Also hold the preempted jobs.")] = False,
    within: Within = None,
    output: Output = Format.TABLE,
) -> int:
    """Show which jobs would start sooner if these jobs were preempted and queued again."""
    found = select(Client(), jobs, mine=False)
    request = WhatIf(preempt=tuple(job.id for job in found), stay_held=hold)
    return _answer(request, output, within)


@app.command(epilog=examples("corral what-if hold 7"))
def hold(jobs: Jobs, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show which jobs would start sooner if these jobs were held."""
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(hold=tuple(job.id for job in found)), output, within)


@app.command(epilog=examples("corral what-if release 7", "corral what-if release 7_[0-9]"))
def release(jobs: Jobs, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show which jobs would start later if these jobs were released."""
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(release=tuple(job.id for job in found)), output, within)


@app.command(
    epilog=examples(
        "corral what-if drain gpu01",
        "corral what-if drain gpu01 --by 18:00",
        "corral what-if drain gpu01 gpu02 -o json",
    )
)
def drain(
    nodes: Nodes,
    by: Annotated[
        float | None,
        option(
            "--by",
            "WHEN",
            "Time by which the nodes are empty: a time (e.g. 18:30), or a duration from now (e.g. 2h).",
            parser=amounts.moment_or_delay,
        ),
    ] = None,
    within: Within = None,
    output: Output = Format.TABLE,
) -> int:
    """Show which jobs would start later if these nodes were drained. With --by, also show the running jobs
    that would be moved or ended.
    """
    return _answer(WhatIf(drain=tuple(nodes), drain_by=by), output, within)


@app.command(epilog=examples("corral what-if resume gpu01", "corral what-if resume gpu01:3"))
def resume(nodes: NodesOrGpus, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show which jobs would start sooner if these nodes or GPUs were resumed."""
    return _answer(WhatIf(resume=tuple(nodes)), output, within)


@app.command(epilog=examples("corral what-if share vision 3", "corral what-if share vision/ada --hard 500"))
@with_flag_groups
def share(flags: ShareFlags, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show which jobs would start sooner or later if this tenant had another weight or other limits."""
    return _answer(WhatIf(shares=(flags.change(),)), output, within)


@app.command(
    epilog=examples(
        "corral what-if quota user ada gpus=8 running=20", "corral what-if quota project vision --unset"
    )
)
def quota(
    scope: Scope,
    name: Name,
    words: Annotated[list[str], argument("[KEY=VALUE...]", "Limits to try (e.g. gpus=8 soft.gpus=4).")] = [],  # noqa: B006
    unset: Annotated[
        bool,
        switch(
            "--unset",
            "Remove the limits that 'corral quota set' has set, so that the limits of the "
            "configuration apply.",
        ),
    ] = False,
    within: Within = None,
    output: Output = Format.TABLE,
) -> int:
    """Show which jobs would start sooner or later if this quota had other limits."""
    if unset == bool(words):
        raise CommandError("there is nothing to try", "Write limits such as gpus=8, or --unset.")
    request = QuotaEdit(scope_of(scope), name, None if unset else quota_of(words))
    return _answer(WhatIf(quotas=(request,)), output, within)


@app.command(
    "reserve",
    epilog=examples(
        "corral what-if reserve fans --node gpu01 --start 18:00 --for 2h",
        "corral what-if reserve course --gpus 16 --project ai --for 4h",
    ),
)
@with_flag_groups
def keep(flags: reserve.ReservationFlags, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show which jobs would start later if these nodes were reserved."""
    return _answer(WhatIf(reserve=(flags.spec(),)), output, within)


@app.command(epilog=examples("corral what-if unreserve fans"))
def unreserve(name: reserve.Name, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show which jobs would start sooner if this reservation were cancelled."""
    return _answer(WhatIf(cancel_reservations=(name,)), output, within)


@app.command("nodes", epilog=examples("corral what-if nodes --add 4 --like gpu01"))
def more_nodes(
    like: Annotated[
        str,
        option("--like", "NODE", "Name of an existing node. The new nodes have the resources of this node."),
    ],
    add: Annotated[int, option("--add", "N", "Number of new nodes. Default: 1.", min=1, max=1000)] = 1,
    within: Within = None,
    output: Output = Format.TABLE,
) -> int:
    """Show which jobs would start sooner if the cluster had more nodes like an existing node."""
    return _answer(WhatIf(nodes=(MoreNodes(like, add),)), output, within)


@app.command(
    epilog=examples("corral what-if config new-scheduler.toml", "corral what-if config new.toml -o json")
)
def config(file: File, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show which jobs would start sooner or later under another scheduler.toml. Operators only.

    The forecast uses only the tables of the file that affect when jobs start. The answer names the other
    tables that differ from the configuration in effect. This command reads the file on this machine, and the
    controller checks it.
    """
    return _answer(WhatIf(config=ConfigFile(read_text(file), str(file.absolute()))), output, within)


def _answer(request: WhatIf, output: Format, within: float | None) -> int:
    return show(Client().what_if(request, within_s=within), output)
