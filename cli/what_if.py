"""corral what-if …: what would change, asked before it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli import reserve
from cli.asked import Asked, asking
from cli.changes import changes_of
from cli.commands import application, examples
from cli.exits import Mistake
from cli.jobs import spec_of
from cli.output import Format, Output
from cli.quota import Name, Scope, quota_of, scope_of
from cli.selection import Jobs, select
from cli.shares import Hard, Share, Soft, Weight, change_of
from cli.shifts import show
from cli.submit import JOB_SETTINGS, JobCommand, Words
from wire.api.forecasts import ConfigFile, JobEdit, MoreNodes, QuotaEdit, WhatIf
from wire.client import Client

Nodes = Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.", show_default=False)]

File = Annotated[Path, typer.Argument(metavar="FILE", help="Another scheduler.toml.", show_default=False)]

app = application("Ask what would change, before doing it. Nothing is done.")


@app.command(
    "submit",
    cls=JobCommand,
    context_settings=JOB_SETTINGS,
    epilog=examples(
        "corral what-if submit --gpus 8 --time 4h -- python train.py",
        "corral what-if submit --gpus 16 --nodes 2 --priority high train.sh",
    ),
)
@asking
def submit(
    context: typer.Context,
    asked: Asked,
    words: Words = [],  # noqa: B006 - never changed
    output: Output = Format.TABLE,
) -> int:
    """When would this job start, and who would start later because of it?"""
    spec = spec_of(asked, words, is_command=context.meta["is_command"])
    return _answer(WhatIf(submit=(spec,)), output)


@app.command(
    "set",
    epilog=examples("corral what-if set 7 --priority 90", "corral what-if set 7_[0-9] --time 1h --gpus 4"),
)
@asking
def change(
    asked: Asked,
    jobs: Jobs,
    clear: Annotated[str, typer.Option("--clear", metavar="OPTIONS", help="As if not given.")] = "",
    output: Output = Format.TABLE,
) -> int:
    """Who would start sooner and who later if these jobs asked for something else?

    Options are those of 'corral submit', as in 'corral job set'.
    """
    changes = changes_of(asked, clear)
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(edit=tuple(JobEdit(job.id, changes) for job in found)), output)


@app.command(epilog=examples("corral what-if cancel 7", "corral what-if cancel 7_[0-3]"))
def cancel(jobs: Jobs, output: Output = Format.TABLE) -> int:
    """Who would start sooner if these jobs were cancelled?"""
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(cancel=tuple(job.id for job in found)), output)


@app.command(epilog=examples("corral what-if preempt 7"))
def preempt(jobs: Jobs, output: Output = Format.TABLE) -> int:
    """Who would start sooner if these jobs made room, and went back to the queue?"""
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(preempt=tuple(job.id for job in found)), output)


@app.command(epilog=examples("corral what-if hold 7"))
def hold(jobs: Jobs, output: Output = Format.TABLE) -> int:
    """Who would start sooner if these jobs were held?"""
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(hold=tuple(job.id for job in found)), output)


@app.command(epilog=examples("corral what-if release 7", "corral what-if release 7_[0-9]"))
def release(jobs: Jobs, output: Output = Format.TABLE) -> int:
    """Who would start later if these jobs were released?"""
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(release=tuple(job.id for job in found)), output)


@app.command(epilog=examples("corral what-if drain gpu01", "corral what-if drain gpu01 gpu02 -o json"))
def drain(nodes: Nodes, output: Output = Format.TABLE) -> int:
    """Who would start later if these nodes took no new work?"""
    return _answer(WhatIf(drain=tuple(nodes)), output)


@app.command(epilog=examples("corral what-if resume gpu01"))
def resume(nodes: Nodes, output: Output = Format.TABLE) -> int:
    """Who would start sooner if these nodes took work again?"""
    return _answer(WhatIf(resume=tuple(nodes)), output)


@app.command(epilog=examples("corral what-if share vision 3", "corral what-if share vision/ada --hard 500"))
def share(
    name: Share,
    weight: Weight = None,
    soft: Soft = None,
    hard: Hard = None,
    output: Output = Format.TABLE,
) -> int:
    """Who would start sooner and who later if this share had another weight, or other limits?"""
    return _answer(WhatIf(shares=(change_of(name, weight, soft, hard),)), output)


@app.command(
    epilog=examples(
        "corral what-if quota user ada gpus=8 running=20", "corral what-if quota project vision --unset"
    )
)
def quota(
    scope: Scope,
    name: Name,
    words: Annotated[list[str], typer.Argument(metavar="[KEY=VALUE...]")] = [],  # noqa: B006
    unset: Annotated[bool, typer.Option("--unset", help="What the configuration says.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Who would start sooner and who later with these limits over what holds now?"""
    if unset == bool(words):
        raise Mistake("there is nothing to try", "Write limits such as gpus=8, or --unset.")
    asked = QuotaEdit(scope_of(scope), name, None if unset else quota_of(words))
    return _answer(WhatIf(quotas=(asked,)), output)


@app.command(
    "reserve",
    epilog=examples(
        "corral what-if reserve fans --node gpu01 --start 18:00 --for 2h",
        "corral what-if reserve course --gpus 16 --project ai --for 4h",
    ),
)
def keep(
    name: reserve.Name,
    length: reserve.For = "",
    start: reserve.Start = "now",
    nodes: reserve.Nodes = [],  # noqa: B006
    count: reserve.Count = None,
    gpus: reserve.Gpus = None,
    select: reserve.Select = [],  # noqa: B006
    users: reserve.Users = [],  # noqa: B006
    projects: reserve.Projects = [],  # noqa: B006
    every: reserve.Every = "",
    output: Output = Format.TABLE,
) -> int:
    """Who would start later if nodes were kept for a time?"""
    spec = reserve.asked_of(name, length, start, nodes, count, gpus, select, users, projects, every, "")
    return _answer(WhatIf(reserve=(spec,)), output)


@app.command(epilog=examples("corral what-if unreserve fans"))
def unreserve(name: reserve.Name, output: Output = Format.TABLE) -> int:
    """Who would start sooner if this reservation were cancelled?"""
    return _answer(WhatIf(cancel_reservations=(name,)), output)


@app.command("nodes", epilog=examples("corral what-if nodes --add 4 --like gpu01"))
def more_nodes(
    like: Annotated[str, typer.Option("--like", metavar="NODE", help="One that is there.")],
    add: Annotated[int, typer.Option("--add", metavar="N", min=1, max=1000, help="So many more.")] = 1,
    output: Output = Format.TABLE,
) -> int:
    """Who would start sooner with more nodes like one that is there?"""
    return _answer(WhatIf(nodes=(MoreNodes(like, add),)), output)


@app.command(
    epilog=examples("corral what-if config new-scheduler.toml", "corral what-if config new.toml -o json")
)
def config(file: File, output: Output = Format.TABLE) -> int:
    """Who would start sooner and who later under another configuration? For operators.

    The tables that decide who starts when are considered, and it is said which others differ from what runs.
    The file is read here, and understood where the controller runs.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise Mistake(f"{file}: {why}", "Name a scheduler.toml to try.") from None
    return _answer(WhatIf(config=ConfigFile(text, str(file.absolute()))), output)


def _answer(asked: WhatIf, output: Format) -> int:
    return show(Client().what_if(asked), output)
