"""Converts states and reasons of Corral's jobs and nodes to those of Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Row = Mapping[str, Any]
"""A job or a node: a dict from column name to value."""

COMPACT: Final[Mapping[str, str]] = {
    "PENDING": "PD",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "BOOT_FAIL": "BF",
    "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM",
    "COMPLETING": "CG",
    "CONFIGURING": "CF",
    "RESIZING": "RS",
    "RESV_DEL_HOLD": "RD",
    "REQUEUED": "RQ",
    "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH",
    "REVOKED": "RV",
    "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
}
"""The states of jobs in Slurm, each with its short form, in the order in which squeue sorts them."""

ORDER: Final = {state: place for place, state in enumerate(COMPACT)}
ENDED: Final = frozenset(
    {
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"),
        *("PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"),
    }
)
ACTIVE: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING"})
"""The states that squeue lists without --states."""

_ENDS: Final[Mapping[str, str]] = {
    "time_limit": "TIMEOUT",
    "out_of_memory": "OUT_OF_MEMORY",
    "node_lost": "NODE_FAIL",
    "supervisor_lost": "NODE_FAIL",
    "deadline": "DEADLINE",
    "preempted": "PREEMPTED",
    "evicted": "PREEMPTED",
}
"""Slurm's state of an ended job, by Corral's reason of the end. With any other reason, the state is the same
as in Corral.
"""

_WAITS: Final[Mapping[str, str]] = {
    "": "None",
    "new": "None",
    "no_nodes": "ReqNodeNotAvail",
    "resources": "Resources",
    "preempting": "Resources",
    "moving": "Resources",
    "gpu_held": "Resources",
    "node_unfit": "Resources",
    "quota": "AssociationResourceLimit",
    "share": "AssociationResourceLimit",
    "hours": "AssociationResourceLimit",
    "kept_free": "QOSResourceLimit",
    "licence": "Licenses",
    "reservation": "Reservation",
    "promised": "Priority",
    "priority": "Priority",
    "others_deadline": "Priority",
    "begin": "BeginTime",
    "backoff": "BeginTime",
    "array": "JobArrayTaskLimit",
    "deadline": "DeadLine",
    "start_timeout": "InactiveLimit",
}
"""Slurm's reason of a waiting job, by Corral's reason (wire.names). For any other reason, Slurm's reason is
None.
"""

_END_REASONS: Final[Mapping[str, str]] = {
    "exit_nonzero": "NonZeroExitCode",
    "time_limit": "TimeLimit",
    "out_of_memory": "OutOfMemory",
    "node_lost": "NodeDown",
    "supervisor_lost": "NodeDown",
    "launch_failed": "JobLaunchFailure",
    "deadline": "DeadLine",
    "signal": "RaisedSignal:",
    "start_timeout": "InactiveLimit",
    "dependency": "DependencyNeverSatisfied",
}


def job_state(job: Row) -> str:
    """Return the long name of a job's state, such as PENDING. `job` must have the columns `state`, `reason`
    and `stopping`.
    """
    state: str = job["state"]
    if state == "RUNNING":
        return "COMPLETING" if job["stopping"] else "RUNNING"
    if state in ("QUEUED", "PREEMPTED"):
        return "PENDING"
    if state == "SCHEDULED":
        return "COMPLETING" if job["stopping"] else "CONFIGURING"
    return state if state == "COMPLETED" else _ENDS.get(job["reason"], state)


def job_reason(job: Row) -> str:
    """Return the reason of a job's state in Slurm's words, such as Resources; the text None if there is no
    reason. `job` must have the columns in REASON_COLUMNS.
    """
    state: str = job["state"]
    reason: str = job["reason"]
    if state in ("QUEUED", "PREEMPTED"):
        if job["hold"]:
            return "JobHeldAdmin" if job["hold"] == "operator" else "JobHeldUser"
        if reason == "dependency":
            return "DependencyNeverSatisfied" if job["hopeless"] else "Dependency"
        return _WAITS.get(reason, "None")
    if state in ("RUNNING", "SCHEDULED", "COMPLETED"):
        return "None"
    found = _END_REASONS.get(reason, "None")
    return f"{found}{job['signal'] or ''}" if found.endswith(":") else found


STATE_COLUMNS: Final = ("state", "reason", "stopping")
REASON_COLUMNS: Final = (*STATE_COLUMNS, "hold", "hopeless", "signal")


def exit_code(job: Row) -> str:
    """Return the exit code and the signal of a job, such as 1:0 or 0:9. As in Slurm, return 0:125 for a job
    that exceeded its memory, and 0:0 for a job that was cancelled, was preempted, lost its node, or reached
    its time limit or deadline. `job` must have STATE_COLUMNS, `exit_code` and `signal`.
    """
    state = job_state(job)
    if state == "OUT_OF_MEMORY":
        return "0:125"
    if state in ("CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE", "NODE_FAIL"):
        return "0:0"
    return f"{job['exit_code'] or 0}:{job['signal'] or 0}"


def read_states(text: str) -> frozenset[str] | None:
    """Return the long names of the states in a list such as `PD,running`; None if the list contains `all`.
    Raise KeyError with the first word that is no state.
    """
    long = {short: state for state, short in COMPACT.items()}
    found = set()
    for word in text.upper().split(","):
        if word == "ALL":
            return None
        if word not in COMPACT and word not in long:
            raise KeyError(word)
        found.add(long.get(word, word))
    return frozenset(found)


def node_state(node: Row) -> str:
    """Return the state of a node, such as idle, mixed, allocated, drained, draining or down. An asterisk at
    the end marks a node that does not answer. `node` is a NodeView of wire.api.nodes as JSON.
    """
    state = node["state"]
    if state == "down":
        return "down*"
    busy = used_cpus(node) > 0 or bool(node["jobs"])
    if state == "drained" or node.get("drain"):
        return "draining" if busy else "drained"
    base = "idle"
    if busy:
        free = node["cpu_milli"] - used_cpus(node) * 1_000
        base = "mixed" if free >= 1_000 else "allocated"
    return base + ("*" if state == "suspect" else "")


def used_cpus(node: Row) -> int:
    """Return the number of CPUs of a node that jobs hold, rounded up."""
    return -int((node["cpu_free_milli"] - node["cpu_milli"]) // 1_000)


NODE_COMPACT: Final[Mapping[str, str]] = {
    "idle": "idle",
    "mixed": "mix",
    "allocated": "alloc",
    "drained": "drain",
    "draining": "drng",
    "down": "down",
    "planned": "plnd",
    "maint": "maint",
    "reserved": "resv",
}


def compact_node_state(state: str) -> str:
    base = state.rstrip("*")
    return NODE_COMPACT[base] + state[len(base) :]
