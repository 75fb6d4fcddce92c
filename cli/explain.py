"""corral explain: why a job is where it is, and when it starts."""

from __future__ import annotations

import time

from cli import facts
from cli.commands import application, examples
from cli.output import Format, Output, write_facts, write_json
from cli.selection import Job, one
from cli.tables import clock
from wire.api import Explanation
from wire.client import Client
from wire.text import duration
from wire.words import JobState

app = application()


@app.command(epilog=examples("corral explain 7", "corral explain last", "corral explain 7_3 -o json"))
def explain(job: Job, output: Output = Format.TABLE) -> int:
    """Tell why a job is where it is, what stands in its way, and when it starts at the latest."""
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
                ("why", facts.of_why(answer.why)),
                ("starts", starts(answer)),
                ("room", facts.of_victims(answer.victims, answer.makes_room)),
            ]
        )
    return 0


def starts(answer: Explanation) -> str:
    """The latest start of a waiting job, in words."""
    if answer.job.state is not JobState.QUEUED:
        return ""
    if answer.starts_at is None:
        return "cannot be told: a job before it has no time limit, or nothing that ends makes room for it"
    left = answer.starts_at - time.time()
    nodes = ", ".join(answer.nodes)
    if left < 1:
        return f"in the next cycle, on {nodes}"
    return f"in {duration(left)} at the latest ({clock(answer.starts_at)}), on {nodes}"
