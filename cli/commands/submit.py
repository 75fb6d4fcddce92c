"""corral submit: queues a job. The commands corral run and corral what-if use functions of this module."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli.flags import option, switch, with_flag_groups
from cli.jobs.wait import first_failure, wait_until_ended
from cli.output.details import spec_details
from cli.output.formats import WORDS as FORMAT_WORDS
from cli.output.formats import Format, JobFormat, show_one, write
from cli.output.stderr import print_note
from cli.registry import SETTINGS, application, examples
from cli.spec.spec_builder import flag_of, submission_of
from cli.spec.submit_options.flag_groups import SubmitOptions
from cli.spec.submitter_environment import submitter
from wire.api.jobs import Submitted
from wire.http.client import Client, Refused, Unreachable
from wire.job.spec import JobSpec

WORDS = "SCRIPT [ARG]... | -- COMMAND [ARG]..."

# Do not read options after the script, because all words after the script are arguments of the job, such as
# '--epochs 3'.
JOB_SETTINGS = {**SETTINGS, "allow_interspersed_args": False}


class JobCommand(TyperCommand):
    """Typer command that records in `ctx.meta` whether the job is a command (the words after '--') or a
    script.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            raise _output_hint(error) from None
        if ctx.params.get("output") in FORMAT_WORDS:
            word = ctx.params["output"]
            print_note(
                f"corral: --output {word} is a file for the job's output; for the answer's format, -o {word}"
            )
        words = len(ctx.params.get("words") or [])
        ctx.meta["is_command"] = 0 < words < len(given) and given[-words - 1] == "--"
        return rest

    def collect_usage_pieces(self, _ctx: Any) -> list[str]:
        return ["[OPTIONS]", WORDS]


def _output_hint(error: typer.BadParameter) -> typer.BadParameter:
    """Return the error for an invalid value of -o, such as `-o out.txt`, with a hint. In sbatch, -o names the
    file for the job's output; in Corral, --output does this.
    """
    if error.param is not None and error.param.name == "answer":
        file = error.message.partition("' is none of")[0].lstrip("'")
        error.message += f". For a file that takes the job's output, write --output {file}"
    return error


Words = Annotated[list[str], typer.Argument(metavar=WORDS, hidden=True)]
AsUser = Annotated[
    str, option("--as-user", "USER", "Submit the job as this user. Only operators may do this. Default: you.")
]
Key = Annotated[
    str,
    option(
        "--key",
        "TEXT",
        "Idempotency key. A second submit with the same key creates no new job, and prints the id of "
        "the first job.",
    ),
]
DryRun = Annotated[bool, switch("--dry-run", "Submit nothing. Only show the job with all defaults.")]

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
@with_flag_groups
def submit(
    context: typer.Context,
    options: SubmitOptions,
    words: Words = [],  # noqa: B006 - never changed
    as_user: AsUser = "",
    key: Key = "",
    wait: Annotated[
        bool, switch("--wait", "Wait until the job has ended, and exit with the exit code of the job.")
    ] = False,
    dry_run: DryRun = False,
    answer: JobFormat = Format.TABLE,
) -> int:
    """Queue a job: a command after '--', or a script. The text of the script is sent to the controller, so
    nodes need no copy of the script.

    Every option can also be set in a '#CORRAL' line of the script, or in an environment variable such as
    CORRAL_SUBMIT_GPUS=1. A flag overrides the environment, which overrides the script. '#SBATCH' lines are
    translated if Corral has the same option.
    """
    made = submission_of(options, words, is_command=context.meta["is_command"], submitter=submitter())
    if dry_run:
        show(previewed(made.spec, as_user), answer)
        return 0
    submitted = send(Client(), made.spec, key, as_user)
    if answer in (Format.TABLE, Format.WIDE):
        write(f"{submitted.label}\n")
    else:
        show_one(answer, submitted, (), submitted.label)
    if wait or made.wait:
        sys.stdout.flush()
        return first_failure(wait_until_ended(submitted.ids))
    if sys.stdout.isatty():
        print_note(f"Queued. Show it with: corral job show {submitted.label}")
    return 0


def previewed(spec: JobSpec, as_user: str) -> JobSpec:
    """Return the job as the controller would queue it, with all defaults. If no controller answers, return
    the job without the controller's defaults.
    """
    try:
        return Client().preview(spec, as_user=as_user)
    except Unreachable:
        return spec
    except Refused as refused:
        if refused.problem.code == "not_found":
            return spec  # Return the spec without defaults, because an older controller cannot compute them.
        raise _by_option(refused, spec) from None


def _by_option(refused: Refused, spec: JobSpec) -> Refused:
    """Return the controller's error about a job, but with the name of the API field replaced by the name of
    the flag, such as --time.
    """
    where = flag_of(refused.problem.where.removeprefix("spec."), spec)
    return Refused(refused.status, replace(refused.problem, where=where))


def send(client: Client, spec: JobSpec, key: str, as_user: str) -> Submitted:
    """Submit the job, print the notes of the answer, and return the answer. Raise Refused with the name of
    the wrong flag if the controller refuses the job.
    """
    try:
        submitted = client.submit(spec, key=key, as_user=as_user)
    except Refused as refused:
        raise _by_option(refused, spec) from None
    for note in submitted.notes:
        print_note(f"corral: {note}")
    return submitted


def show(spec: JobSpec, output: Format) -> None:
    show_one(output, spec, spec_details.of_spec(spec), spec.name)
