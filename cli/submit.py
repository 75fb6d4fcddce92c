"""corral submit, and what it shares with corral run."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli import facts
from cli.asked import Asked, asking
from cli.commands import SETTINGS, application, examples
from cli.follow import until_over, worst
from cli.jobs import flag_of, spec_of
from cli.messages import note
from cli.output import Format, Output, write, write_facts, write_json
from wire.api.jobs import Submitted
from wire.client import Client, Refused
from wire.spec import JobSpec

WORDS = "SCRIPT [ARG]... | -- COMMAND [ARG]..."

# Options end at the first word: what follows belongs to the job, '--epochs 3' included.
JOB_SETTINGS = {**SETTINGS, "allow_interspersed_args": False}


class JobCommand(TyperCommand):
    """Knows whether its words came behind '--': then they are a command, else a script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = len(ctx.params.get("words") or [])
        ctx.meta["is_command"] = 0 < words < len(given) and given[-words - 1] == "--"
        return rest

    def collect_usage_pieces(self, _ctx: Any) -> list[str]:
        return ["[OPTIONS]", WORDS]


Words = Annotated[list[str], typer.Argument(metavar=WORDS, hidden=True)]
AsUser = Annotated[str, typer.Option("--as-user", metavar="USER", help="Submit for somebody else.")]
Key = Annotated[
    str, typer.Option("--key", metavar="TEXT", help="Submitting again with the same key is the same job.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the job, change nothing.")]

app = application()


@app.command(
    cls=JobCommand,
    context_settings=JOB_SETTINGS,
    epilog=examples(
        "corral submit --gpus 1 --memory 32G -- python train.py --epochs 3",
        "corral submit --gpus 0.5 --time 2h30m -- jupyter lab",
        "corral submit --gpus 16 --nodes 2 train.sh",
        "corral submit --array 0-99%8 -- sh -c 'echo $CORRAL_ARRAY_INDEX'",
        "corral submit --after-ok 12,13 --deadline 18:00 evaluate.sh",
        "corral submit --begin 22:00 --restart on-failure:3 train.sh",
        "corral submit --dry-run train.sh",
        "job=$(corral submit train.sh) && corral job wait $job",
    ),
)
@asking
def submit(
    context: typer.Context,
    asked: Asked,
    words: Words = [],  # noqa: B006 - never changed
    as_user: AsUser = "",
    key: Key = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit with the job's code.")] = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Queue a job: a command behind '--', or a script, whose text is sent along.

    Every option may also stand in a '#CORRAL' line of the script, or in the environment:
    CORRAL_SUBMIT_GPUS=1. A flag is stronger than the environment, which is stronger than the script.
    '#SBATCH' lines are understood as far as Corral has a counterpart.
    """
    spec = spec_of(asked, words, is_command=context.meta["is_command"])
    if dry_run:
        show(spec, output)
        return 0
    submitted = send(Client(), spec, key, as_user)
    if output is Format.JSON:
        write_json(submitted)
    else:
        write(f"{submitted.label}\n")
    if wait:
        sys.stdout.flush()
        return worst(until_over(submitted.ids))
    if sys.stdout.isatty():
        note(f"Queued; see it with: corral job show {submitted.label}")
    return 0


def send(client: Client, spec: JobSpec, key: str, as_user: str) -> Submitted:
    """Submit; a refusal names the option, not the field of the API."""
    try:
        return client.submit(spec, key=key, as_user=as_user)
    except Refused as refused:
        where = flag_of(refused.problem.where.removeprefix("spec."))
        raise Refused(refused.status, replace(refused.problem, where=where)) from None


def show(spec: JobSpec, output: Format) -> None:
    """The job as it would be sent."""
    if output is Format.JSON:
        write_json(spec)
    else:
        write_facts(facts.of_spec(spec))
