"""corral explain: shows why a job waits, when it starts, and which change would start it now."""

from __future__ import annotations

import time
from typing import Annotated

from cli.flags import option
from cli.jobs.selection import Job, select_one
from cli.output.details import job_details, wait_details
from cli.output.formats import Format, Output, show_one
from cli.output.table_columns import clock
from cli.registry import application, examples
from cli.spec.spec_to_flags import command_of
from wire import amounts
from wire.api.forecasts import Explanation
from wire.http.client import Client
from wire.names import JobState
from wire.text import duration, printable

app = application()


Within = Annotated[
    float | None,
    option(
        "--within",
        "TIME",
        "Time that the controller may spend on the forecast (e.g. 10s). With more time, the forecast "
        "reaches further into the future. Default: budget_s in the table [questions] of scheduler.toml.",
        parser=amounts.seconds,
    ),
]


@app.command(
    epilog=examples("corral explain 7", "corral explain last --within 10s", "corral explain 7_3 -o json")
)
def explain(job: Job, within: Within = None, output: Output = Format.TABLE) -> int:
    """Show why a job waits, when it starts at the latest, and which change would start it now.

    A line with "now" at its beginning shows a command that would start the job at once. The controller has
    tried the command on a copy of the cluster's state, so the answer is valid until a job or a node changes.
    Two of the commands that may be shown are for operators only: 'corral job preempt' and 'corral nodes
    resume'.

    For a running job, the lines of "nodes" show the points of its nodes and of the best other nodes when the
    job was placed. They are computed from what the jobs in the controller's memory held at that time.
    """
    client = Client()
    answer = client.explain(select_one(client, job).id, within_s=within)
    view = answer.job
    facts = [
        ("job", f"{view.label}  {view.name}"),
        ("state", view.state.value),
        ("profile", view.profile),
        ("why", wait_details.of_why(answer.why)),
        ("ahead", wait_details.of_ahead(answer.why)),
        ("nodes", wait_details.of_node_scores(answer.why)),
        ("starts", starts(answer)),
        ("now", changes_to_start_now(answer)),
        ("runs", job_details.of_prediction(answer.predicted_s, answer.job)),
        ("preempts", wait_details.of_preemption(answer)),
    ]
    show_one(output, answer, facts, view.label)
    return 0


def changes_to_start_now(answer: Explanation) -> str:
    """Return one line for each change of the job or the cluster that would start the waiting job now. The
    line ends with the shell command that makes the change.
    """
    return "\n".join(
        f"it would start now {printable(each.sentence)}: {command_of(each, answer.job.label)}"
        for each in answer.easings
    )


def starts(answer: Explanation) -> str:
    """Return a text with the time at which a waiting job starts at the latest, or with the reason why this
    time is unknown.
    """
    if answer.job.state is not JobState.QUEUED:
        return ""
    likely = ""
    if answer.likely_at is not None and (answer.starts_at is None or answer.likely_at < answer.starts_at - 1):
        likely = f"likely in {duration(answer.likely_at - time.time())} ({clock(answer.likely_at)}); "
    if answer.starts_at is None:
        why = f": {printable(answer.unknown, 1_000)}" if answer.unknown else ""
        if answer.covers_until is not None:
            least = f"it does not start before {clock(answer.covers_until)}"
            why = f", but {least}: the time for the answer was too short (--within 10s gives more time)"
        elif not answer.complete and not answer.unknown:
            why = ": the time for the answer was too short (--within 10s gives more time)"
        return f"{likely}the latest start is not known{why}"
    usual = ""
    if answer.between is not None:
        usual = "; after the errors of earlier estimates between {} and {}".format(
            *map(clock, answer.between)
        )
    left = answer.starts_at - time.time()
    nodes = ", ".join(answer.nodes)
    lines = [f"{likely}in {duration(left)} at the latest ({clock(answer.starts_at)}), on {nodes}{usual}"]
    if left < 1:
        lines = [f"in the next cycle, on {nodes}"]
    lines += [f"this assumes preemption: {printable(each)}" for each in answer.assumes]
    if answer.last:
        lines.append(f"the condition that will be met last: {printable(answer.last, 1_000)}")
    return "\n".join(lines)
