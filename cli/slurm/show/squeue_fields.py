"""The fields of squeue: the letters of -o, such as %i, and the names of -O, such as JobArrayID."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.slurm.formats import resources as res
from cli.slurm.formats.output_formats import Field
from cli.slurm.formats.states import COMPACT, REASON_COLUMNS, STATE_COLUMNS, exit_code, job_reason, job_state
from cli.slurm.formats.times import moment, span, whole_minutes
from cli.slurm.show.jobs import (
    END_COLUMNS,
    NULL,
    OUTPUT_COLUMNS,
    START_COLUMNS,
    array_job,
    array_task,
    batch_host,
    command,
    dependency,
    end,
    gres_per_node,
    licences,
    node_list,
    output_file,
    priority,
    start,
    task_cpus,
    used_s,
)
from cli.slurm.show.steps import derived_exit, wait_status
from wire.cluster.hostlist import fold_hostlist

Row = Mapping[str, Any]


def label(job: Row) -> str:
    """Return the display id of a job, such as 7 or 7_1. For a common row of waiting elements of an array, the
    id is a text such as 7_[1-3%2].
    """
    text: str = job["label"]
    return text


def limit(job: Row) -> str:
    seconds = job["limit_s"]
    return "UNLIMITED" if seconds is None else span(whole_minutes(seconds) * 60)


def node_list_or_reason(job: Row) -> str:
    state = job_state(job)
    nodes = node_list(job)
    if state in ("PENDING", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"):
        return f"({job_reason(job)})"
    return nodes


def time_left(job: Row) -> str:
    if job["limit_s"] is None:
        return "UNLIMITED"
    left = whole_minutes(job["limit_s"]) * 60 - int(used_s(job))
    return span(left) if left >= 0 else f"-{span(-left)}"


def pending_s(job: Row) -> str:
    until = job["started_at"] or job["ended_at"] or job["now"]
    return str(max(0, int(until - job["submitted_at"])))


def _scratch(job: Row) -> str:
    return res.short_memory(job["scratch_mib"]) if job["scratch_mib"] else "0"


def _column(name: str) -> Any:
    return lambda job: str(job[name])


def _time(name: str, none: str) -> Any:
    return lambda job: moment(job[name], none)


def _same(text: str) -> Any:
    return lambda _: text


_NODELIST = ("held",)
FIELDS = (
    Field("a", "Account", "ACCOUNT", ("project",), _column("project")),
    Field("b", "tres-per-node", "TRES_PER_NODE", res.GPU_COLUMNS, gres_per_node),
    Field("", "GRES", "TRES_PER_NODE", res.GPU_COLUMNS, gres_per_node),
    Field("c", "MinCpus", "MIN_CPUS", ("cpu_milli",), lambda job: str(res.whole_cpus(job["cpu_milli"]))),
    Field("d", "MinTmpDisk", "MIN_TMP_DISK", ("scratch_mib",), _scratch),
    Field("e", "EndTime", "END_TIME", END_COLUMNS, lambda job: moment(end(job), "N/A")),
    Field("f", "Feature", "FEATURES", (), _same(NULL)),
    Field("g", "GroupName", "GROUP", ("user",), lambda job: res.group_of(job["user"])),
    Field("h", "OverSubscribe", "OVER_SUBSCRIBE", (), _same("OK")),
    Field("i", "JobArrayID", "JOBID", ("label",), label),
    Field("j", "Name", "NAME", ("name",), _column("name")),
    Field("k", "Comment", "COMMENT", ("comment",), lambda job: job["comment"] or NULL),
    Field("l", "TimeLimit", "TIME_LIMIT", ("limit_s",), limit),
    Field("m", "MinMemory", "MIN_MEMORY", res.LEAST_COLUMNS, res.least_memory),
    Field("n", "ReqNodes", "REQ_NODES", ("node_list",), lambda job: fold_hostlist(job["node_list"] or ())),
    Field("o", "Command", "COMMAND", ("script",), command),
    Field(
        "p", "Priority", "PRIORITY", ("priority", "hold"), lambda job: f"{priority(job) / 4294967295:.14f}"
    ),
    Field("q", "QOS", "QOS", ("qos",), _column("qos")),
    Field("r", "Reason", "REASON", REASON_COLUMNS, job_reason),
    Field("s", "", "", (), _same("")),
    Field("t", "StateCompact", "ST", STATE_COLUMNS, lambda job: COMPACT[job_state(job)]),
    Field("u", "UserName", "USER", ("user",), _column("user")),
    Field("v", "Reservation", "RESERVATION", ("reservation",), lambda job: job["reservation"] or NULL),
    Field("w", "WCKey", "WCKEY", (), _same(NULL)),
    Field("x", "", "EXC_NODES", ("excluded",), lambda job: fold_hostlist(job["excluded"])),
    Field("y", "Nice", "NICE", (), _same("0")),
    Field("z", "SCT", "S:C:T", (), _same("*:*:*")),
    Field("A", "JobID", "JOBID", ("id",), _column("id")),
    Field("B", "BatchHost", "EXEC_HOST", ("held",), lambda job: batch_host(job) or "n/a"),
    Field("C", "NumCPUs", "CPUS", res.CPU_COLUMNS, lambda job: str(res.cpus(job))),
    Field("D", "NumNodes", "NODES", ("nodes",), _column("nodes")),
    Field("E", "Dependency", "DEPENDENCY", ("after", "state"), dependency),
    Field("F", "ArrayJobID", "ARRAY_JOB_ID", ("id", "array"), array_job),
    Field("G", "GroupID", "GROUP", ("user",), lambda job: str(res.gid_of(job["user"]))),
    Field("H", "", "SOCKETS_PER_NODE", (), _same("*")),
    Field("I", "Cores", "CORES_PER_SOCKET", (), _same("*")),
    Field("J", "Threads", "THREADS_PER_CORE", (), _same("*")),
    Field("K", "ArrayTaskID", "ARRAY_TASK_ID", ("array", "label"), array_task),
    Field("L", "TimeLeft", "TIME_LEFT", ("limit_s", "started_at", "ended_at"), time_left),
    Field("M", "TimeUsed", "TIME", ("started_at", "ended_at"), lambda job: span(used_s(job))),
    Field("N", "NodeList", "NODELIST", _NODELIST, node_list),
    Field("O", "Contiguous", "CONTIGUOUS", (), _same("0")),
    Field("P", "Partition", "PARTITION", ("queue",), _column("queue")),
    Field("Q", "PriorityLong", "PRIORITY", ("priority", "hold"), lambda job: str(priority(job))),
    Field("R", "ReasonList", "NODELIST(REASON)", (*REASON_COLUMNS, *_NODELIST), node_list_or_reason),
    Field("S", "StartTime", "START_TIME", START_COLUMNS, lambda job: moment(start(job), "N/A")),
    Field("T", "State", "STATE", STATE_COLUMNS, job_state),
    Field("U", "UserID", "UID", ("user",), lambda job: str(res.uid_of(job["user"]))),
    Field("V", "SubmitTime", "SUBMIT_TIME", ("submitted_at",), _time("submitted_at", "N/A")),
    Field("W", "Licenses", "LICENSES", ("licences",), licences),
    Field("X", "CoreSpec", "CORE_SPEC", (), _same("N/A")),
    Field("Y", "SchedNodes", "SCHEDNODES", (), _same(NULL)),
    Field("Z", "WorkDir", "WORK_DIR", ("workdir",), lambda job: job["workdir"] or "/"),
    Field("", "AccrueTime", "ACCRUE_TIME", ("eligible_at",), _time("eligible_at", "N/A")),
    Field("", "EligibleTime", "ELIGIBLE_TIME", ("eligible_at",), _time("eligible_at", "N/A")),
    Field("", "BatchFlag", "BATCH_FLAG", ("batch",), lambda job: str(int(job["batch"]))),
    Field(
        "", "cpus-per-task", "CPUS_PER_TASK", ("cpu_milli", "tasks_per_node"), lambda job: str(task_cpus(job))
    ),
    Field("", "Deadline", "DEADLINE", ("deadline_at",), _time("deadline_at", "N/A")),
    Field("", "DerivedEC", "DERIVED_EC", ("steps",), lambda job: wait_status(derived_exit(job))),
    Field(
        "",
        "exit_code",
        "EXIT_CODE",
        (*STATE_COLUMNS, "exit_code", "signal"),
        lambda job: wait_status(exit_code(job)),
    ),
    Field("", "MaxCPUs", "MAX_CPUS", res.CPU_COLUMNS, lambda job: str(res.cpus(job))),
    Field("", "MaxNodes", "MAX_NODES", ("nodes",), _column("nodes")),
    Field("", "MinTime", "TIME_MIN", ("time_min_s",), lambda job: span(job["time_min_s"] or 0)),
    Field(
        "",
        "NumTasks",
        "TASKS",
        ("nodes", "tasks_per_node"),
        lambda job: str(job["nodes"] * job["tasks_per_node"]),
    ),
    Field("", "NTPerNode", "NTASKS_PER_NODE", ("tasks_per_node",), _column("tasks_per_node")),
    Field("", "PendingTime", "PENDING_TIME", ("submitted_at", "started_at", "ended_at"), pending_s),
    Field("", "Requeue", "REQUEUE", ("requeue",), lambda job: str(int(job["requeue"]))),
    Field("", "RestartCnt", "RESTART_COUNT", ("restarts",), _column("restarts")),
    Field("", "STDERR", "STDERR", OUTPUT_COLUMNS, lambda job: output_file(job, "error")),
    Field("", "STDIN", "STDIN", (), _same("/dev/null")),
    Field("", "STDOUT", "STDOUT", OUTPUT_COLUMNS, lambda job: output_file(job, "output")),
    Field("", "tres-alloc", "TRES_ALLOC", res.TRES_COLUMNS, lambda job: res.tres(job, by_name=False)),
    Field("", "tres", "TRES_ALLOC", res.TRES_COLUMNS, lambda job: res.tres(job, by_name=False)),
    Field("", "Cluster", "CLUSTER", (), lambda job: str(job["cluster"])),
    *(
        Field("", name, heading, (), _same(value))
        for value, pairs in {
            NULL: "admin_comment:ADMIN_COMMENT BurstBuffer:BURST_BUFFER BurstBufferState:BURST_BUFFER_STATE "
            "ClusterFeature:CLUSTER_FEATURES Container:CONTAINER MCSLabel:MCSLABEL Network:NETWORK "
            "system_comment:SYSTEM_COMMENT",
            "N/A": "cpus-per-tres:CPUS_PER_TRES HetJobID:HET_JOB_ID HetJobIDSet:HET_JOB_ID_SET "
            "HetJobOffset:HET_JOB_OFFSET LastSchedEval:LAST_SCHED_EVAL mem-per-tres:MEM_PER_TRES "
            "NTPerCore:NTASKS_PER_CORE NTPerSocket:NTASKS_PER_SOCKET PreemptTime:PREEMPT_TIME "
            "ResizeTime:RESIZE_TIME tres-bind:TRES_BIND tres-freq:TRES_FREQ tres-per-job:TRES_PER_JOB "
            "tres-per-socket:TRES_PER_SOCKET tres-per-task:TRES_PER_TASK AllocNodes:ALLOC_NODES",
            "NA": "Origin:ORIGIN OriginRaw:ORIGIN_RAW SiblingsActive:ACTIVE_SIBLINGS "
            "SiblingsActiveRaw:ACTIVE_SIBLINGS_RAW SiblingsViable:VIABLE_SIBLINGS",
            "0": "AllocSID:ALLOC_SID AssocID:ASSOC_ID BoardsPerNode:BOARDS_PER_NODE "
            "NTPerBoard:NTASKS_PER_BOARD Reboot:REBOOT ReqSwitch:REQ_SWITCH SPerBoard:SOCKETS_PER_BOARD",
            "0:00": "DelayBoot:DELAY_BOOT Wait4Switch:WAIT4SWITCH",
            "NotSet": "Profile:PROFILE",
        }.items()
        for name, _, heading in (pair.partition(":") for pair in pairs.split())
    ),
)
"""All fields of jobs. Fields without a counterpart in Corral have the value that Slurm prints by default."""
