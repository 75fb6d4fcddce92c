"""Who holds GPUs at the moment, and whose a process is."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from functools import lru_cache
from typing import Callable, Iterable, Optional

from wire.frames import GpuHold

_DEEP = 64
"""Generations between a process and its supervisor; more are a loop made by recycled pids."""


@dataclass(frozen=True)
class Holder:
    """An attempt that runs and holds GPUs; `supervisor` is above all of its processes."""

    job: int
    attempt: int
    user: str
    command: str
    pid: int
    supervisor: Optional[int]
    gpus: tuple[GpuHold, ...]


Holders = Callable[[], list[Holder]]


def loads(holders: Iterable[Holder]) -> dict[str, int]:
    """Which GPUs are held, and how many thousandths of each."""
    found: dict[str, int] = {}
    for holder in holders:
        for hold in holder.gpus:
            found[hold.uuid] = found.get(hold.uuid, 0) + hold.milli
    return found


@dataclass(frozen=True)
class Owner:
    """Whose a process is, and what it runs; `holder` is the attempt it belongs to."""

    user: str
    command: str
    holder: Optional[Holder]


def owner_of(pid: int, holders: Iterable[Holder], proc: str = "/proc") -> Owner:
    """Look at a process; one that has ended meanwhile is nobody's."""
    above: dict[Optional[int], Holder] = {
        each.supervisor: each for each in holders if each.supervisor is not None
    }
    above.update((each.pid, each) for each in holders)
    return Owner(_user(pid, proc), _command(pid, proc), _holder(pid, above, proc))


def _holder(pid: int, above: dict[Optional[int], Holder], proc: str) -> Optional[Holder]:
    for _ in range(_DEEP):
        if pid in above:
            return above[pid]
        try:
            with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return None
        pid = int(text[text.rindex(")") + 2 :].split()[1])
        if pid <= 1:
            return None
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
    """The first words of its command line, as anybody on the host can see them."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            words = file.read(400)
    except OSError:
        return "?"
    return words.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120] or "?"
