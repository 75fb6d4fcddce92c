"""The steps that srun has run in jobs: their rows in sacct, sstat and squeue -s, and their lines in
scontrol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cli.slurm.formats import resources as res
from cli.slurm.formats.output_formats import Field
from cli.slurm.formats.times import moment, span
from wire.cluster.hostlist import expand_hostlist

Row = Mapping[str, Any]

STEP_COLUMNS = (
    *("id", "label", "user", "queue", "state", "stopping", "reason", "started_at", "ended_at", "limit_s"),
    *("steps", *res.TRES_COLUMNS),
)


def step_rows(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each recorded step of a job. The row has the columns of the job, but columns such as
    `held` and `started_at` have the values of the step.

    A step holds the job's resources on the nodes of the step, as in Slurm. If srun has requested CPUs for the
    step, the step holds only these CPUs.
    """
    for step in job.get("steps") or ():
        names = _hosts(step["nodes"])
        held = [entry for entry in job["held"] if entry[0] in names] or job["held"]
        if step["cpus"] and held:
            milli = step["cpus"] * 1_000 // len(held)
            held = [(name, min(milli, most), mib, gpus) for name, most, mib, gpus in held]
        yield {
            **job,
            "step": str(step["number"]),
            "step_name": step["name"],
            "step_tasks": step["tasks"],
            "record": step,
            "nodes": step["node_count"],
            "held": held,
            "gpus": sum(len(gpus) for _, _, _, gpus in held),
            "started_at": step["started_at"],
            "ended_at": step["ended_at"],
            "cpu_s": [step["cpu_s"]],
        }


def _hosts(text: str) -> set[str]:
    """Return the nodes in the host list of a step. Return an empty set if the host list was cut, because it
    was too long to store.
    """
    try:
        return set(expand_hostlist(text))
    except ValueError:
        return set()


def step_state(step: Row) -> str:
    """Return the state of a recorded step as sacct prints it."""
    if step["ended_at"] is None:
        return "RUNNING"
    if step["cancelled_by"]:
        return f"CANCELLED by {res.uid_of(step['cancelled_by'])}"
    if step["signal"]:
        return "CANCELLED"
    return "FAILED" if step["code"] else "COMPLETED"


def step_exit(step: Row) -> str:
    return f"{step['code']}:{step['signal']}"


def derived_exit(job: Row) -> str:
    """Return the highest exit code of the ended steps of a job, or else the highest signal that has ended a
    step, such as 1:0 or 0:9; 0:0 if all steps succeeded.
    """
    ends = [(step["code"], step["signal"]) for step in job.get("steps") or () if step["ended_at"] is not None]
    code, number = max(ends, default=(0, 0))
    return f"{code}:{number}"


def wait_status(text: str) -> str:
    """Return an exit code and a signal, such as 1:0, as the number of wait(2): 256."""
    code, _, number = text.partition(":")
    return str((int(code) << 8) + int(number))


def peak_text(step: Row, unit: str) -> str:
    """Return the peak memory of a step in `unit`, or in KiB if `unit` is empty or raw; an empty text without
    a measurement.
    """
    kib = step["max_rss_kib"]
    if not kib:
        return ""
    return f"{kib}K" if not unit or unit == "raw" else res.rounded_memory(kib / 1_024, unit)


def running_steps(jobs: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the running steps of running jobs. For each job, the steps of srun come before the
    batch script.
    """
    for job in jobs:
        if job["state"] != "RUNNING":
            continue
        yield from (row for row in step_rows(job) if row["ended_at"] is None)
        if job["held"]:
            first = [job["held"][0]]
            batch = {**job, "step": "batch", "step_name": "batch", "step_tasks": 1, "record": None}
            yield {**batch, "held": first, "nodes": 1}


def step_id(row: Row) -> str:
    return f"{row['label']}.{row['step']}"


def _nodes(row: Row) -> str:
    from cli.slurm.show.jobs import node_list

    return str(row["record"]["nodes"]) if row["record"] is not None else node_list(row)


def _used(row: Row) -> str:
    return span(row["now"] - row["started_at"])


FIELDS = (
    Field("A", "JobID", "JOB_ID", (), lambda row: str(row["id"])),
    Field("b", "tres-per-job", "TRES_PER_JOB", (), lambda _: "(null)"),
    Field("i", "StepID", "STEPID", (), step_id),
    Field("j", "StepName", "NAME", (), lambda row: row["step_name"]),
    Field("l", "TimeLimit", "TIME_LIMIT", (), lambda _: "UNLIMITED"),
    Field("M", "TimeUsed", "TIME", (), _used),
    Field("N", "Nodes", "NODELIST", (), _nodes),
    Field("P", "Partition", "PARTITION", (), lambda row: row["queue"]),
    Field("S", "StartTime", "START_TIME", (), lambda row: moment(row["started_at"], "N/A")),
    Field("t", "StepState", "STATE", (), lambda _: "RUNNING"),
    Field("T", "StepState", "STATE", (), lambda _: "RUNNING"),
    Field("u", "UserName", "USER", (), lambda row: row["user"]),
    Field("U", "UserID", "USER", (), lambda row: str(res.uid_of(row["user"]))),
    Field("C", "NumCPUs", "CPUS", (), lambda row: str(res.cpus(row))),
    Field("", "NumTasks", "TASKS", (), lambda row: str(row["step_tasks"])),
)
"""The fields of squeue -s (--steps)."""
DEFAULT = "%.15i %.8j %.9P %.8u %.9M %N"


def step_lines(row: Row) -> list[str]:
    """Return the lines of `scontrol show step` about one step."""
    record = row["record"]
    srun = record is not None
    cpus = res.cpus(row) if srun else 0
    tres = "(null)"
    if srun:
        tres = res.tres_text(
            cpus, res.memory_mib(row), int(row["nodes"]), row["gpus"], by_name=False, billing=False
        )
    where = f"{record['host']}:{record['pid']}" if srun else "(null):0"
    return [
        f"StepId={step_id(row)} UserId={res.uid_of(row['user'])} "
        f"StartTime={moment(row['started_at'], 'Unknown')} TimeLimit=UNLIMITED",
        f"State=RUNNING Partition={row['queue']} NodeList={_nodes(row)}",
        f"Nodes={row['nodes']} CPUs={cpus} Tasks={row['step_tasks']} Name={row['step_name']} Network=(null)",
        f"TRES={tres}",
        "ResvPorts=(null)",
        f"CPUFreqReq=Default Dist={record['layout']}" if srun else "CPUFreqReq=Default",
        f"SrunHost:Pid={where}",
    ]
