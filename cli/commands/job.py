"""corral job: shows and changes jobs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from cli import exit_codes
from cli.commands import exec as in_job
from cli.commands import logs
from cli.flags import FlagGroup, argument, option, switch, with_flag_groups
from cli.jobs.selection import Job, Jobs, Mine, Yes, select, select_one
from cli.output.confirmation import confirmed
from cli.output.details import job_details
from cli.output.formats import Format, JobFormat, Output, write_data, write_facts
from cli.output.job_stats import stats_table
from cli.output.stderr import print_note, print_refusal
from cli.output.table_columns import clock, job_table
from cli.registry import application, examples
from cli.spec.edit_fields import changes_of, split_extension, with_flag_names
from cli.spec.submit_options.flag_groups import EditOptions
from wire import amounts
from wire.api.job_selection import AllJobs, InvalidSelection, JobRange, JobsOf, parse_selection
from wire.api.jobs import JobRefused, JobsOrder, KeepRequest
from wire.api.problem import Problem
from wire.api.service.job_stats import SHORTEST_S
from wire.http.client import Client
from wire.text import counted, duration

SHOWN = 100
"""At most this many reasons for refusals are printed."""
DryRun = Annotated[
    bool, switch("--dry-run", "Change nothing. Only show which jobs the command would change.")
]

Clear = Annotated[
    str,
    option(
        "--clear",
        "OPTIONS",
        "Options to reset to their defaults, separated by commas (e.g. deadline,after). 'corral submit "
        "--help' lists the defaults.",
    ),
]

app = application("Show, follow, change, cancel, hold, release, requeue, preempt or wait for jobs.")


@app.command(epilog=examples("corral job show 7", "corral job show last -o json", "corral job show 7_[0-3]"))
def show(jobs: Jobs, output: Output = Format.TABLE) -> int:
    """Show all details of a job: its request, its nodes, and why it waits. If several jobs are named: list
    these jobs.
    """
    client = Client()
    found = select(client, jobs, mine=False, ended=True)
    if len(found) == 1 and (output.is_data or output in (Format.TABLE, Format.WIDE)):
        detail = client.job(found[0].id)
        if output.is_data:
            write_data(output, detail)
        else:
            write_facts(job_details.of_job(detail))
    else:
        job_table().show(output, found)
    return 0


@app.command(
    epilog=examples("corral job stats 7", "corral job stats last -o json", "corral job stats 7_[0-3]")
)
def stats(jobs: Jobs, output: Output = Format.TABLE) -> int:
    """Show the resources that jobs requested and used: CPUs, memory, GPUs, GPU memory, energy and time.

    The last lines have the options of 'corral submit' that would fit the jobs better. The figures of CPUs and
    GPUs are means. The figure of memory is the peak on the node with the highest peak. For a running job, the
    figures cover the time until now.
    """
    client = Client()
    found = [client.job_stats(each.id) for each in select(client, jobs, mine=False, ended=True)]
    stats_table(several=len(found) > 1).show(
        output,
        [(each, resource) for each in found for resource in each.resources],
        found[0] if len(found) == 1 else found,
    )
    for each in found if output in (Format.TABLE, Format.WIDE) else ():
        if each.change:
            print_note(f"change for job {each.label}: corral submit {each.change} …")
        elif each.run_s < SHORTEST_S:
            print_note(
                f"no advice for job {each.label}, because it has run for less than {duration(SHORTEST_S)}"
            )
    return 0


app.command("logs", epilog=logs.EXAMPLES)(logs.logs)
app.command("exec", context_settings=in_job.OPTIONS_BEFORE, epilog=in_job.EXEC_EXAMPLES)(in_job.exec_)
app.command("attach", epilog=in_job.ATTACH_EXAMPLES)(in_job.attach)


@dataclass(frozen=True)
class Chosen(FlagGroup):
    """The arguments and flags of all commands that change several jobs, such as `corral job cancel`. `jobs`
    and --mine select the jobs, --yes skips the confirmation, and --dry-run changes nothing.
    """

    jobs: Jobs = field(default_factory=list)
    mine: Mine = False
    yes: Yes = False
    dry_run: DryRun = False

    def order(self, action: str, output: Format, **more: Any) -> int:
        """Send one request that applies `action`, such as cancel, to all selected jobs. Print the changed
        jobs, and the reasons why other jobs were not changed. Return the exit code.
        """
        if not self.jobs and not self.mine:
            raise exit_codes.CommandError(
                "no job is named", "Name jobs (7, 7_3, 1-3, user:ada, last, all), or use --mine."
            )
        client = Client()
        order = JobsOrder(action, tuple(self.jobs), self.mine, only_tell=self.dry_run, **more)
        if not (self.yes or self.dry_run or self.mine) and not _is_confirmed(client, order):
            return exit_codes.FAILED
        answer = client.order(order)
        _print_refusals(answer.refused, options=action == "set")
        if output == Format.TABLE and not self.dry_run:
            for job in answer.done:
                print_note(job_details.line_of(job, limit=bool(more.get("extend_s"))))
        else:
            job_table().show(output, answer.done)
        if len(answer.done) + len(answer.refused) != 1 and not self.dry_run:
            print_note(f"{len(answer.done):,} done, {len(answer.refused):,} failed")
        return exit_codes.of_problem(answer.refused[0].problem) if answer.refused else 0


@app.command(
    epilog=examples(
        "corral job cancel 7",
        "corral job cancel 7_[0-9] 12-15",
        "corral job cancel --mine",
        "corral job cancel name:'sweep-*'",
    )
)
@with_flag_groups
def cancel(chosen: Chosen, output: Output = Format.TABLE) -> int:
    """Cancel jobs. A running job gets SIGTERM, and SIGKILL after its --grace time."""
    return chosen.order("cancel", output)


cancel_app = application()
cancel_app.command(epilog=examples("corral cancel 7", "corral cancel 7_[0-9] 12-15", "corral cancel --mine"))(
    cancel
)


@app.command(
    "set",
    epilog=examples(
        "corral job set 7 --priority high --time 4h",
        "corral job set 7 --time +2h",
        "corral job set 7_[0-9] --after-ok 5",
        "corral job set --clear deadline,timeout -- 7",
    ),
)
@with_flag_groups
def change(
    options: EditOptions,
    chosen: Chosen,
    clear: Clear = "",
    answer: JobFormat = Format.TABLE,
) -> int:
    """Change options of jobs. For a running job, only --name, --comment, --priority, --deadline and the
    --restart options can be changed, and --time can be made longer.

    --time +2h adds two hours to the time limit. The owner of a running job may extend the job up to the
    longest time limit of its queue, unless the job would then delay an advance reservation or the promised
    start of another job. Operators may always extend a job.

    The options are those of 'corral submit'. Options that you do not write keep their present values.
    """
    written, extend_s = split_extension(options)
    changes = changes_of(written, clear, extends=extend_s > 0)
    return chosen.order("set", answer, changes=changes, extend_s=extend_s)


@app.command(epilog=examples("corral job signal 7 USR1", "corral job signal last SIGHUP"))
def signal(
    job: Job,
    name: Annotated[str, argument("SIGNAL", "Name of the signal: USR1, USR2, HUP, INT, TERM, …")],
) -> int:
    """Send a signal to the processes of a running job that have a handler for the signal."""
    client = Client()
    client.signal(select_one(client, job).id, name)
    return 0


@app.command(epilog=examples("corral job checkpoint 7", "corral job checkpoint 7_[0-9]"))
def checkpoint(jobs: Jobs) -> int:
    """Let running jobs save a checkpoint, with their --checkpoint-signal or --checkpoint-command. The jobs
    continue.

    'corral job show' lists a checkpoint when the job has finished writing it.
    """
    client = Client()
    for each in select(client, jobs, mine=False):
        client.checkpoint(each.id)
        print_note(f"job {each.label} was ordered to save a checkpoint")
    return 0


@app.command(epilog=examples("corral job checkpoints 7", "corral job checkpoints 7 --delete step-100"))
def checkpoints(
    job: Job,
    delete: Annotated[
        list[str],
        option("--delete", "NAME", "Delete this checkpoint. May be repeated."),
    ] = [],  # noqa: B006 - never changed
    output: Output = Format.TABLE,
) -> int:
    """List the checkpoints of a job, the newest first, or delete some of them.

    The column RESUMES shows the checkpoint with which the next attempt would begin. This checkpoint cannot be
    deleted before the job has ended. If the job does not run, this command starts a small job on the node of
    the last attempt. The small job lists or deletes the checkpoints there.
    """
    from cli.jobs.checkpoints import checkpoint_table, delete_checkpoints, list_checkpoints

    client = Client()
    detail = client.job(select_one(client, job).id)
    if delete:
        delete_checkpoints(client, detail, delete)
    else:
        checkpoint_table().show(output, list_checkpoints(client, detail))
    return 0


@app.command(epilog=examples("corral job hold 7", "corral job hold --mine"))
@with_flag_groups
def hold(chosen: Chosen, output: Output = Format.TABLE) -> int:
    """Hold queued jobs. Held jobs do not start before 'corral job release'."""
    return chosen.order("hold", output)


@app.command(epilog=examples("corral job release 7", "corral job release --mine"))
@with_flag_groups
def release(chosen: Chosen, output: Output = Format.TABLE) -> int:
    """Release held jobs, so that they can start.

    Only operators can release a job that an operator holds.
    """
    return chosen.order("release", output)


@app.command(epilog=examples("corral job requeue 7", "corral job requeue 7_[0-9]"))
@with_flag_groups
def requeue(chosen: Chosen, output: Output = Format.TABLE) -> int:
    """Stop running jobs and queue them again. Jobs with a checkpoint option save their state first.

    A job that ends with exit code 0 while it is being stopped counts as completed, and is not queued again.
    """
    return chosen.order("requeue", output)


@app.command(
    epilog=examples("corral job keep 7 --for 4h --why 'debugging'", "corral job keep last --for 30m")
)
def keep(
    jobs: Jobs,
    for_s: Annotated[
        float,
        option(
            "--for",
            "TIME",
            "Time from now for which the jobs keep their idle GPUs (e.g. 30m or 4h).",
            parser=amounts.seconds,
        ),
    ],
    why: Annotated[
        str, option("--why", "TEXT", "Reason why the jobs keep idle GPUs. It is recorded and shown.")
    ] = "",
) -> int:
    """Let running jobs keep their idle GPUs: for the time of --for, the jobs are neither flagged nor ended
    because their GPUs are idle.

    The owner of a job may name at most idle_keep_most_s of [gpus] in scheduler.toml; an operator may name a
    longer time. A later command replaces an earlier one. The time limit of the job still applies.
    """
    client = Client()
    for each in select(client, jobs, mine=False):
        kept = client.keep(each.id, KeepRequest(for_s, why))
        print_note(f"job {each.label} keeps its GPUs until {clock(kept.kept_until)}, also if they are idle")
    return 0


@app.command(epilog=examples("corral job preempt 7", "corral job preempt --hold 7_[0-9]"))
@with_flag_groups
def preempt(
    chosen: Chosen,
    hold: Annotated[
        bool,
        switch(
            "--hold", "Also hold the preempted jobs, so that they do not start before 'corral job release'."
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Preempt running jobs: stop them, and queue them again. Jobs with a checkpoint option save their state
    first. Only operators can use this command. Users can stop and queue their own jobs with 'corral job
    requeue'.
    """
    return chosen.order("preempt", output, stay_held=hold)


@app.command(
    epilog=examples(
        "corral job wait 7", "corral job wait --mine --timeout 2h", "corral job wait 7 && echo done"
    )
)
def wait(
    jobs: Jobs = [],  # noqa: B006 - never changed
    mine: Mine = False,
    timeout: Annotated[
        float | None,
        option(
            "--timeout",
            "TIME",
            "Stop waiting after this time (e.g. 90s or 2h30m), and exit with code 6. Default: no limit.",
            parser=amounts.seconds,
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Wait until jobs have ended, with any result. Exit with code 0 if all jobs completed. Otherwise exit
    with the exit code of the first job, in the order of job ids, that failed or was cancelled.
    """
    from cli.jobs.wait import first_failure, wait_until_ended

    deadline = None if timeout is None else time.monotonic() + timeout
    found = select(Client(), jobs, mine, ended=True)
    ended = wait_until_ended([job.id for job in found], deadline) if found else []
    job_table().show(output, ended)
    return first_failure(ended)


def _is_confirmed(client: Client, order: JobsOrder) -> bool:
    """Ask the user to confirm if `all`, user:NAME or a range such as 1-9 selects jobs of other users.

    Return True if no confirmation is needed or the user confirms.
    """
    if not any(isinstance(_meaning(word), AllJobs | JobRange | JobsOf) for word in order.jobs):
        return True
    me = client.health().user
    selected = client.order(replace(order, only_tell=True)).done
    others = Counter(job.user for job in selected if job.user != me)
    if not others:
        return True
    whose = ", ".join(f"{user} {count}" for user, count in others.most_common(5))
    more = ", …" if len(others) > 5 else ""
    question = (
        f"{others.total()} of these {counted(len(selected), 'job')} belong to other users ({whose}{more})"
    )
    return confirmed(f"{question}. {order.action.capitalize()} all of them?")


def _meaning(word: str) -> object:
    try:
        return parse_selection(word)
    except InvalidSelection:
        return None  # Let the controller report the error, because the word is not a job selection.


def _print_refusals(refused: Sequence[JobRefused], *, options: bool) -> None:
    """Print each reason for refusals once, with the ids of the jobs that were refused for this reason. If
    `options` is true, an error names the wrong option by its flag, such as --time, and not by its API field.
    """
    concerned: dict[Problem, list[str]] = {}
    first: dict[Problem, Problem] = {}
    for each in refused:
        # Replace the job id in each reason, so that "may cancel job 17" and "may cancel job 18" are the same
        # reason.
        reason = replace(each.problem, message=each.problem.message.replace(f"job {each.job}", "these jobs"))
        concerned.setdefault(reason, []).append(each.job)
        first.setdefault(reason, each.problem)
    for reason, jobs in list(concerned.items())[:SHOWN]:
        problem = reason if len(jobs) > 1 else first[reason]
        shown = with_flag_names(problem) if options else problem
        if len(jobs) > 1:
            names = ", ".join(jobs[:3]) + (", …" if len(jobs) > 3 else "")
            shown = replace(shown, message=f"{shown.message} ({counted(len(jobs), 'job')}: {names})")
        print_refusal(shown)
    if len(concerned) > SHOWN:
        print_note(f"{counted(len(concerned) - SHOWN, 'other reason')} for refusals are not shown.")
