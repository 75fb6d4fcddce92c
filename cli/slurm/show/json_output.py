"""The JSON output of sacct: the part of Slurm's schema v0.0.38 for which Corral has values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cli.slurm.show import resources as res
from cli.slurm.show.accounting_fields import with_steps
from cli.slurm.show.jobs import array_task, node_list, used_s
from cli.slurm.show.states import REASON_COLUMNS, exit_code, job_reason, job_state
from cli.slurm.show.times import whole_minutes

Row = Mapping[str, Any]

JSON_COLUMNS = (
    *("project", "comment", "array", "index", "label", "queue", "user", "name", "priority", "limit_s"),
    *("submitted_at", "eligible_at", "started_at", "ended_at", "exit_code", "detail", "workdir", "cpu_s"),
    *("memory_mib", "max_rss_mib"),
    *REASON_COLUMNS,
    *res.TRES_COLUMNS,
)


def print_accounting(jobs: Iterable[dict[str, Any]]) -> int:
    """Print jobs as `sacct --json` does."""
    print(json.dumps({"meta": _META, "errors": [], "jobs": [_job(job) for job in jobs]}, indent=2))
    return 0


_META = {
    "plugin": {"type": "openapi/dbv0.0.38", "name": "Slurm OpenAPI DB v0.0.38"},
    "Slurm": {"version": {"major": 22, "micro": 8, "minor": 5}, "release": "22.05.8"},
}


def _job(job: dict[str, Any]) -> dict[str, Any]:
    in_array = job["array"] is not None
    return {
        "account": job["project"],
        "comment": {"administrator": None, "job": job["comment"] or None, "system": None},
        "allocation_nodes": len(job["held"]),
        "array": {
            "job_id": job["array"] or 0,
            "limits": {"max": {"running": {"tasks": 0}}},
            "task": array_task(job) if in_array and not job["held"] else None,
            "task_id": job["index"],
        },
        "association": {
            "account": job["project"],
            "cluster": job["cluster"],
            "partition": None,
            "user": job["user"],
        },
        "cluster": job["cluster"],
        "derived_exit_code": {"status": "SUCCESS", "return_code": 0},
        "time": _time(job),
        "exit_code": _exit(job),
        "group": res.group_of(job["user"]),
        "het": {"job_id": 0, "job_offset": None},
        "job_id": job["id"],
        "name": job["name"],
        "nodes": node_list(job) or "None assigned",
        "partition": job["queue"],
        "priority": job["priority"],
        "qos": "normal",
        "required": {"CPUs": res.cpus(job), "memory": res.memory_mib(job)},
        "state": {"current": job_state(job), "reason": job_reason(job)},
        "steps": [_step(row) for row in with_steps(job, "") if row["step"]],
        "tres": {"allocated": _tres(job) if job["held"] else [], "requested": _tres(job)},
        "user": job["user"],
        "working_directory": job["workdir"] or "/",
    }


def _time(job: Row) -> dict[str, Any]:
    cpu_s = sum(job["cpu_s"])
    return {
        "elapsed": int(used_s(job)),
        "eligible": int(job["eligible_at"] or 0),
        "start": int(job["started_at"] or 0),
        "end": int(job["ended_at"] or 0),
        "submission": int(job["submitted_at"]),
        "suspended": 0,
        "limit": whole_minutes(job["limit_s"]) if job["limit_s"] is not None else None,
        "total": {"seconds": int(cpu_s), "microseconds": int(cpu_s % 1 * 1_000_000)},
    }


def _exit(job: Row) -> dict[str, Any]:
    code, _, signal = exit_code(job).partition(":")
    if signal != "0":
        return {
            "status": "SIGNALED",
            "return_code": int(code),
            "signal": {"signal_id": int(signal), "name": None},
        }
    return {"status": "ERROR" if code != "0" else "SUCCESS", "return_code": int(code)}


def _step(row: Row) -> dict[str, Any]:
    names = [entry[0] for entry in row["held"]]
    return {
        "nodes": {"list": names, "count": len(names), "range": node_list(row)},
        "step": {"id": f"{row['id']}.{row['step']}", "name": row["step_name"]},
        "state": job_state(row),
        "exit_code": _exit(row),
        "tasks": {"count": row["step_tasks"]},
        "time": _time(row),
    }


def _tres(job: Row) -> list[dict[str, Any]]:
    counts = (("cpu", 1, res.cpus(job)), ("mem", 2, res.memory_mib(job)), ("node", 4, int(job["nodes"])))
    found = [{"type": name, "name": None, "id": number, "count": count} for name, number, count in counts]
    return found + (
        [{"type": "gres", "name": "gpu", "id": 1_001, "count": job["gpus"]}] if job["gpus"] else []
    )
