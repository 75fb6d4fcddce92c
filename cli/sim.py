"""corral sim …: the scheduler in virtual time. Each command lives in a module of its own."""

from __future__ import annotations

from cli import simfaults, simgenerate, simplacement, simreplay, simreport, simrun
from cli.commands import application, examples

app = application()


@app.callback(
    epilog=examples(
        "corral sim run KTH-SP2.swf.gz --pool 100      a log of the Parallel Workloads Archive",
        "corral sim run jobs.csv --nodes 16 --gpus 8   GPU jobs on a cluster that you don't have",
    )
)
def sim() -> None:
    """Run the very same scheduler in virtual time: logs, policies, clusters that you don't have."""


app.command("run", epilog=simrun.EXAMPLES)(simrun.run)
app.command("generate", epilog=simgenerate.EXAMPLES)(simgenerate.generate)
app.command("placement", epilog=simplacement.EXAMPLES)(simplacement.placement)
app.command("replay", epilog=simreplay.EXAMPLES)(simreplay.replay)
app.command("report", epilog=simreport.EXAMPLES)(simreport.report)
app.command("faults", epilog=simfaults.EXAMPLES)(simfaults.faults)
