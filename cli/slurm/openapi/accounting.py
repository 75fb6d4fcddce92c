"""The objects of jobs and steps in sacct --json."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from cli.slurm.formats import resources as res
from cli.slurm.formats.states import REASON_COLUMNS, job_reason, job_state
from cli.slurm.formats.times import whole_minutes
from cli.slurm.show.accounting_fields import exit_text, state, with_steps
from cli.slurm.show.jobs import array_task, node_list, used_s
from cli.slurm.show.steps import derived_exit

Row = Mapping[str, Any]

JSON_COLUMNS = (
    *("project", "comment", "array", "index", "label", "queue", "user", "name", "priority", "limit_s"),
    *("submitted_at", "eligible_at", "started_at", "ended_at", "exit_code", "detail", "workdir", "cpu_s"),
    *("memory_mib", "max_rss_mib", "steps", "batch", "qos"),
    *REASON_COLUMNS,
    *res.TRES_COLUMNS,
)


def accounting_object(job: dict[str, Any]) -> dict[str, Any]:
    in_array = job["array"] is not None
    by = str(job["detail"])
    killer = by.removeprefix("cancelled by ").split(":")[0] if by.startswith("cancelled by ") else ""
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
        "constraints": "",
        "container": None,
        "derived_exit_code": exit_object(derived_exit(job)),
        "time": _time(job),
        "exit_code": _exit(job),
        "flags": [],
        "group": res.group_of(job["user"]),
        "het": {"job_id": 0, "job_offset": None},
        "job_id": job["id"],
        "name": job["name"],
        "mcs": {"label": ""},
        "nodes": node_list(job) or "None assigned",
        "partition": job["queue"],
        "priority": job["priority"],
        "qos": job["qos"],
        "required": {"CPUs": res.cpus(job), "memory": res.memory_mib(job)},
        "kill_request_user": killer or None,
        "reservation": {"id": 0, "name": 0},
        "state": {"current": job_state(job), "reason": job_reason(job)},
        "steps": [_step(row) for row in with_steps(job, "") if row["step"]],
        "tres": {"allocated": _tres(job) if job["held"] else [], "requested": _tres(job)},
        "user": job["user"],
        "wckey": {"wckey": "", "flags": []},
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
        "system": {"seconds": 0, "microseconds": 0},
        "limit": whole_minutes(job["limit_s"]) if job["limit_s"] is not None else None,
        "total": {"seconds": int(cpu_s), "microseconds": int(cpu_s % 1 * 1_000_000)},
        "user": {"seconds": int(cpu_s), "microseconds": int(cpu_s % 1 * 1_000_000)},
    }


def _exit(job: Row) -> dict[str, Any]:
    return exit_object(exit_text({"step": "", **job}))


def _signal_name(number: int) -> str:
    """Return the description of a signal. For 125, return `Unknown signal 125`: no signal has this number,
    and Slurm uses it for a job that exceeded its memory.
    """
    try:
        return signal.strsignal(number) or f"Unknown signal {number}"
    except ValueError:
        return f"Unknown signal {number}"


def exit_object(text: str) -> dict[str, Any]:
    code, _, number = text.partition(":")
    if number != "0":
        name = _signal_name(int(number))
        return {
            "status": "SIGNALED",
            "return_code": int(code) or None,
            "signal": {"signal_id": int(number), "name": name},
        }
    return {"status": "ERROR" if code != "0" else "SUCCESS", "return_code": int(code)}


def _step(row: dict[str, Any]) -> dict[str, Any]:
    names = [entry[0] for entry in row["held"]]
    record = row.get("record")
    time = {name: value for name, value in _time(row).items() if name in _STEP_TIMES}
    allocated = [each for each in _tres(row) if each["type"] != "billing"]
    peak = max(row["max_rss_mib"], default=0) << 20 if record is None else record["max_rss_kib"] << 10
    task = 0 if record is None else record["max_rss_task"]
    where = names[0] if record is None or not record["max_rss_node"] else record["max_rss_node"]
    used = {"type": "mem", "name": None, "id": 2, "count": peak}
    named = [{**used, "task": task, "node": where}] if peak else []
    requested = {"max": named, "min": [], "average": [], "total": [used] if peak else []}
    return {
        "nodes": {"list": names, "count": len(names), "range": node_list(row)},
        "tres": {"requested": requested, "consumed": dict(_NOTHING), "allocated": allocated},
        "time": time,
        "exit_code": _exit(row),
        "tasks": {"count": row["step_tasks"]},
        "pid": record["pid"] if record is not None else None,
        "CPU": {"requested_frequency": {"min": 0, "max": 0}, "governor": []},
        "kill_request_user": record["cancelled_by"] or None if record is not None else None,
        "state": state(row).split(" ")[0],
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": 0}},
        "step": {
            "job_id": row["id"],
            "het": {"component": None},
            "id": int(row["step"]) if record is not None else row["step"],
            "name": row["step_name"],
        },
        "task": {"distribution": record["layout"] if record is not None else "Unknown"},
    }


_STEP_TIMES = ("elapsed", "end", "start", "suspended", "system", "total", "user")
_NOTHING: Mapping[str, Any] = {"max": [], "min": [], "average": [], "total": []}


def _tres(job: Row) -> list[dict[str, Any]]:
    counts = (("cpu", 1, res.cpus(job)), ("mem", 2, res.memory_mib(job)), ("node", 4, int(job["nodes"])))
    found = [{"type": name, "name": None, "id": number, "count": count} for name, number, count in counts]
    return found + (
        [{"type": "gres", "name": "gpu", "id": 1_001, "count": job["gpus"]}] if job["gpus"] else []
    )
