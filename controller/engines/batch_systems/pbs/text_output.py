"""Reads the text output of qstat -f and pbsnodes -a of OpenPBS, of Torque, and of Slurm's commands with these
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from controller.engines.batch_systems.batch_job import BatchNode, BatchStatus, Cause, Phase, Unreadable

_PHASES = {
    "Q": Phase.WAITING,
    "W": Phase.WAITING,
    "T": Phase.WAITING,
    "M": Phase.WAITING,
    "H": Phase.HELD,
    "B": Phase.RUNNING,
    "R": Phase.RUNNING,
    "S": Phase.RUNNING,
    "U": Phase.RUNNING,
    "E": Phase.ENDING,
    "C": Phase.ENDED,
    "F": Phase.ENDED,
    "X": Phase.ENDED,
}
_HOLDS = {"u": "held by its user", "o": "held by an operator", "s": "held by the system"}
_JOB = re.compile(r"Job Id:\s*(\S+)")
_ATTRIBUTE = re.compile(r"\s+([\w.]+) = (.*)")
_SIGNAL_FROM = 256
_WALLTIME, _MEMORY, _VIRTUAL_MEMORY = -29, -27, -26
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)([bw]?)", re.IGNORECASE)
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_OPEN_STATES = {
    "free",
    "job-exclusive",
    "job-busy",
    "job-sharing",
    "busy",
    "mixed",
    "resv-exclusive",
    "provisioning",
}


def parse_qstat(text: str) -> list[BatchStatus]:
    """Return the jobs in the output of `qstat -f`. Times are left out, because qstat prints them in the time
    zone of its host.
    """
    return [_job(name, found) for name, found in _blocks(text, _JOB)]


def _job(name: str, found: Mapping[str, str]) -> BatchStatus:
    if "job_state" not in found:
        raise Unreadable(f"qstat -f shows no state of the job {name}")
    state = found["job_state"]
    phase = _PHASES.get(state, Phase.UNKNOWN)
    holds = found.get("Hold_Types", "n")
    if phase is Phase.WAITING and holds != "n":
        phase = Phase.HELD
    reason = found.get("comment", "")
    if phase is Phase.HELD and not reason:
        reason = next((text for letter, text in _HOLDS.items() if letter in holds), "held")
    shown = found.get("Exit_status", found.get("exit_status", ""))
    status = int(shown) if re.fullmatch(r"-?\d+", shown) and phase is Phase.ENDED else None
    cause, code, signal = exit_status(status)
    host = re.split(r"[/+]", found.get("exec_host", ""))[0]
    return BatchStatus(
        name,
        found.get("Job_Name", ""),
        phase,
        state,
        reason,
        host,
        found.get("queue", ""),
        cause=cause,
        code=code,
        signal=signal,
        user=found.get("Job_Owner", "").partition("@")[0],
    )


def exit_status(status: int | None) -> tuple[Cause, int | None, int | None]:
    """Return (cause, exit code, signal) of an Exit_status of PBS; negative numbers are failures of PBS."""
    if status is None:
        return Cause.EXIT, None, None
    if status == _WALLTIME:
        return Cause.TIME_LIMIT, None, None
    if status in (_MEMORY, _VIRTUAL_MEMORY):
        return Cause.OUT_OF_MEMORY, None, None
    if status < 0:
        return Cause.LAUNCH_FAILED, None, None
    if status > _SIGNAL_FROM:
        return Cause.EXIT, None, status - _SIGNAL_FROM
    return (Cause.EXIT, None, status - 128) if 128 < status < _SIGNAL_FROM else (Cause.EXIT, status, None)


def parse_pbsnodes(text: str) -> list[BatchNode]:
    """Return the nodes in the output of `pbsnodes -a`, which has a block for each node."""
    return [_node(name, found) for name, found in _blocks(text, re.compile(r"(\S+)\s*"))]


def _node(name: str, found: Mapping[str, str]) -> BatchNode:
    available = {key.removeprefix("resources_available."): value for key, value in found.items()}
    status = dict(item.partition("=")[::2] for item in found.get("status", "").split(","))
    memory = available.get("mem") or status.get("physmem") or status.get("availmem") or "0"
    states = [state.strip() for state in found.get("state", "unknown").split(",")]
    closed = [state for state in states if state not in _OPEN_STATES]
    given = found.get("comment", found.get("note", ""))
    return BatchNode(
        name,
        int(available.get("ncpus") or found.get("np") or 0),
        size_mib(memory),
        int(available.get("ngpus") or found.get("gpus") or 0),
        available.get("gpu_model", ""),
        int(found.get("resources_assigned.ncpus") or 0),
        ", ".join(closed) + (f": {given}" if given else "") if closed else "",
        tuple(filter(None, (found.get("queue", ""),))),
        tuple(found["properties"].split(",")) if "properties" in found else (),
    )


def size_mib(text: str) -> int:
    """Return the MiB of a size such as 100mb, 65536kb or 1gb, rounded down. A word (`w`) has 8 bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Unreadable(f"cannot read {text!r} as a size of PBS")
    words = 8 if match[3].lower() == "w" else 1
    return int(match[1]) * _BYTES[match[2].lower()] * words >> 20


def _blocks(text: str, head: re.Pattern[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each block of attributes with the name in its first line.

    qstat breaks long values; the rest of a value is in the next line, after a tab, without a name.
    """
    name, found, last = "", dict[str, str](), ""
    for line in text.splitlines():
        if match := head.fullmatch(line):
            if name:
                yield name, found
            name, found, last = match[1], {}, ""
        elif match := _ATTRIBUTE.fullmatch(line):
            last = match[1]
            found[last] = match[2].strip()
        elif last and line.startswith("\t"):
            found[last] += line.strip()
        elif line.strip():
            raise Unreadable(f"expected an attribute, got {line[:200]!r}")
    if name:
        yield name, found
