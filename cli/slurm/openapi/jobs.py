"""The objects of jobs in squeue --json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.slurm.formats import resources as res
from cli.slurm.formats.states import REASON_COLUMNS, job_reason, job_state
from cli.slurm.formats.times import whole_minutes
from cli.slurm.show import jobs
from cli.slurm.show.steps import derived_exit, wait_status

Row = Mapping[str, Any]

COLUMNS = (
    *(
        "project",
        "eligible_at",
        "array",
        "index",
        "array_text",
        "label",
        "batch",
        "script",
        "comment",
        "reservation",
        "steps",
        "qos",
    ),
    *("deadline_at", "after", "ended_at", "exit_code", "excluded", "user", "name", "id", "licences", "queue"),
    *("tasks_per_node", "priority", "node_list", "requeue", "restarts", "started_at", "error", "output"),
    *(
        "submitted_at",
        "limit_s",
        "time_min_s",
        "workdir",
        "gpu_model",
        "expected_start",
        "begin_at",
        "detail",
    ),
    *REASON_COLUMNS,
    *res.TRES_COLUMNS,
)


def job_object(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job with all keys of the schema, in the order of the schema. Values that Corral does not have
    are empty, 0, False or None.
    """
    in_array, held, nodes = job["array"] is not None, job["held"], int(job["nodes"])
    waits = in_array and not held
    gres = res.gres(job["gpus"], nodes, job["gpu_request"])
    tres = res.tres(job, by_name=False)
    most = str(job["array_text"]).partition("%")[2].strip()
    limit = job["limit_s"]
    return {
        "account": job["project"],
        "accrue_time": _seconds(job["eligible_at"]),
        "admin_comment": "",
        "array_job_id": job["array"] or 0,
        "array_task_id": job["index"] if in_array and not waits else None,
        "array_max_tasks": int(most) if most.isdigit() else 0,
        "array_task_string": jobs.array_task(job) if waits else "",
        "association_id": 0,
        "batch_features": "",
        "batch_flag": bool(job["batch"]),
        "batch_host": jobs.batch_host(job),
        "flags": [],
        "burst_buffer": "",
        "burst_buffer_state": "",
        "cluster": job["cluster"],
        "cluster_features": "",
        "command": "" if jobs.command(job) == jobs.NULL else jobs.command(job),
        "comment": job["comment"],
        "container": "",
        "contiguous": False,
        "core_spec": None,
        "thread_spec": None,
        "cores_per_socket": None,
        "billable_tres": float(res.cpus(job)),
        "cpus_per_task": jobs.task_cpus(job),
        "cpu_frequency_minimum": None,
        "cpu_frequency_maximum": None,
        "cpu_frequency_governor": None,
        "cpus_per_tres": "",
        "deadline": _seconds(job["deadline_at"]),
        "delay_boot": 0,
        "dependency": _text(jobs.dependency(job)),
        "derived_exit_code": int(wait_status(derived_exit(job))),
        "eligible_time": _seconds(job["eligible_at"]),
        "end_time": _seconds(jobs.end(job)),
        "excluded_nodes": ",".join(job["excluded"]),
        "exit_code": ((job["exit_code"] or 0) << 8) | (job["signal"] or 0),
        "features": "",
        "federation_origin": "",
        "federation_siblings_active": "",
        "federation_siblings_viable": "",
        "gres_detail": [_gres_on_node(job, gpus) for _, _, _, gpus in held if gpus],
        "group_id": res.gid_of(job["user"]),
        "group_name": res.group_of(job["user"]),
        "job_id": job["id"],
        **({"job_resources": _resources(job)} if held else {}),
        "job_state": job_state(job),
        "last_sched_evaluation": int(job["now"]),
        "licenses": _text(jobs.licences(job)),
        "max_cpus": 0,
        "max_nodes": 0,
        "mcs_label": "",
        "memory_per_tres": "",
        "name": job["name"],
        "nodes": jobs.node_list(job),
        "nice": None,
        "tasks_per_core": None,
        "tasks_per_node": int(job["tasks_per_node"]),
        "tasks_per_socket": None,
        "tasks_per_board": 0,
        "cpus": res.cpus(job),
        "node_count": nodes,
        "tasks": nodes * int(job["tasks_per_node"]),
        "het_job_id": 0,
        "het_job_id_set": "",
        "het_job_offset": 0,
        "partition": job["queue"],
        "prefer": "",
        "memory_per_node": int(job["memory_mib"]),
        "memory_per_cpu": None,
        "minimum_cpus_per_node": res.whole_cpus(job["cpu_milli"]),
        "minimum_tmp_disk_per_node": 0,
        "preempt_time": 0,
        "pre_sus_time": 0,
        "priority": jobs.priority(job),
        "profile": None,
        "qos": job["qos"],
        "reboot": False,
        "required_nodes": ",".join(job["node_list"] or ()),
        "requeue": bool(job["requeue"]),
        "resize_time": 0,
        "restart_cnt": int(job["restarts"]),
        "resv_name": job["reservation"],
        "shared": None,
        "show_flags": ["SHOW_ALL", "SHOW_DETAIL", "SHOW_LOCAL"],
        "sockets_per_board": 0,
        "sockets_per_node": None,
        "start_time": _seconds(jobs.start(job)),
        "state_description": "",
        "state_reason": job_reason(job),
        "standard_error": jobs.output_file(job, "error"),
        "standard_input": "/dev/null",
        "standard_output": jobs.output_file(job, "output"),
        "submit_time": _seconds(job["submitted_at"]),
        "suspend_time": 0,
        "system_comment": "",
        "time_limit": None if limit is None else whole_minutes(limit),
        "time_minimum": whole_minutes(job["time_min_s"] or 0),
        "threads_per_core": None,
        "tres_bind": "",
        "tres_freq": "",
        "tres_per_job": "",
        "tres_per_node": f"gres:{gres}" if gres else "",
        "tres_per_socket": "",
        "tres_per_task": "",
        "tres_req_str": tres,
        "tres_alloc_str": tres if held else "",
        "user_id": res.uid_of(job["user"]),
        "user_name": job["user"],
        "wckey": "",
        "current_working_directory": job["workdir"] or "/",
    }


def _text(value: str) -> str:
    return "" if value == jobs.NULL else value


def _seconds(moment: float | None) -> int:
    return int(moment or 0)


def _gres_on_node(job: Row, gpus: list[tuple[int, int]]) -> str:
    kind = f"{res.gpu_type(job['gpu_model'])}:" if job["gpu_model"] else ""
    return f"gpu:{kind}{len(gpus)}(IDX:{res.ranges(sorted(index for index, _ in gpus))})"


def _resources(job: Row) -> dict[str, Any]:
    return {
        "nodes": jobs.node_list(job),
        "allocated_cores": res.cpus(job),
        "allocated_hosts": len(job["held"]),
        "allocated_nodes": [
            {
                "sockets": {},
                "nodename": name,
                "cpus_used": res.whole_cpus(milli),
                "memory_used": int(mib),
                "memory_allocated": int(mib),
            }
            for name, milli, mib, _ in job["held"]
        ],
    }
