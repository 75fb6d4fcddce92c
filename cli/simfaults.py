"""corral sim faults."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import exits, simtable
from cli.commands import examples
from cli.exits import Mistake
from cli.output import Format, Output, write, write_facts, write_json
from cli.simulating import Progress, refusals
from wire.spec import array_indices
from wire.text import duration, plain

if TYPE_CHECKING:
    from controller.sim.faults.plan import Plan
    from controller.sim.faults.verdict import Failure, Verdict

EXAMPLES = examples(
    "corral sim faults                                 100 seeds, every policy",
    "corral sim faults --seeds 1-1000 --config scheduler.toml",
    "corral sim faults --seeds 17 --hours 12 --nodes 8 --jobs 200",
)
SHOWN = 3
"""Failures told in full; of more only the first words."""
SUMS = ("jobs", "attempts", "events", "virtual_s", "cpu_s")
"""What verdicts are added up by."""


def faults(
    seeds: Annotated[str, typer.Option("--seeds", metavar="LIST", help="1-300, or 17, or 4,8,15.")] = "1-100",
    hours: Annotated[
        float,
        typer.Option(
            "--hours", metavar="H", min=0.1, max=1_000, help="How long jobs and faults keep coming."
        ),
    ] = 4.0,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, max=100, help="Of four GPUs.")] = 4,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=10_000, help="Of each seed.")] = 40,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Try the policy of this scheduler.toml.", show_default=False
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Let everything go wrong in virtual time, and see whether the promises hold.

    Each seed is a small cluster with jobs of all kinds under rules of its own: gangs, arrays, dependencies,
    deadlines, licences; preemption, rebalancing, quotas, profiles. Links are cut, agents and the controller
    die, hosts reboot or lose their disks, GPUs fall ill, people cancel, hold, edit, operators drain, taint,
    reserve and remove nodes.
    All the while it is checked against what really ran: nothing acknowledged is lost, nothing runs twice
    or after its success, no GPU is held twice, the record says what the processes returned, and the journal
    adds up to the rows. A seed that fails comes with the command that repeats it; the exit code is then 1.
    """
    with refusals():
        from controller.config import load
        from controller.registry import build_pipeline
        from controller.sim.faults.many import try_many
        from controller.sim.faults.plan import Plan

        plan = Plan(hours, nodes, jobs, load(config) if config else None)
        build_pipeline(plan.policy(0))
        chosen = _seeds(seeds)
        with Progress(len(chosen), "seeds") as progress:
            verdicts = try_many(plan, chosen, progress)
    _show(output, plan, verdicts, config)
    return exits.FAILED if any(verdict.failure for verdict in verdicts) else 0


def _seeds(text: str) -> list[int]:
    try:
        return array_indices(text)
    except ValueError as error:
        raise Mistake(f"--seeds: {error}") from None


def _show(form: Format, plan: Plan, verdicts: Sequence[Verdict], config: Path | None) -> None:
    failures = [verdict.failure for verdict in verdicts if verdict.failure]
    if form is Format.JSON:
        told = [{**asdict(failure), "command": _command(failure, plan, config)} for failure in failures]
        write_json({**_sums(verdicts), "failures": told})
        return
    if form is Format.CSV:
        simtable.write_csv([_row(verdict) for verdict in verdicts])
        return
    if form is Format.NAME:
        write("".join(f"{failure.seed}\n" for failure in failures))
        return
    write_facts(_facts(verdicts, len(failures)))
    for failure in failures[:SHOWN]:
        write("".join(f"{plain(line, 2_000)}\n" for line in ["", *_told(failure, plan, config)]))
    for failure in failures[SHOWN:]:
        write(plain(f"seed {failure.seed}: {failure.promise}: {failure.how}", 200) + "\n")


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


def _told(failure: Failure, plan: Plan, config: Path | None) -> list[str]:
    return [
        f"seed {failure.seed} broke a promise: {failure.promise}",
        f"  {failure.how}",
        f"  To see it again: {_command(failure, plan, config)}",
        "  What came before (virtual seconds):",
        *(f"  {line}" for line in failure.latest),
    ]


def _command(failure: Failure, plan: Plan, config: Path | None) -> str:
    words = ["corral", "sim", "faults", "--seeds", str(failure.seed), "--hours", f"{plan.hours:g}"]
    words += ["--nodes", str(plan.nodes), "--jobs", str(plan.jobs)]
    return shlex.join([*words, "--config", str(config)] if config else words)
