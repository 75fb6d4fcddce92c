"""Converts jobs to the values that Slurm's commands print, and puts the elements of an array in one line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cli.slurm.formats import resources as res
from cli.slurm.formats.times import whole_minutes
from wire.cluster.hostlist import fold_hostlist
from wire.job.output_files import expand_patterns

Row = Mapping[str, Any]

_AFTER = {"started": "after", "ok": "afterok", "not-ok": "afternotok", "ended": "afterany", "data": "data"}
NULL = "(null)"


def array_job(job: Row) -> str:
    return str(job["id"] if job["array"] is None else job["array"])


def array_task(job: Row) -> str:
    if job["array"] is None:
        return "N/A"
    return str(job["label"]).partition("_")[2].strip("[]")


def node_list(job: Row) -> str:
    """Return the nodes that a job holds or held, as a host list such as n[1-4]; empty if it has held none."""
    held = job["held"]
    if len(held) == 1:
        name: str = held[0][0]
        return name
    return fold_hostlist(entry[0] for entry in held)


def batch_host(job: Row) -> str:
    return job["held"][0][0] if job["held"] else ""


def used_s(job: Row) -> float:
    """Return the run time of the last attempt in seconds; 0 before the first start. The run time of a running
    job ends at the controller's time `now`.
    """
    if job["started_at"] is None:
        return 0.0
    end = job["now"] if job["ended_at"] is None else job["ended_at"]
    return max(0.0, float(end - job["started_at"]))


def start(job: Row) -> float | None:
    """Return the real start of a job. For a job that ended before its start, return its end. For a waiting
    job, return its estimated start, otherwise its begin time; None if it has neither.
    """
    if job["started_at"] is not None:
        return float(job["started_at"])
    if job["ended_at"] is not None:
        return float(job["ended_at"])
    begin = job["begin_at"] if (job["begin_at"] or 0) > job["now"] else None
    found: float | None = job["expected_start"] or begin
    return found


def end(job: Row) -> float | None:
    """Return the real end of a job. For a job that has not ended, return its real or estimated start plus its
    time limit; None if one of the two is unknown.
    """
    if job["ended_at"] is not None:
        return float(job["ended_at"])
    begin = start(job)
    if begin is None or job["limit_s"] is None:
        return None
    return begin + whole_minutes(job["limit_s"]) * 60


START_COLUMNS = ("started_at", "ended_at", "begin_at", "expected_start")
END_COLUMNS = (*START_COLUMNS, "limit_s")
OUTPUT_COLUMNS = ("output", "error", "workdir", "id", "array", "label", "name", "user", "held")


def dependency(job: Row) -> str:
    """Return the dependencies of a queued job in Slurm's form, such as afterok:7(unfulfilled); (null) if
    there are none.
    """
    found = [f"{_AFTER.get(until, until)}:{target}(unfulfilled)" for until, target in job["after"]]
    return ",".join(found) if found and job["state"] == "QUEUED" else NULL


def licences(job: Row) -> str:
    return ",".join(f"{name}:{count}" for name, count in job["licences"].items()) or NULL


def gres_per_node(job: Row) -> str:
    text = res.gres(job["gpus"], job["nodes"], job["gpu_request"])
    return f"gres:{text}" if text else "N/A"


def output_file(job: Row, stream: str) -> str:
    """Return the path of the file for `stream`, which is `output` or `error`. Without a file for stderr,
    return the file for stdout, because this file then contains both; without any file, /dev/null.
    """
    pattern = job[stream] or job["output"]
    if not pattern:
        return "/dev/null"
    index = "4294967294" if job["array"] is None else array_task(job)
    values = {
        "j": str(job["id"]),
        "A": array_job(job),
        "a": index,
        "x": job["name"],
        "N": batch_host(job),
        "n": "0",
        "u": job["user"],
    }
    return os.path.join(job["workdir"] or "/", expand_patterns(pattern, values))


def priority(job: Row) -> int:
    """Return the priority. As in Slurm, a held job has the priority 0."""
    return 0 if job["hold"] else int(job["priority"])


_NO_FILES = ("", "wrap", "sbatch")
"""Values of the column `script` that are not the name of a file: empty for no script, `wrap` for a script
from --wrap, and `sbatch` for a script from stdin.
"""


def command(job: Row) -> str:
    script: str = job["script"]
    return NULL if script in _NO_FILES else script


def task_cpus(job: Row) -> int:
    return max(1, res.whole_cpus(job["cpu_milli"]) // max(1, int(job["tasks_per_node"])))


def grouped(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the jobs, but only one common row for all elements of an array that have not started and are in
    the same state: waiting, held by the user, held by an operator, or cancelled.

    Such a row has a display id like 7_[1-3%2]: elements 1 to 3, of which 2 may run at a time. The jobs must
    have the columns in GROUP_COLUMNS.
    """
    found: list[dict[str, Any]] = []
    rows: dict[tuple[int, str, str], tuple[dict[str, Any], list[int]]] = {}
    for job in jobs:
        if job["array"] is None or job["started_at"] is not None or job["state"] not in _UNSTARTED:
            found.append(job)
            continue
        key = (job["array"], job["hold"], job["state"])
        if key not in rows:
            rows[key] = (dict(job), [])
            found.append(rows[key][0])
        rows[key][1].append(job["index"])
    for job, indices in rows.values():
        most = str(job["array_text"]).partition("%")[2].strip()
        text = res.ranges(sorted(indices)) + (f"%{most}" if most else "")
        job.update(label=f"{job['array']}_[{text}]", id=job["array"])
    return found


_UNSTARTED = ("QUEUED", "CANCELLED")
GROUP_COLUMNS = ("id", "array", "index", "array_text", "label", "state", "hold", "started_at")
