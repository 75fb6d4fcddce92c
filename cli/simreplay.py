"""corral sim replay."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from cli import simchoices, simrun, simtable
from cli.commands import examples
from cli.messages import note
from cli.output import Column, Format, Output, Table, write, write_json
from cli.simulating import Progress, refusals
from wire import places
from wire.text import duration

if TYPE_CHECKING:  # numpy, pydantic and SQLAlchemy: only for those who simulate
    from controller.core.events import Event
    from controller.sim.replay.history import History
    from controller.sim.replay.outcome import Change, Replayed
    from controller.sim.replay.outcome import Column as Side
    from controller.sim.run import Policy

EXAMPLES = examples(
    "corral sim replay                                     as it was: how exactly it can be told",
    "corral sim replay --config other.toml                 had this been the scheduler.toml",
    "corral sim replay --compare fcfs,easy,other.toml      and had it been one of these",
    "corral sim replay /var/lib/corral --order shortest    another controller's journal",
    "corral sim replay corral.db --config other.toml --jobs-csv jobs.csv -o json",
)
TOP = 5


def replay(
    journal: Annotated[
        str,
        typer.Argument(
            metavar="[JOURNAL]",
            help="State directory, corral.db or URL of a store; otherwise that of the usual scheduler.toml.",
            show_default=False,
        ),
    ] = "",
    config: Annotated[
        str,
        typer.Option(
            "--config", metavar="FILE", help="The scheduler.toml to live it under.", show_default=False
        ),
    ] = "",
    order: simrun.Order = "",
    backfill: simrun.Backfill = "",
    compare: simrun.Compare = "",
    top: Annotated[
        int,
        typer.Option("--top", metavar="N", min=0, max=10_000, help="How many jobs gain and lose most."),
    ] = TOP,
    jobs_csv: Annotated[
        Path | None,
        typer.Option("--jobs-csv", metavar="FILE", help="Write every job's start and end, then and now."),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Live a real controller's past again under another scheduler.toml: waits, use, who gains and who loses.

    The same engine gets everything that came from outside at its time: submits, cancels, holds, drains,
    lost and returning nodes. Jobs take as long as they took. The journal is only read, also while its
    controller runs. Under the same scheduler.toml everything happens as it happened.

    Both sides end where the journal ends. What a job would have run on that was cancelled, lost or still
    runs, nobody knows: it is cancelled at the same time, or ends after what it was seen to run.
    """
    with refusals():
        from controller.config import load
        from controller.sim.replay import journal as journals
        from controller.sim.replay.history import history_of
        from controller.sim.replay.outcome import Task, recorded, replay

        policies = _policies(config, order, backfill, compare)
        url = journals.url_of(journal) if journal else load(places.find_config()).store_url
        events = _read(url)
        history = history_of(events)
        note(_summary(events, history))
        with nullcontext() if jobs_csv is None else jobs_csv.open("w", newline="", encoding="utf-8") as file:
            with Progress(len(history.steps) * len(policies), "steps") as progress:
                outcomes = replay([Task(policy, history) for policy in policies], progress)
            if file is not None:
                _write_jobs(file, history, outcomes)
        _show(output, recorded(history), outcomes, history, top)
    return 0


def _policies(config: str, order: str, backfill: str, compare: str) -> list[Policy]:
    from controller.config import load
    from controller.sim.run import Policy

    chosen = load(places.find_config(config))
    found = simchoices.choose_policies(chosen, order, backfill, compare)
    if config and not (order or backfill or compare):
        return [Policy(Path(config).stem, found[0].config)]
    return found


def _read(url: str) -> list[Event]:
    from controller.sim.replay.journal import read_journal

    with Progress(1, "entries") as progress:
        return read_journal(url, progress.of)


def _summary(events: Sequence[Event], history: History) -> str:
    nodes = len(history.nodes)
    return (
        f"{len(events):,} entries in {duration(events[-1].at - events[0].at)}: "
        f"{len(history.lives.by_job):,} jobs on {nodes:,} node{'s' * (nodes != 1)}"
    )


def _show(output: Format, side: Side, outcomes: Sequence[Replayed], history: History, top: int) -> None:
    before = {"policy": "recorded", **_figures(side)}
    bodies = [{**_run(each), **_figures(each.column)} for each in outcomes]
    if output is Format.CSV:
        simtable.write_csv([{"policy": body["policy"], **_only_figures(body)} for body in [before, *bodies]])
        return
    extremes = [_extremes(history, each, top) for each in outcomes]
    if output is Format.JSON:
        runs = [
            {**body, "gain": list(map(_change, gain)), "lose": list(map(_change, lose))}
            for body, (gain, lose) in zip(bodies, extremes, strict=True)
        ]
        write_json({"recorded": _only_figures(before), "runs": runs})
        return
    simtable.table(
        Column("RUNNING", lambda run: f"{run['running']:,}", keep=9, right=True),
        Column("WAITING", lambda run: f"{run['waiting']:,}", keep=9, right=True),
    ).show(output, [before, *bodies])
    if output is Format.NAME:
        return
    for each, (gain, lose) in zip(outcomes, extremes, strict=True):
        _tell(each)
        for which, title, found in (("gain", "SOONER", gain), ("lose", "LATER", lose)):
            if found:
                write(f"\n{each.policy}: jobs that {which} most\n")
                _table(title).show(output, found)


def _tell(outcome: Replayed) -> None:
    same = outcome.as_recorded == outcome.placements
    count = "all" if same else f"{outcome.as_recorded:,} of"
    note(f"{outcome.policy}: {count} {outcome.placements:,} placements at the same time in the same place")
    refused = sum(outcome.refused.values())
    if refused:
        message = max(outcome.refused, key=outcome.refused.__getitem__)
        note(f"{outcome.policy}: {refused:,} jobs refused, {outcome.refused[message]:,} like this: {message}")


def _extremes(history: History, outcome: Replayed, top: int) -> tuple[list[Change], list[Change]]:
    from controller.sim.replay.outcome import changes

    ordered = sorted(changes(history, outcome), key=lambda change: (-change.gain_s, change.job))
    gain = [change for change in ordered if change.gain_s > 0]
    lose = [change for change in reversed(ordered) if change.gain_s < 0]
    return gain[:top], lose[:top]


def _figures(side: Side) -> dict[str, Any]:
    return {**asdict(side.figures), "running": side.running, "waiting": side.waiting}


_NOT_FIGURES = ("policy", "order", "backfill", "placements", "as_recorded", "refused", "cpu_s")


def _only_figures(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _NOT_FIGURES}


def _run(outcome: Replayed) -> dict[str, Any]:
    return {
        "policy": outcome.policy,
        "order": outcome.order,
        "backfill": outcome.backfill,
        "placements": outcome.placements,
        "as_recorded": outcome.as_recorded,
        "refused": outcome.refused,
        "cpu_s": round(outcome.cpu_s, 3),
    }


def _change(change: Change) -> dict[str, Any]:
    return {**asdict(change), "gain_s": change.gain_s}


def _waited(seconds: float, started: bool) -> str:
    return duration(seconds) if started else f">{duration(seconds)}"


def _table(title: str) -> Table[Change]:
    return Table(
        [
            Column("JOB", lambda change: str(change.job), right=True),
            Column("NAME", lambda change: change.name, keep=2, least=8),
            Column("USER", lambda change: change.user, keep=1, least=8),
            Column("GPUS", lambda change: f"{change.gpus:g}", keep=3, right=True),
            Column("WAITED", lambda change: _waited(change.waited_s, change.started), right=True),
            Column("WOULD WAIT", lambda change: _waited(change.would_wait_s, change.would_start), right=True),
            Column(title, lambda change: duration(abs(change.gain_s)), right=True),
        ],
        name=lambda change: str(change.job),
    )


def _write_jobs(file: TextIO, history: History, outcomes: Sequence[Replayed]) -> None:
    out = csv.writer(file, lineterminator="\n")
    sides = [("recorded", history.lives), *((each.policy, each.lives) for each in outcomes)]
    out.writerow(["job", "user", "submit", *(f"{name}_{what}" for name, _ in sides for what in _TIMES)])
    for job, life in history.lives.by_job.items():
        lives = [lives.by_job.get(job) for _, lives in sides]
        times = [time for each in lives for time in ((each.start_s, each.end_s) if each else (None, None))]
        out.writerow([job, life.user, life.submit_s, *times])


_TIMES = ("start", "end")
