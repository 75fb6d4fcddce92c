"""The fields of sacct and sstat. A row is a job, or a step of a job: the batch script or a step of srun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.slurm.formats import resources as res
from cli.slurm.formats.sacct_columns import Column
from cli.slurm.formats.states import REASON_COLUMNS, STATE_COLUMNS, exit_code, job_reason, job_state
from cli.slurm.formats.times import long_span, moment, whole_minutes
from cli.slurm.show import jobs
from cli.slurm.show.steps import derived_exit, peak_text, step_exit, step_rows, step_state

Row = Mapping[str, Any]

_CANCELLED_BY = "cancelled by "
_KILLED = {"CANCELLED": 15, "TIMEOUT": 15, "DEADLINE": 15, "PREEMPTED": 15, "NODE_FAIL": 15}
"""The signal that sacct shows in the exit code of the batch script, by the state of the job."""


def state(row: Row) -> str:
    """Return the state of a job or a step as sacct prints it. A job whose processes are being started is
    PENDING, and a job that is being ended is still RUNNING. The state of a cancelled job contains the uid of
    the user that cancelled the job. A batch script that was killed is CANCELLED.
    """
    if row.get("record"):
        return step_state(row["record"])
    found = job_state(row)
    found = {"CONFIGURING": "PENDING", "COMPLETING": "RUNNING"}.get(found, found)
    if row["step"]:
        killed = found in _KILLED or (found == "FAILED" and row["signal"])
        return "CANCELLED" if killed else found
    if found == "CANCELLED" and str(row["detail"]).startswith(_CANCELLED_BY):
        return f"{found} by {res.uid_of(row['detail'].removeprefix(_CANCELLED_BY).split(':')[0])}"
    return found


def exit_text(row: Row) -> str:
    """Return the exit code and the signal of a job or a step, such as 1:0. As in Slurm's sacct, 128 is
    subtracted from an exit code above 127: an exit code of 137 is shown as 9:0.
    """
    if row.get("record"):
        text = step_exit(row["record"])
    else:
        found = job_state(row)
        text = f"0:{_KILLED[found]}" if row["step"] and found in _KILLED else exit_code(row)
    code, _, number = text.partition(":")
    return f"{int(code) & 127}:{number}"


def _node_list(row: Row) -> str:
    return jobs.node_list(row) or "None assigned"


def _start(row: Row) -> str:
    return moment(row["started_at"], "Unknown" if row["ended_at"] is None else "None")


def _eligible(row: Row) -> str:
    return moment(row["started_at"] if row["step"] else row["eligible_at"], "Unknown")


def _cpu_time(row: Row) -> int:
    return int(jobs.used_s(row)) * res.cpus(row)


def _waited_s(row: Row) -> int:
    until = row["started_at"] or row["ended_at"] or row["now"]
    return max(0, int(until - row["submitted_at"]))


def _measured(row: Row) -> float:
    return sum(row["cpu_s"])


def _cpu_text(seconds: float) -> str:
    """Return CPU time as text: such as 00:01.250 for less than an hour, 1-02:03:04 for more, and 00:00:00 for
    none.
    """
    if not seconds or seconds >= 3_600:
        return long_span(seconds)
    return f"{int(seconds) // 60:02}:{seconds % 60:06.3f}"


def _peak(row: Row) -> str:
    """Return the peak memory of a step or of the batch script, in the unit of --units if this option is
    given; empty for a job, or without a measurement.
    """
    if row.get("record"):
        return peak_text(row["record"], row["unit"])
    peak = max(row["max_rss_mib"], default=0)
    if not row["step"] or not peak:
        return ""
    return res.rounded_memory(peak, row["unit"]) if row["unit"] else res.short_memory(peak)


def _peak_node(row: Row) -> str:
    if row.get("record"):
        return str(row["record"]["max_rss_node"])
    peak = max(row["max_rss_mib"], default=0)
    if not row["step"] or not peak:
        return ""
    place = row["max_rss_mib"].index(peak)
    return row["held"][place][0] if place < len(row["held"]) else ""


def _peak_task(row: Row) -> str:
    if not _peak(row):
        return ""
    return str(row["record"]["max_rss_task"]) if row.get("record") else "0"


def _requested_memory(row: Row) -> str:
    mib = int(row["memory_mib"]) * int(row["nodes"])
    return res.short_memory(mib) if row["unit"] == "raw" else res.rounded_memory(mib, row["unit"])


def _allocated(row: Row) -> str:
    if not row["held"]:
        return ""
    if not row["step"]:
        return res.tres(row, by_name=True)
    return res.tres_text(
        res.cpus(row), res.memory_mib(row), int(row["nodes"]), row["gpus"], by_name=True, billing=False
    )


def _limit(row: Row) -> str:
    seconds = row["limit_s"]
    return "UNLIMITED" if seconds is None else long_span(whole_minutes(seconds) * 60)


def _of_job(value: Any) -> Any:
    """Return a function that returns `value(row)` for the row of a job, and an empty text for the row of a
    step.
    """
    return lambda row: "" if row["step"] else value(row)


def _of_step(value: Any) -> Any:
    """Return a function that returns `value(row)` for the row of a step, and an empty text for the row of a
    job.
    """
    return lambda row: value(row) if row["step"] else ""


def _named(row: Row, name: str) -> str:
    return f"{row[name]}.{row['step']}" if row["step"] else str(row[name])


_CPU = (*res.CPU_COLUMNS,)
_USED = ("started_at", "ended_at")
_STATE = (*STATE_COLUMNS, "signal", "detail", "exit_code")
_PEAK = ("max_rss_mib", "held")
_WAIT = ("submitted_at", *_USED)
_VALUES: Mapping[str, tuple[tuple[str, ...], Any]] = {
    "Account": (("project",), lambda row: row["project"]),
    "AllocCPUS": (_CPU, lambda row: str(res.cpus(row))),
    "AllocNodes": (("held",), lambda row: str(len(row["held"]))),
    "AllocTRES": (res.TRES_COLUMNS, _allocated),
    "AveCPU": (("cpu_s",), _of_step(lambda row: long_span(_measured(row)))),
    "AveRSS": (_PEAK, _peak),
    "Cluster": ((), lambda row: row["cluster"]),
    "Comment": (("comment",), _of_job(lambda row: row["comment"])),
    "Reservation": (("reservation",), _of_job(lambda row: row["reservation"])),
    "ConsumedEnergy": (("use",), lambda row: "" if row["use"] is None else str(round(row["use"][2] * 3_600))),
    "CPUTime": ((*_USED, *_CPU), lambda row: long_span(_cpu_time(row))),
    "CPUTimeRAW": ((*_USED, *_CPU), lambda row: str(_cpu_time(row))),
    "DerivedExitCode": ((), _of_job(derived_exit)),
    "Elapsed": (_USED, lambda row: long_span(jobs.used_s(row))),
    "ElapsedRaw": (_USED, lambda row: str(int(jobs.used_s(row)))),
    "Eligible": (("eligible_at", "started_at"), _eligible),
    "End": (("ended_at",), lambda row: moment(row["ended_at"], "Unknown")),
    "ExitCode": (_STATE, exit_text),
    "GID": (("user",), _of_job(lambda row: str(res.gid_of(row["user"])))),
    "Group": (("user",), _of_job(lambda row: res.group_of(row["user"]))),
    "JobID": (("label",), lambda row: _named(row, "label")),
    "JobIDRaw": (("id",), lambda row: _named(row, "id")),
    "JobName": (("name",), lambda row: row["step_name"] if row["step"] else row["name"]),
    "Layout": ((), _of_step(lambda row: row["record"]["layout"] if row.get("record") else "Unknown")),
    "MaxRSS": (_PEAK, _peak),
    "MaxRSSNode": (_PEAK, _peak_node),
    "MaxRSSTask": (_PEAK, _peak_task),
    "NCPUS": (_CPU, lambda row: str(res.cpus(row))),
    "NNodes": (("nodes",), lambda row: str(row["nodes"])),
    "NodeList": (("held",), _node_list),
    "NTasks": (("nodes",), _of_step(lambda row: str(row["step_tasks"]))),
    "Partition": (("queue",), _of_job(lambda row: row["queue"])),
    "Priority": (("priority",), _of_job(lambda row: str(row["priority"]))),
    "QOS": (("qos",), _of_job(lambda row: row["qos"])),
    "QOSRAW": ((), _of_job(lambda _: "1")),
    "Reason": (
        REASON_COLUMNS,
        _of_job(lambda row: job_reason(row) if job_state(row) == "PENDING" else "None"),
    ),
    "ReqCPUS": (_CPU, lambda row: str(res.cpus(row))),
    "ReqMem": (("memory_mib", "nodes"), _of_job(_requested_memory)),
    "ReqNodes": (("nodes",), lambda row: str(row["nodes"])),
    "ReqTRES": (res.TRES_COLUMNS, _of_job(lambda row: res.tres(row, by_name=True))),
    "Reserved": (_WAIT, _of_job(lambda row: long_span(_waited_s(row)))),
    "ResvCPU": ((*_WAIT, *_CPU), _of_job(lambda row: long_span(_waited_s(row) * res.cpus(row)))),
    "ResvCPURAW": ((*_WAIT, *_CPU), _of_job(lambda row: str(_waited_s(row) * res.cpus(row)))),
    "Start": (_USED, _start),
    "State": (_STATE, state),
    "Submit": (
        ("submitted_at", "started_at"),
        lambda row: moment(row["started_at"] if row["step"] else row["submitted_at"], "Unknown"),
    ),
    "SubmitLine": (("program",), _of_job(lambda row: row["program"])),
    "Suspended": ((), lambda _: "00:00:00"),
    "SystemCPU": ((), lambda _: "00:00:00"),
    "Timelimit": (("limit_s",), _of_job(_limit)),
    "TimelimitRaw": (
        ("limit_s",),
        _of_job(lambda row: "UNLIMITED" if row["limit_s"] is None else str(whole_minutes(row["limit_s"]))),
    ),
    "TotalCPU": (("cpu_s",), lambda row: _cpu_text(_measured(row))),
    "UID": (("user",), _of_job(lambda row: str(res.uid_of(row["user"])))),
    "User": (("user",), _of_job(lambda row: row["user"])),
    "UserCPU": (("cpu_s",), lambda row: _cpu_text(_measured(row))),
    "WorkDir": (("workdir",), _of_job(lambda row: row["workdir"] or "/")),
    **dict.fromkeys(
        ("ReqCPUFreq", "ReqCPUFreqGov", "ReqCPUFreqMax", "ReqCPUFreqMin"),
        ((), lambda row: "0" if row["step"] else "Unknown"),
    ),
}
_NO_VALUE = ((), lambda _: "")

_WIDTHS_TEXT = """
Account 10 AdminComment 15 AllocCPUS 10 AllocNodes 10 AllocTRES 10 AssocID 7 AveCPU 10 AveCPUFreq 10
AveDiskRead 14 AveDiskWrite 14 AvePages 10 AveRSS 10 AveVMSize 10 BlockID 16 Cluster 10 Comment 14
Constraints 19 ConsumedEnergy 14 ConsumedEnergyRaw 17 Container 19 CPUTime 10 CPUTimeRAW 10 DBIndex -10
DerivedExitCode 15 Elapsed 10 ElapsedRaw 10 Eligible 19 End 19 ExitCode 8 Flags 19 GID 6 Group 9 JobID -12
JobIDRaw -12 JobName 10 Layout 9 MaxDiskRead 12 MaxDiskReadNode 15 MaxDiskReadTask 15 MaxDiskWrite 12
MaxDiskWriteNode 16 MaxDiskWriteTask 16 MaxPages 8 MaxPagesNode 12 MaxPagesTask 14 MaxRSS 10 MaxRSSNode 10
MaxRSSTask 10 MaxVMSize 10 MaxVMSizeNode 14 MaxVMSizeTask 14 McsLabel 12 MinCPU 10 MinCPUNode 10 MinCPUTask 10
NCPUS 10 NNodes 8 NodeList 15 NTasks 8 Partition 10 Priority 10 QOS 10 QOSRAW 6 Reason 22 ReqCPUFreq 10
ReqCPUFreqGov 13 ReqCPUFreqMax 13 ReqCPUFreqMin 13 ReqCPUS 8 ReqMem 10 ReqNodes 8 ReqTRES 10 Reservation 20
ReservationId 8 Reserved 10 ResvCPU 10 ResvCPURAW 10 Start 19 State 10 Submit 19 SubmitLine 20 Suspended 10
SystemComment 15 SystemCPU 10 Timelimit 10 TimelimitRaw 10 TotalCPU 10 TRESUsageInAve 14 TRESUsageInMax 14
TRESUsageInMaxNode 18 TRESUsageInMaxTask 18 TRESUsageInMin 14 TRESUsageInMinNode 18 TRESUsageInMinTask 18
TRESUsageInTot 14 TRESUsageOutAve 15 TRESUsageOutMax 15 TRESUsageOutMaxNode 19 TRESUsageOutMaxTask 19
TRESUsageOutMin 15 TRESUsageOutMinNode 19 TRESUsageOutMinTask 19 TRESUsageOutTot 15 UID 6 User 9 UserCPU 10
WCKey 10 WCKeyID 10 WorkDir 20
"""
"""The names of all fields in the order of --helpformat, each with its width. With a negative width the text
is aligned to the left.
"""

_WIDTHS = _WIDTHS_TEXT.split()
COLUMNS = tuple(
    Column(name, int(width), *_VALUES.get(name, _NO_VALUE))
    for name, width in zip(_WIDTHS[::2], _WIDTHS[1::2], strict=True)
)
"""All fields of sacct. A field without a counterpart in Corral is empty or has a fixed value."""

DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"
LONG = (
    "JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,"
    "MaxRSSTask,AveRSS,MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,"
    "AllocCPUS,Elapsed,State,ExitCode,AveCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov,ReqMem,"
    "ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,MaxDiskWriteNode,"
    "MaxDiskWriteTask,AveDiskWrite,ReqTRES,AllocTRES,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,"
    "TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutMax,"
    "TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutAve,TRESUsageOutTot"
)


def with_steps(job: dict[str, Any], unit: str) -> list[dict[str, Any]]:
    """Return the rows of a job: the job itself and, if the job has started, its batch script and its steps.
    `unit` is the value of --units.
    """
    whole = {**job, "step": "", "unit": unit}
    if job["started_at"] is None:
        return [whole]
    batch = {**whole, "step": "batch", "step_name": "batch", "step_tasks": 1}
    if job.get("batch", True) and len(job["held"]) > 1:
        first = [job["held"][0]]
        batch |= {"held": first, "nodes": 1, "gpus": len(first[0][3])}
    return [whole, batch, *step_rows(whole)]
