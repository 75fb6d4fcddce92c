"""Finds the user and the job attempt to which a process on a GPU belongs."""

from __future__ import annotations

import math
import os
import pwd
from dataclasses import field
from functools import lru_cache
from typing import Callable, Iterable, Mapping, Optional

from agent.attempts.spool import format_key
from agent.processes.process_marks import MarkedProcess
from wire.agent.orders import GpuHold
from wire.dataclass import dataclass

LOAD_VARIABLE = "CORRAL_SIMULATED_LOAD"
_MAX_GENERATIONS = 64
"""The most ancestors of a process that are examined. More ancestors mean that the chain is a loop, which
reused pids can cause.
"""


@dataclass(frozen=True)
class GpuHolder:
    """A running attempt that has GPUs. A process belongs to the attempt if it is a descendant of the
    attempt's supervisor, or if it has the attempt's mark (signed environment variables, see
    process_marks.py).

    Processes in docker containers are descendants of the docker daemon, so only the mark identifies these
    processes.
    """

    job: int
    attempt: int
    user: str
    command: str
    pid: int
    supervisor: Optional[int]
    gpus: tuple[GpuHold, ...]
    spool: str = ""
    """The spool directory of the agent, with which the marks of the attempt's processes are checked. Empty if
    all processes of the attempt are descendants of its supervisor, so that marks are not needed.
    """
    mark_key: str = field(default="", repr=False)
    simulated_load: float = 1.0
    """The load that the attempt puts on its simulated GPUs, from 0 to 1."""


ListHolders = Callable[[], list[GpuHolder]]


def held_milli(holders: Iterable[GpuHolder]) -> dict[str, int]:
    """Return the part of each GPU that is allocated to attempts, in thousandths of the GPU, by UUID."""
    found: dict[str, int] = {}
    for holder in holders:
        for hold in holder.gpus:
            found[hold.uuid] = found.get(hold.uuid, 0) + hold.milli
    return found


def simulated_load(env: Mapping[str, str]) -> float:
    """Return the load of simulated GPUs, from 0 to 1. CORRAL_SIMULATED_LOAD in the job's environment sets the
    load in percent. Without this variable, or if its value is no number, return 1.
    """
    try:
        percent = float(env.get(LOAD_VARIABLE, "100"))
    except ValueError:
        return 1.0
    return min(1.0, max(0.0, percent / 100)) if math.isfinite(percent) else 1.0


def loaded_milli(holders: Iterable[GpuHolder]) -> dict[str, int]:
    """Return the part of each simulated GPU that attempts load, in thousandths of the GPU, by UUID."""
    found: dict[str, int] = {}
    for holder in holders:
        for hold in holder.gpus:
            found[hold.uuid] = found.get(hold.uuid, 0) + round(hold.milli * holder.simulated_load)
    return found


@dataclass(frozen=True)
class ProcessOwner:
    """The user and the command of a process. `holder` is the attempt to which the process belongs; None if no
    job started the process.
    """

    user: str
    command: str
    holder: Optional[GpuHolder]


def find_owner(pid: int, uuid: str, holders: Iterable[GpuHolder], proc: str = "/proc") -> ProcessOwner:
    """Return the owner of a process on the GPU `uuid`. User and command are "?" if the process has ended.

    A process may have a mark: signed environment variables with the name of an attempt. The process counts as
    part of that attempt only if the attempt has the GPU, because any user could copy a mark into another
    process.
    """
    by_pid: dict[Optional[int], GpuHolder] = {
        each.supervisor: each for each in holders if each.supervisor is not None
    }
    by_pid.update((each.pid, each) for each in holders)
    holder = _holder(pid, by_pid, proc) or _marked_holder(pid, uuid, by_pid.values())
    return ProcessOwner(_user(pid, proc), _command(pid, proc), holder)


def _holder(pid: int, by_pid: dict[Optional[int], GpuHolder], proc: str) -> Optional[GpuHolder]:
    for _ in range(_MAX_GENERATIONS):
        if pid in by_pid:
            return by_pid[pid]
        try:
            with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return None
        pid = int(text[text.rindex(")") + 2 :].split()[1])
        if pid <= 1:
            return None
    return None


def _marked_holder(pid: int, uuid: str, holders: Iterable[GpuHolder]) -> Optional[GpuHolder]:
    marked = [each for each in holders if each.spool and any(hold.uuid == uuid for hold in each.gpus)]
    if not marked:
        return None
    try:
        process = MarkedProcess(pid)
        for each in marked:
            key = format_key((each.job, each.attempt))
            if process.attempt(each.spool) == key and process.proves(each.mark_key, key):
                return each
    except OSError:
        pass  # The process has ended, so its attempt stays unknown.
    return None


def _user(pid: int, proc: str) -> str:
    try:
        return _name(os.stat(f"{proc}/{pid}").st_uid)
    except OSError:
        return "?"


@lru_cache(maxsize=256)
def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command(pid: int, proc: str) -> str:
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            words = file.read(400)
    except OSError:
        return "?"
    return words.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120] or "?"
