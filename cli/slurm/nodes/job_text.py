"""Formats jobs as `scontrol show job` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.slurm.formats import resources as res
from cli.slurm.formats.states import REASON_COLUMNS, exit_code, job_reason, job_state
from cli.slurm.formats.times import long_span, moment, whole_minutes
from cli.slurm.show import jobs
from cli.slurm.show.steps import derived_exit
from wire.cluster.hostlist import fold_hostlist

Row = Mapping[str, Any]

JOB_COLUMNS = tuple(
    dict.fromkeys(
        (
            *(
                "id",
                "label",
                "array",
                "index",
                "array_text",
                "name",
                "user",
                "project",
                "queue",
                "qos",
                "priority",
            ),
            *("submitted_at", "eligible_at", "time_min_s", "deadline_at", "exit_code", "restarts", "requeue"),
            *(
                "batch",
                "script",
                "tasks_per_node",
                "comment",
                "reservation",
                "licences",
                "after",
                "excluded",
                "node_list",
                "gpu_model",
                "scratch_mib",
                "steps",
            ),
            *res.LEAST_COLUMNS,
            *REASON_COLUMNS,
            *jobs.END_COLUMNS,
            *jobs.GROUP_COLUMNS,
            *jobs.OUTPUT_COLUMNS,
            *res.TRES_COLUMNS,
        )
    )
)


def job_lines(job: Row, *, details: bool) -> list[str]:
    """Return the lines about one job. With `details`, add a line with CPUs, memory and GPUs for each node."""
    user, uid = job["user"], res.uid_of(job["user"])
    waiting = job_state(job) == "PENDING"
    return [
        f"JobId={job['id']} {_array(job)}JobName={job['name']}",
        f"UserId={user}({uid}) GroupId={res.group_of(user)}({res.gid_of(user)}) MCS_label=N/A",
        f"Priority={jobs.priority(job)} Nice=0 Account={job['project']} QOS={job['qos']}",
        f"JobState={job_state(job)} Reason={job_reason(job)} Dependency={jobs.dependency(job)}",
        f"Requeue={int(job['requeue'])} Restarts={job['restarts']} BatchFlag={int(job['batch'])} Reboot=0 "
        f"ExitCode={exit_code(job)}",
        *([f"DerivedExitCode={derived_exit(job)}"] if details else []),
        *_times(job),
        f"Partition={job['queue']} AllocNode:Sid=(null):0",
        f"ReqNodeList={fold_hostlist(job['node_list'] or ()) or jobs.NULL} "
        f"ExcNodeList={fold_hostlist(job['excluded']) or jobs.NULL}",
        f"NodeList={jobs.node_list(job)}",
        *([f"BatchHost={jobs.batch_host(job)}"] if job["held"] else []),
        _numbers(job, waiting=waiting),
        f"TRES={res.tres(job, by_name=False)}",
        f"Socks/Node=* NtasksPerN:B:S:C={_tasks_per_node(job)}:0:*:* CoreSpec=*",
        *(_details(job) if details else []),
        f"MinCPUsNode={res.whole_cpus(job['cpu_milli'])} "
        f"MinMemory{'CPU' if job['memory_per_cpu_mib'] else 'Node'}={res.least_memory(job)} "
        f"MinTmpDiskNode={res.short_memory(job['scratch_mib']) if job['scratch_mib'] else 0}",
        "Features=(null) DelayBoot=00:00:00",
        *([f"Reservation={job['reservation']}"] if job["reservation"] else []),
        f"OverSubscribe=OK Contiguous=0 Licenses={jobs.licences(job)} Network=(null)",
        f"Command={jobs.command(job)}",
        f"WorkDir={job['workdir'] or '/'}",
        *([f"Comment={job['comment']} "] if job["comment"] else []),
        f"StdErr={jobs.output_file(job, 'error')}",
        "StdIn=/dev/null",
        f"StdOut={jobs.output_file(job, 'output')}",
        "Power=",
        *([f"TresPerNode={jobs.gres_per_node(job)}"] if job["gpus"] else []),
    ]


def _tasks_per_node(job: Row) -> int:
    tasks = int(job["tasks_per_node"])
    return tasks if tasks > 1 else 0


def _array(job: Row) -> str:
    if job["array"] is None:
        return ""
    most = str(job["array_text"]).partition("%")[2].strip()
    throttle = f"ArrayTaskThrottle={most} " if most else ""
    return f"ArrayJobId={job['array']} ArrayTaskId={jobs.array_task(job)} {throttle}"


def _times(job: Row) -> list[str]:
    limit = job["limit_s"]
    limit_text = "UNLIMITED" if limit is None else long_span(whole_minutes(limit) * 60)
    shortest = job["time_min_s"]
    eligible = moment(job["eligible_at"], "Unknown")
    started = job["started_at"] is not None
    preempt = [f"PreemptEligibleTime={moment(job['started_at'], 'None')} PreemptTime=None"] if started else []
    return [
        f"RunTime={long_span(jobs.used_s(job))} TimeLimit={limit_text} "
        f"TimeMin={'N/A' if shortest is None else long_span(shortest)}",
        f"SubmitTime={moment(job['submitted_at'], 'Unknown')} EligibleTime={eligible}",
        f"AccrueTime={eligible}",
        f"StartTime={moment(jobs.start(job), 'Unknown')} EndTime={moment(jobs.end(job), 'Unknown')} "
        f"Deadline={moment(job['deadline_at'], 'N/A')}",
        *preempt,
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={moment(job['now'], 'Unknown')} Scheduler=Main",
    ]


def _numbers(job: Row, *, waiting: bool) -> str:
    nodes = int(job["nodes"])
    count = f"{nodes}-{nodes}" if waiting and nodes > 1 else str(nodes)
    return (
        f"NumNodes={count} NumCPUs={res.cpus(job)} NumTasks={nodes * int(job['tasks_per_node'])} "
        f"CPUs/Task={jobs.task_cpus(job)} ReqB:S:C:T=0:0:*:*"
    )


def _details(job: Row) -> list[str]:
    """Return a line JOB_GRES with the GPUs on all nodes, then a line with the allocation on each node."""
    kind = res.gpu_type(job["gpu_model"]) if job["gpu_model"] else ""
    total = sum(len(gpus) for _, _, _, gpus in job["held"])
    lines = [f"JOB_GRES={_gres(kind, total) or jobs.NULL}"]
    for name, milli, mib, gpus in job["held"]:
        indices = sorted(index for index, _ in gpus)
        found = f"{_gres(kind, len(gpus))}(IDX:{res.ranges(indices)})" if gpus else ""
        cpu_ids = res.ranges(list(range(res.whole_cpus(milli))))
        lines.append(f"  Nodes={name} CPU_IDs={cpu_ids} Mem={mib} GRES={found}")
    return lines


def _gres(kind: str, count: int) -> str:
    if not count:
        return ""
    return f"gpu:{kind}:{count}" if kind else f"gpu:{count}"
