"""Runs the fault simulation: `python -m tests.simulation --help`."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import exit_codes
from cli.commands.sim import figures_table
from cli.commands.sim.progress import Progress, refusals
from cli.exit_codes import CommandError
from cli.main import main
from cli.output.formats import Format, Output, write, write_data, write_facts
from cli.registry import application, examples
from controller.config import load
from controller.registry import build_pipeline
from tests.simulation.parallel_seeds import run_seeds
from tests.simulation.trial_plan import TrialPlan
from tests.simulation.trial_report import Failure, Verdict
from wire.job.arrays import array_indices
from wire.text import duration, printable

PROGRAM = "python -m tests.simulation"
EXAMPLES = examples(
    f"{PROGRAM}                                 100 seeds, every policy",
    f"{PROGRAM} --seeds 1-1000 --config scheduler.toml",
    f"{PROGRAM} --seeds 17 --hours 12 --nodes 8 --jobs 200",
)
FAILURES_IN_FULL = 3
"""Failures whose last events are printed; further failures get one line each."""
SUMS = ("jobs", "attempts", "events", "virtual_s", "cpu_s")
"""Fields of a verdict that the summary adds up."""

app = application()


@app.command(epilog=EXAMPLES)
def simulate(
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="LIST", help="Seeds to run, e.g. 1-300 or 17 or 4,8,15.")
    ] = "1-100",
    hours: Annotated[
        float,
        typer.Option(
            "--hours",
            metavar="H",
            min=0.1,
            max=1_000,
            help="Virtual hours during which jobs arrive and faults happen.",
        ),
    ] = 4.0,
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=1, max=100, help="Nodes of four GPUs each.")
    ] = 4,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, max=10_000, help="Jobs submitted per seed.")
    ] = 40,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Use the policy of this scheduler.toml instead of one drawn per seed.",
            show_default=False,
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Inject faults in virtual time and check the guarantees of the scheduler.

    Each seed is a small cluster with a policy of its own and jobs of all kinds: gangs, arrays, dependencies,
    deadlines, licences; preemption, rebalancing, quotas, profiles. Links are cut, agents and the controller
    crash, hosts reboot or lose their disks, GPUs fail, users cancel, hold and edit jobs, operators drain,
    taint, reserve and remove nodes.

    The oracle compares the controller's record with the processes that really ran: an acknowledged job is
    never lost, no job runs twice or again after it succeeded, no GPU is allocated twice, recorded exit codes
    are those that the processes returned, and replaying the journal gives the stored rows. A seed that fails
    is printed with the command that repeats it; the exit code is then 1.
    """
    with refusals():
        plan = TrialPlan(hours, nodes, jobs, load(config) if config else None)
        build_pipeline(plan.policy(0))
        chosen = _seeds(seeds)
        with Progress(len(chosen), "seeds") as progress:
            verdicts = run_seeds(plan, chosen, progress)
    _show(output, plan, verdicts, config)
    return exit_codes.FAILED if any(verdict.failure for verdict in verdicts) else 0


def _seeds(text: str) -> list[int]:
    try:
        return array_indices(text)
    except ValueError as error:
        raise CommandError(f"--seeds: {error}") from None


def _show(form: Format, plan: TrialPlan, verdicts: Sequence[Verdict], config: Path | None) -> None:
    failures = [verdict.failure for verdict in verdicts if verdict.failure]
    if form.is_data:
        told = [{**asdict(failure), "command": _command(failure, plan, config)} for failure in failures]
        write_data(form, {**_sums(verdicts), "failures": told})
        return
    if form == Format.CSV:
        figures_table.write_csv([_row(verdict) for verdict in verdicts])
        return
    if form == Format.NAME:
        write("".join(f"{failure.seed}\n" for failure in failures))
        return
    write_facts(_facts(verdicts, len(failures)))
    for failure in failures[:FAILURES_IN_FULL]:
        write("".join(f"{printable(line, 2_000)}\n" for line in ["", *_failure_lines(failure, plan, config)]))
    for failure in failures[FAILURES_IN_FULL:]:
        write(printable(f"seed {failure.seed}: {failure.promise}: {failure.how}", 200) + "\n")


def _row(verdict: Verdict) -> dict[str, Any]:
    return {
        "seed": verdict.seed,
        **{name: getattr(verdict, name) for name in SUMS},
        "troubles": verdict.troubles.total(),
        "broken": verdict.failure.promise if verdict.failure else "",
    }


def _sums(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    sums = {name: sum(getattr(verdict, name) for verdict in verdicts) for name in SUMS}
    troubles: Counter[str] = sum((verdict.troubles for verdict in verdicts), Counter())
    return {"seeds": len(verdicts), **sums, "troubles": dict(troubles.most_common())}


def _facts(verdicts: Sequence[Verdict], failed: int) -> list[tuple[str, str]]:
    sums = _sums(verdicts)
    return [
        ("seeds", f"{sums['seeds']:,}, {failed or 'none'} of them failed"),
        ("jobs", f"{sums['jobs']:,}, {sums['attempts']:,} processes, {sums['events']:,} events"),
        ("troubles", "\n".join(f"{count:,} {name}" for name, count in sums["troubles"].items())),
        ("virtual time", duration(sums["virtual_s"])),
        ("CPU time", f"{sums['cpu_s']:.1f}s"),
    ]


def _failure_lines(failure: Failure, plan: TrialPlan, config: Path | None) -> list[str]:
    return [
        f"seed {failure.seed} broke a guarantee: {failure.promise}",
        f"  {failure.how}",
        f"  Repeat it with: {_command(failure, plan, config)}",
        "  Events before (virtual seconds):",
        *(f"  {line}" for line in failure.latest),
    ]


def _command(failure: Failure, plan: TrialPlan, config: Path | None) -> str:
    words = [*PROGRAM.split(), "--seeds", str(failure.seed), "--hours", f"{plan.hours:g}"]
    words += ["--nodes", str(plan.nodes), "--jobs", str(plan.jobs)]
    return shlex.join([*words, "--config", str(config)] if config else words)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run with these arguments, or those of the process; the exit code."""
    return main(arguments, app, PROGRAM)


if __name__ == "__main__":
    sys.exit(run())
