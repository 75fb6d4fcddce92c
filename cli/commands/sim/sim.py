"""corral sim: runs the scheduler in simulated time. Each subcommand has its own module."""

from __future__ import annotations

from cli.commands.sim import generate, replay, report, run
from cli.registry import application, examples

app = application()


@app.callback(
    epilog=examples(
        "corral sim run KTH-SP2.swf.gz --pool 100      a log of the Parallel Workloads Archive",
        "corral sim run jobs.csv --nodes 16 --gpus 8   GPU jobs on a simulated cluster",
    )
)
def sim() -> None:
    """Run the scheduler in simulated time: on job logs, under other policies, on clusters that do not
    exist.
    """


app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("generate", epilog=generate.EXAMPLES)(generate.generate)
app.command("replay", epilog=replay.EXAMPLES)(replay.replay)
app.command("report", epilog=report.EXAMPLES)(report.report)
