"""corral config: checks configuration files, compares a file with the configuration in effect, and applies a
file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cli.commands.service import config_migrate, config_show, contexts
from cli.exit_codes import FAILED, USAGE, CommandError
from cli.flags import argument, switch
from cli.output import what_if_table
from cli.output.confirmation import confirmed
from cli.output.formats import Column, Format, Output, Table, write, write_data
from cli.output.stderr import print_error, print_note
from cli.output.table_columns import YELLOW
from cli.registry import application, examples
from wire.api.forecasts import ConfigFile, WhatIf
from wire.api.service.config import ConfigAnswer, ConfigChange, ConfigRequest
from wire.cluster.quota import ANY_NAME
from wire.codec import encode
from wire.http import addresses
from wire.http.client import Client, Refused
from wire.text import counted, printable

# Import these modules only for type checks, because they would slow down `corral --help`.
if TYPE_CHECKING:
    from controller.config import Config, ConfigProblem
    from controller.core.pipeline.pipeline import Pipeline

app = application()
NO_FILE = "no file, all defaults"

File = Annotated[
    Path | None,
    argument(
        "[FILE]",
        "Path of a scheduler.toml on this machine. Default: the controller's own scheduler.toml, read again.",
    ),
]
Previous = Annotated[
    bool,
    switch(
        "--previous", "Use the configuration that was in effect before the last change, instead of a file."
    ),
]
Yes = Annotated[bool, switch("--yes -y", "Do not ask for confirmation.")]
DryRun = Annotated[bool, switch("--dry-run", "Change nothing. Only show what would change.")]


@app.callback()
def config() -> None:
    """Check, show, explain, compare and apply configurations; save the addresses of controllers."""


@app.command(
    epilog=examples(
        "corral config check",
        "corral config check ./scheduler.toml",
        "corral config check -q              only problems and warnings",
        "corral config check -o json         problems, warnings and the policy as data",
    )
)
def check(
    file: Annotated[
        Path | None,
        argument("[FILE]", "File to check. Default: the file that the controller would read."),
    ] = None,
    quiet: Annotated[
        bool, switch("--quiet -q", "Print only problems and warnings, not the configuration and the policy.")
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """List all problems of a configuration file. If there are none, print the whole configuration, warnings,
    and the limits, shares and priorities that apply to each project and queue.

    A warning is about a valid key whose effect differs from the likely intention. Warnings do not change the
    exit code.
    """
    from controller.config import render
    from controller.registry import open_projects

    path = addresses.find_config(str(file or ""))
    name = str(path or NO_FILE)
    checked = check_file(path)
    found, pipeline, warnings = checked.config, checked.pipeline, checked.warnings
    if found is None or pipeline is None:
        return _refuse(output, name, checked.problems)
    if output not in (Format.TABLE, Format.WIDE):
        rows = [_problem_data(each) for each in warnings]
        body = {"file": name, "problems": [], "warnings": rows, **_policy_data(found, pipeline)}
        _warning_table().show(output, rows, body)
        return 0
    if not quiet:
        write(render(found))
        sys.stdout.flush()
    for warning in warnings:
        print_note(f"warning: {warning}")
    if not quiet:
        _print_policy(found, pipeline)
        if unguarded := open_projects(found):
            print_note(
                f"all users may submit to {', '.join(unguarded)}: set members in [projects.NAME] to limit it"
            )
        count = f", {counted(len(warnings), 'warning')}" if warnings else ""
        print_note(f"{name}: no problem{count}")
    return 0


@dataclass(frozen=True)
class CheckedFile:
    """A configuration file after its check. If it has problems, `config` and `pipeline` are None."""

    config: Config | None = None
    pipeline: Pipeline | None = None
    problems: Sequence[ConfigProblem] = ()
    warnings: Sequence[ConfigProblem] = ()


def check_file(path: Path | None) -> CheckedFile:
    """Check a configuration file, and call each of its plugins with an example node. If `path` is None, check
    the defaults.
    """
    from controller.config import ConfigProblem, ConfigRefused
    from controller.registry import build_pipeline, check_config, policy_warnings
    from controller.registry.plugin_check import failing_plugins

    try:
        found = check_config(path)
    except ConfigRefused as refused:
        return CheckedFile(problems=refused.problems)
    pipeline = build_pipeline(found)
    if failing := failing_plugins(pipeline):
        name = str(path or NO_FILE)
        messages = (f"a plugin fails for an example node: {each}" for each in failing)
        return CheckedFile(problems=[ConfigProblem(each, origin=name) for each in messages])
    return CheckedFile(found, pipeline, warnings=policy_warnings(found, pipeline))


def _refuse(output: Format, name: str, problems: Sequence[ConfigProblem]) -> int:
    """Print the problems of the configuration file `name`, and return the exit code."""
    if output.is_data:
        write_data(output, {"file": name, "problems": [_problem_data(each) for each in problems]})
    for problem in problems:
        print_error(str(problem))
    return USAGE


def _problem_data(problem: ConfigProblem) -> dict[str, Any]:
    return {
        "key": problem.key,
        "origin": problem.origin,
        "line": problem.line,
        "message": problem.message,
        "hint": problem.hint,
    }


def _warning_table() -> Table[dict[str, Any]]:
    """Return the table of warnings for -o csv and -o name."""
    return Table(
        [
            Column("KEY", lambda each: each["key"]),
            Column("ORIGIN", lambda each: each["origin"]),
            Column("MESSAGE", lambda each: each["message"]),
            Column("HINT", lambda each: each["hint"]),
        ],
        lambda each: each["key"],
    )


def _policy_data(found: Config, pipeline: Pipeline) -> dict[str, Any]:
    """Return the limits, shares and priorities of each project and queue, and which jobs may preempt other
    jobs, as data for JSON.
    """
    from controller.registry.checks import policy_summary as summary
    from controller.registry.hours import hours_sentences
    from controller.registry.topology import topology_sentence

    return {
        "gpus": summary.cluster_gpus(found),
        "projects": [
            {**encode(each), "sentence": each.sentence} for each in summary.project_policies(found, pipeline)
        ],
        "queues": [
            {**encode(each), "sentence": each.sentence} for each in summary.queue_policies(found, pipeline)
        ],
        "preemption": summary.preemption_sentences(found, pipeline),
        "hours": hours_sentences(found),
        "topology": topology_sentence(found),
    }


def _print_policy(found: Config, pipeline: Pipeline) -> None:
    """Print on stderr the limits, shares and priorities of each project and queue, and which jobs may preempt
    other jobs.
    """
    from controller.registry.checks import policy_summary as summary
    from controller.registry.hours import hours_sentences
    from controller.registry.topology import topology_sentence

    gpus = summary.cluster_gpus(found)
    found_projects = summary.project_policies(found, pipeline)
    projects = [
        ("any other project" if each.project == ANY_NAME else each.project, each.sentence)
        for each in found_projects
    ]
    queues = [(each.queue, each.sentence) for each in summary.queue_policies(found, pipeline)]
    whole = "the cluster" if gpus is None else counted(gpus, "GPU")
    shares = f", with their shares of {whole} while all of them have waiting jobs"
    heading = f"Projects{shares if any(each.share for each in found_projects) else ''}:"
    for title, rows in ((heading, projects), ("Queues:", queues)):
        if rows:
            room = max(len(printable(name)) for name, _ in rows)
            print_note(title)
            for name, sentence in rows:
                print_note(f"  {printable(name):<{room}}  {sentence}")
    if hours := hours_sentences(found):
        print_note("Hours with other quotas and weights:")
        for sentence in hours:
            print_note(f"  {sentence}")
    if topology := topology_sentence(found):
        print_note(f"Topology: {topology}")
    if preemption := summary.preemption_sentences(found, pipeline):
        print_note("Preemption:")
        for sentence in preemption:
            print_note(f"  {sentence}")


@app.command(
    epilog=examples(
        "corral config diff                    changes of the controller's own file since it was read",
        "corral config diff new.toml           changes that this file would make",
        "corral config diff --previous         changes made by the last apply",
    )
)
def diff(file: File = None, previous: Previous = False, output: Output = Format.TABLE) -> int:
    """Show which keys of a configuration differ from the configuration in effect. Operators only."""
    answer = Client().apply_config(_request(file, previous, dry_run=True))
    return _show(answer, output)


@app.command(
    epilog=examples(
        "corral config apply                   read the controller's own file again, as SIGHUP does",
        "corral config apply new.toml          replace the controller's file by this one",
        "corral config apply new.toml --dry-run",
        "corral config apply --previous        undo the last change",
    )
)
def apply(
    file: File = None,
    previous: Previous = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> int:
    """Change the configuration of the running controller. Jobs keep running.

    The command shows the changed keys, and the jobs that would start earlier or later. After confirmation,
    the changes are applied, and the controller's file is replaced, so that a restart keeps the changes. Keys
    that need a restart are listed. An operator may let the controller read its own file again; only an
    administrator may send another file.
    """
    client = Client()
    request = _request(file, previous, dry_run=True)
    plan = client.apply_config(request)
    shown = Format.TABLE if output.is_data and not dry_run else output
    if plan.problems or not plan.changes or dry_run:
        code = _show(plan, output)
        if dry_run and plan.changes and not plan.problems and output in (Format.TABLE, Format.WIDE):
            _forecast(client, request, plan)
        if plan.problems or dry_run:
            return code
    elif not yes:
        _to_stderr(plan)
        _forecast(client, request, plan)
        if not confirmed(f"Apply {counted(len(plan.changes), 'change')}?"):
            return FAILED
    done = client.apply_config(
        ConfigRequest(request.text, request.name, request.previous, dry_run=False, expect=plan.digest)
    )
    if output.is_data:
        write_data(output, done)
        return USAGE if done.problems else 0
    if yes:
        _show(done, shown)
    return _print_result(done)


def _request(file: Path | None, previous: bool, *, dry_run: bool) -> ConfigRequest:
    if file is not None and previous:
        raise CommandError("FILE and --previous cannot be combined", "Leave one of them out.")
    if file is None:
        return ConfigRequest(previous=previous, dry_run=dry_run)
    return ConfigRequest(read_text(file), str(file.absolute()), dry_run=dry_run)


def read_text(file: Path) -> str:
    """Return the text of a configuration file on this machine. Raise CommandError if the file
    cannot be read.
    """
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise CommandError(f"{file}: {why}", "Name a scheduler.toml.") from None


def _show(answer: ConfigAnswer, output: Format) -> int:
    for problem in answer.problems:
        print_error(problem)
    if output.is_data or not answer.problems:
        table().show(output, answer.changes, answer)
    if output in (Format.TABLE, Format.WIDE) and not answer.problems:
        sys.stdout.flush()
        if not answer.changes:
            print_note("There are no changes.")
        _note_restarts(answer)
    return USAGE if answer.problems else 0


def _to_stderr(plan: ConfigAnswer) -> None:
    for line in table().lines(plan.changes, None):
        print_note(line)
    _note_restarts(plan)


def _note_restarts(answer: ConfigAnswer) -> None:
    fixed = [each.key for each in answer.changes if not each.live]
    if fixed:
        print_note(f"Needs a restart of the controller: {', '.join(fixed)}.")


def _forecast(client: Client, request: ConfigRequest, plan: ConfigAnswer) -> None:
    """Print the jobs that would start earlier and the jobs that would start later under the new
    configuration. Print nothing if neither the request nor the controller's answer contains the text of this
    configuration.
    """
    text = request.text if request.text is not None else plan.text
    if not text:
        return
    try:
        answer = client.what_if(WhatIf(config=ConfigFile(text, request.name if request.text else plan.file)))
    except Refused as refused:
        print_note(f"Start times cannot be compared: {refused.problem.message}.")
        return
    what_if_table.summarise(answer)


def _print_result(done: ConfigAnswer) -> int:
    for problem in done.problems:
        print_error(problem)
    if done.problems:
        return USAGE
    for each in done.notes:
        print_note(each)
    live = sum(each.live for each in done.changes)
    print_note(f"Applied: {counted(live, 'change')}. Undo it with 'corral config apply --previous'.")
    return 0


def table() -> Table[ConfigChange]:
    return Table(
        [
            Column("KEY", lambda each: each.key),
            Column("IN EFFECT", lambda each: "-" if each.before is None else each.before, narrow=12),
            Column("NEW", lambda each: "-" if each.after is None else each.after, narrow=12),
            Column(
                "TAKES EFFECT",
                lambda each: "at once" if each.live else "after a restart",
                colour=lambda each: "" if each.live else YELLOW,
            ),
        ],
        lambda each: each.key,
        kind=ConfigChange,
    )


app.command(
    "show",
    epilog=examples(
        "corral config show                    keys that are set, and where",
        "corral config show --all              all keys",
        "corral config show scheduler",
        "corral config show -o json",
    ),
)(config_show.show)
app.command(
    "explain",
    epilog=examples(
        "corral config explain",
        "corral config explain project vision",
        "corral config explain user ada",
        "corral config explain queue short --file new.toml",
    ),
)(config_show.explain)
app.command(
    "migrate",
    epilog=examples(
        "corral config migrate                 the file that the controller would read",
        "corral config migrate lab.toml --dry-run",
    ),
)(config_migrate.migrate)
contexts.register(app)
