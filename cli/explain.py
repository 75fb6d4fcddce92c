"""corral explain: why a job is where it is, and when it starts."""

from __future__ import annotations

import shlex
import time

from cli import facts
from cli.commands import application, examples
from cli.options import options_of
from cli.output import Format, Output, write_facts, write_json
from cli.selection import Job, one
from cli.tables import clock
from wire.api.forecasts import Explanation
from wire.client import Client
from wire.text import duration, plain
from wire.words import JobState

app = application()


@app.command(epilog=examples("corral explain 7", "corral explain last", "corral explain 7_3 -o json"))
def explain(job: Job, output: Output = Format.TABLE) -> int:
    """Tell why a job is where it is, when it starts at the latest, and what change would start it now."""
    client = Client()
    answer = client.explain(one(client, job).id)
    if output is Format.JSON:
        write_json(answer)
    else:
        view = answer.job
        write_facts(
            [
                ("job", f"{view.label}  {view.name}"),
                ("state", view.state.value),
                ("profile", view.profile),
                ("why", facts.of_why(answer.why)),
                ("starts", starts(answer)),
                ("now", of_easings(answer)),
                ("runs", facts.of_prediction(answer.predicted_s, answer.job)),
                ("room", facts.of_victims(answer.victims, answer.makes_room)),
            ]
        )
    return 0


def of_easings(answer: Explanation) -> str:
    """The smallest changes with which it would start now, each with the command that makes it."""
    return "\n".join(
        f"it would start now {plain(each.sentence)}: corral job set {answer.job.label} "
        + shlex.join(options_of(each.changes))
        for each in answer.easings
    )


def starts(answer: Explanation) -> str:
    """The latest start of a waiting job, in words."""
    if answer.job.state is not JobState.QUEUED:
        return ""
    likely = ""
    if answer.likely_at is not None and (answer.starts_at is None or answer.likely_at < answer.starts_at - 1):
        likely = f"likely in {duration(answer.likely_at - time.time())} ({clock(answer.likely_at)}); "
    if answer.starts_at is None and likely:
        return f"{likely}the latest start cannot be told: a job before it has no time limit"
    if answer.starts_at is None:
        return "cannot be told: a job before it has no time limit, or nothing that ends makes room for it"
    usual = ""
    if answer.between is not None:
        usual = "; by what such words were worth so far between {} and {}".format(*map(clock, answer.between))
    left = answer.starts_at - time.time()
    nodes = ", ".join(answer.nodes)
    if left < 1:
        return f"in the next cycle, on {nodes}"
    return f"{likely}in {duration(left)} at the latest ({clock(answer.starts_at)}), on {nodes}{usual}"
