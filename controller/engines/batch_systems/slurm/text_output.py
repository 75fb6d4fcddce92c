"""Reads the text output of squeue, sacct and sinfo, and names the options that produce it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from controller.engines.batch_systems.batch_job import BatchNode, BatchStatus, Cause, Phase, Unreadable
from controller.engines.batch_systems.slurm.job_states import cause_of, phase_of, reason_text
from controller.engines.batch_systems.slurm.units import gpus_of, memory_mib
from controller.engines.batch_systems.wrapper import REFUSALS

SQUEUE = ("squeue", "-h", "-a", "-t", "all", "-o", "%A|%F|%K|%P|%T|%r|%V|%S|%e|%N|%j")
"""The command that lists jobs. The job name is the last column, because it may contain any character. All
Slurm versions know these columns.
"""
SACCT_COLUMNS = "JobIDRaw,JobID,Partition,State,ExitCode,Submit,Start,End,NodeList,JobName"
SACCT = ("sacct", "-n", "-P", "-X", "-D", "-o", SACCT_COLUMNS)
"""The command that shows jobs from the accounting. `-D` also shows earlier runs of a requeued job."""
SINFO = ("sinfo", "-h", "-N", "-o", "%N|%P|%T|%c|%m|%G|%f|%C|%E")
EPOCH_TIMES = {"SLURM_TIME_FORMAT": "%s"}
"""With this environment variable Slurm prints times as seconds since 1970, so that time zones do not matter.
"""
_OPEN_STATES = ("idle", "mixed", "allocated", "completing", "planned", "allocating")


def parse_squeue(text: str) -> list[BatchStatus]:
    """Return the jobs in the output of SQUEUE. Raise Unreadable for a line with too few columns."""
    return [_squeue_job(columns) for columns in rows(text, 11)]


def _squeue_job(columns: list[str]) -> BatchStatus:
    raw, array, index, partition, state, reason, submitted, started, ended, nodes, name = columns
    phase = phase_of(state, reason)
    begun = phase not in (Phase.WAITING, Phase.HELD)
    # Leave out the start of a waiting job, because it is only a forecast of Slurm.
    return BatchStatus(
        raw if index == "N/A" else f"{array}_{index}" if index.isdigit() else f"{array}_[{index}]",
        name,
        phase,
        state,
        reason_text(reason),
        nodes,
        partition,
        _time(submitted),
        _time(started) if begun else None,
        _time(ended) if phase is Phase.ENDED else None,
        cause_of(state),
    )


def parse_sacct(text: str) -> list[BatchStatus]:
    """Return the runs of jobs in the output of SACCT. The runs of one job are in the order of their starts.

    A run without a partition is not yet stored completely in the accounting, and gets the phase UNKNOWN. A
    run in the state REQUEUED that is followed by another run has ended, because Slurm has ended it to queue
    the job again.
    """
    runs = [_sacct_job(columns) for columns in rows(text, 10)]
    last = {each.id: index for index, each in enumerate(runs)}
    return [
        replace(each, phase=Phase.ENDED, cause=Cause.NODE_FAILED)
        if each.state.startswith("REQUEUED") and index < last[each.id]
        else each
        for index, each in enumerate(runs)
    ]


def _sacct_job(columns: list[str]) -> BatchStatus:
    raw, shown, partition, state, exit_code, submitted, started, ended, nodes, name = columns
    # Without a partition the state may be wrong, because the accounting first stores the end of a second run,
    # and later its name and partition.
    phase = phase_of(state) if partition else Phase.UNKNOWN
    code, signal = exit_status(exit_code)
    over = phase is Phase.ENDED
    return BatchStatus(
        shown if "_" in shown or "+" in shown else raw,
        name,
        phase,
        state,
        "",
        "" if nodes == "None assigned" else nodes,
        partition,
        _time(submitted),
        _time(started),
        _time(ended),
        Cause.LAUNCH_FAILED if over and code in REFUSALS else cause_of(state),
        code if over else None,
        signal if over else None,
    )


def exit_status(text: str) -> tuple[int | None, int | None]:
    """Return (exit code, signal) of a text such as 3:0 or 0:9. With a signal, the exit code is None."""
    code, _, signal = text.partition(":")
    if not code.isdigit():
        return None, None
    ended_by = int(signal or 0)
    return (None, ended_by) if ended_by else (int(code), None)


def parse_sinfo(text: str) -> list[BatchNode]:
    """Return the nodes in the output of SINFO. A node that is in several partitions is one node."""
    nodes: dict[str, BatchNode] = {}
    for name, partition, state, cpus, memory, gres, features, use, why in rows(text, 9):
        partitions = (*(nodes[name].partitions if name in nodes else ()), partition.rstrip("*"))
        count, model = gpus_of(gres)
        used = use.split("/")
        nodes[name] = BatchNode(
            name,
            int(cpus.rstrip("+")),
            memory_mib(memory.rstrip("+")),
            count,
            model,
            int(used[0]) if used[0].isdigit() else 0,
            closed_reason(state, why),
            partitions,
            () if features == "(null)" else tuple(features.split(",")),
        )
    return list(nodes.values())


def closed_reason(state: str, why: str) -> str:
    """Return why a node in this state accepts no jobs, with the reason of the site's administrator; empty if
    the node accepts jobs. A `*` after the state means that the node does not answer.
    """
    plain = state.rstrip("~#!%$@^-+").lower()
    if plain in _OPEN_STATES:
        return ""
    given = "" if why in ("none", "") else f": {why}"
    return f"{plain.removesuffix('*')}{' and not responding' if plain.endswith('*') else ''}{given}"


def parse_submitted(text: str) -> str:
    """Return the id in the output of `sbatch --parsable`, such as `17` or `17;cluster`.

    Submit filters of the site may print lines before the id, so the last line counts. Raise Unreadable if it
    has no id.
    """
    last = text.strip().rpartition("\n")[2].partition(";")[0].strip()
    if not last.isdigit():
        raise Unreadable(f"sbatch did not print the id of a job, but {text.strip()[-200:]!r}")
    return last


def rows(text: str, count: int) -> Iterator[list[str]]:
    """Yield the columns of each line. Raise Unreadable for a line with too few columns."""
    for line in text.splitlines():
        if not line.strip():
            continue
        columns = line.split("|", count - 1)
        if len(columns) < count:
            raise Unreadable(f"expected {count} columns, got {line[:200]!r}")
        yield columns


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() and text != "0" else None
