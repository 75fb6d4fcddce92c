"""corral sim replay: runs the inputs in a controller's journal again, under another scheduling policy."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cli.commands.sim import figures_table, policy_options
from cli.commands.sim.progress import Progress, refusals
from cli.flags import argument, option, with_flag_groups
from cli.output.formats import Column, Format, Output, Table, write, write_data
from cli.output.stderr import print_note
from cli.registry import examples
from wire.http import addresses
from wire.text import duration

# Import these modules only for type checks, because numpy, pydantic and SQLAlchemy are slow to import.
if TYPE_CHECKING:
    from controller.core.model.events.event import Event
    from controller.sim.replay.history import History
    from controller.sim.replay.outcome import ReplayResult, WaitChange
    from controller.sim.replay.outcome import ReplaySide as Side
    from controller.sim.run import Policy

EXAMPLES = examples(
    "corral sim replay                                     with the same policy, to check the replay",
    "corral sim replay --config other.toml                 with another scheduler.toml",
    "corral sim replay --compare fcfs,easy,other.toml      with several policies",
    "corral sim replay /var/lib/corral --order shortest    from another controller's journal",
    "corral sim replay corral.db --config other.toml --jobs-csv jobs.csv -o json",
)
TOP = 5


@with_flag_groups
def replay(
    flags: policy_options.PolicyFlags,
    journal: Annotated[
        str,
        argument(
            "[JOURNAL]",
            "Journal to replay: the state directory of a controller, a corral.db, or the URL of a"
            " store. Default: the store that scheduler.toml names.",
        ),
    ] = "",
    top: Annotated[
        int,
        option(
            "--top",
            "N",
            "List the N jobs whose wait became shorter by the most, and the N jobs whose wait "
            "became longer by the most. Default: 5.",
            min=0,
            max=10_000,
        ),
    ] = TOP,
    jobs_csv: Annotated[
        Path | None,
        option(
            "--jobs-csv",
            "FILE",
            "Write the recorded and the replayed start and end of each job to this CSV file.",
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Replay a controller's journal under another scheduler.toml, and show which jobs would have waited
    longer or shorter.

    The scheduler gets every recorded input at its recorded time: submits, cancels, holds, drains, and nodes
    that were lost or came back. Each job runs as long as in reality. The journal is only read; its controller
    may be running. Under the same scheduler.toml, the replay repeats the recorded decisions.

    The recorded and the replayed run both end where the journal ends. The full run time of a job is unknown
    if the job was cancelled, was lost or is still running. In the replay, a cancelled job is cancelled at the
    recorded time. A lost or still running job ends after its recorded run time.
    """
    with refusals():
        from controller.config import load
        from controller.sim.replay import journal as journals
        from controller.sim.replay.history import history_of
        from controller.sim.replay.outcome import ReplayTask, recorded, replay

        policies = _policies(flags)
        as_it_was = flags == policy_options.PolicyFlags()
        url = journals.url_of(journal) if journal else load(addresses.find_config()).store_url
        events = _read(url)
        history = history_of(events)
        print_note(_summary(events, history))
        with nullcontext() if jobs_csv is None else jobs_csv.open("w", newline="", encoding="utf-8") as file:
            with Progress(len(history.steps) * len(policies), "steps") as progress:
                outcomes = replay([ReplayTask(policy, history, as_it_was) for policy in policies], progress)
            if file is not None:
                _write_jobs(file, history, outcomes)
        _show(output, recorded(history), outcomes, history, top)
    return 0


def _policies(flags: policy_options.PolicyFlags) -> list[Policy]:
    from controller.config import load
    from controller.sim.run import Policy

    found = flags.policies(load(addresses.find_config(flags.config)))
    if flags.config and not (flags.order or flags.backfill or flags.compare):
        return [Policy(Path(flags.config).stem, found[0].config)]
    return found


def _read(url: str) -> list[Event]:
    from controller.sim.replay.journal import read_journal

    with Progress(1, "entries") as progress:
        return read_journal(url, progress.of)


def _summary(events: Sequence[Event], history: History) -> str:
    nodes = len(history.nodes)
    return (
        f"{len(events):,} entries in {duration(events[-1].at - events[0].at)}: "
        f"{len(history.records.by_job):,} jobs on {nodes:,} node{'s' * (nodes != 1)}"
    )


def _show(output: Format, side: Side, outcomes: Sequence[ReplayResult], history: History, top: int) -> None:
    before = {"policy": "recorded", **_figures(side)}
    bodies = [{**_run(each), **_figures(each.column)} for each in outcomes]
    if output == Format.CSV:
        figures_table.write_csv(
            [{"policy": body["policy"], **_only_figures(body)} for body in [before, *bodies]]
        )
        return
    extremes = [_extremes(history, each, top) for each in outcomes]
    if output.is_data:
        runs = [
            {**body, "gain": list(map(_change, gain)), "lose": list(map(_change, lose))}
            for body, (gain, lose) in zip(bodies, extremes, strict=True)
        ]
        write_data(output, {"recorded": _only_figures(before), "runs": runs})
        return
    figures_table.table(
        Column("RUNNING", lambda run: f"{run['running']:,}", rank=9, right=True),
        Column("WAITING", lambda run: f"{run['waiting']:,}", rank=9, right=True),
    ).show(output, [before, *bodies])
    if output == Format.NAME:
        return
    for each, (gain, lose) in zip(outcomes, extremes, strict=True):
        _print_notes(each)
        for which, title, found in (("gain", "SOONER", gain), ("lose", "LATER", lose)):
            if found:
                write(f"\n{each.policy}: jobs that {which} most\n")
                _table(title).show(output, found)


def _print_notes(outcome: ReplayResult) -> None:
    same = outcome.as_recorded == outcome.placements
    count = "all" if same else f"{outcome.as_recorded:,} of"
    print_note(
        f"{outcome.policy}: {count} {outcome.placements:,} placements at the same time in the same place"
    )
    refused = sum(outcome.refused.values())
    if refused:
        message = max(outcome.refused, key=outcome.refused.__getitem__)
        print_note(
            f"{outcome.policy}: {refused:,} jobs refused, {outcome.refused[message]:,} like this: {message}"
        )


def _extremes(history: History, outcome: ReplayResult, top: int) -> tuple[list[WaitChange], list[WaitChange]]:
    from controller.sim.replay.outcome import wait_changes

    ordered = sorted(wait_changes(history, outcome), key=lambda change: (-change.gain_s, change.job))
    gain = [change for change in ordered if change.gain_s > 0]
    lose = [change for change in reversed(ordered) if change.gain_s < 0]
    return gain[:top], lose[:top]


def _figures(side: Side) -> dict[str, Any]:
    return {**asdict(side.figures), "running": side.running, "waiting": side.waiting}


_NOT_FIGURES = ("policy", "order", "backfill", "placements", "as_recorded", "refused", "cpu_s")


def _only_figures(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _NOT_FIGURES}


def _run(outcome: ReplayResult) -> dict[str, Any]:
    return {
        "policy": outcome.policy,
        "order": outcome.order,
        "backfill": outcome.backfill,
        "placements": outcome.placements,
        "as_recorded": outcome.as_recorded,
        "refused": outcome.refused,
        "cpu_s": round(outcome.cpu_s, 3),
    }


def _change(change: WaitChange) -> dict[str, Any]:
    return {**asdict(change), "gain_s": change.gain_s}


def _waited(seconds: float, started: bool) -> str:
    return duration(seconds) if started else f">{duration(seconds)}"


def _table(title: str) -> Table[WaitChange]:
    return Table(
        [
            Column("JOB", lambda change: str(change.job), right=True),
            Column("NAME", lambda change: change.name, rank=2, narrow=8),
            Column("USER", lambda change: change.user, rank=1, narrow=8),
            Column("GPUS", lambda change: f"{change.gpus:g}", rank=3, right=True),
            Column("WAITED", lambda change: _waited(change.waited_s, change.started), right=True),
            Column("WOULD WAIT", lambda change: _waited(change.would_wait_s, change.would_start), right=True),
            Column(title, lambda change: duration(abs(change.gain_s)), right=True),
        ],
        name=lambda change: str(change.job),
    )


def _write_jobs(file: TextIO, history: History, outcomes: Sequence[ReplayResult]) -> None:
    out = csv.writer(file, lineterminator="\n")
    sides = [("recorded", history.records), *((each.policy, each.records) for each in outcomes)]
    out.writerow(["job", "user", "submit", *(f"{name}_{what}" for name, _ in sides for what in _TIMES)])
    for job, record in history.records.by_job.items():
        records = [records.by_job.get(job) for _, records in sides]
        times = [time for each in records for time in ((each.start_s, each.end_s) if each else (None, None))]
        out.writerow([job, record.user, record.submit_s, *times])


_TIMES = ("start", "end")
