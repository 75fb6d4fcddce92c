"""Finding and signalling every process of an attempt, however it tried to get away.

A supervisor is a subreaper: whatever its job forks, detaches or orphans stays below it, so walking down
from it finds everything, and wait() saying "no children" proves that nothing is left. Only when a supervisor
was killed do its processes have to be found by what they carry: session and environment.
"""

from __future__ import annotations

import ctypes
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # as everywhere in the nursery, `typing` is not worth its memory
    from collections.abc import Callable

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper(name: str) -> None:
    """Orphans below this process become its children; `name` (15 letters of it) is what `ps` shows."""
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


def descendants(root: int) -> list[int]:
    """All processes below `root`, parents first."""
    children = _listed if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _searched()
    found, frontier = [], [root]
    while frontier:
        frontier = [child for parent in frontier for child in children(parent)]
        found += frontier
    return found


def _listed(pid: int) -> list[int]:
    """The children of a process, from the kernel's own list."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    except OSError:
        pass  # it ended while we looked; its children have a new parent, found in the next round
    return found


def _searched() -> Callable[[int], list[int]]:
    """The same where the kernel keeps no such list: everybody is asked for his parent."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                found.setdefault(int(_stat(int(name))[1]), []).append(int(name))
        except OSError:
            continue
    return lambda pid: found.get(pid, [])


def strays(place: str, key: str, leader: int | None, ticks: int | None) -> list[int]:
    """Living processes of an attempt whose supervisor is gone: they carry its mark, or are in its session.

    A child that has not become its program yet still has the name and the mark of its supervisor.
    """
    session = leader if leader is not None and start_ticks(leader) in (None, ticks) else None
    full, early = os.fsencode(mark(place)), os.fsencode(mark(os.path.dirname(os.path.dirname(place))))
    found = []
    for name in os.listdir("/proc"):
        pid = int(name) if name.isdigit() else os.getpid()
        try:
            if pid == os.getpid() or _stat(pid)[0] in "ZX":
                continue
            marks = _read(f"/proc/{pid}/environ").split(b"\0")
            named = (
                early in marks and _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip() == key[:15]
            )
            if full in marks or named or int(_stat(pid)[3]) == session:
                found.append(pid)
        except OSError:
            continue  # ended meanwhile, or not ours to read
    return found


def named(spool: str) -> set[str]:
    """The names of all attempts of a spool of which something lives, whatever the spool says."""
    full, early = os.fsencode(mark(f"{spool}/attempts/")), os.fsencode(mark(spool))
    found = set()
    for name in os.listdir("/proc"):
        try:
            marks = _read(f"/proc/{name}/environ").split(b"\0") if name.isdigit() else []
            if early in marks and int(name) != os.getpid():  # a supervisor bears the name of its attempt
                found.add(_read(f"/proc/{name}/comm").decode("utf-8", "replace").strip())
            found |= {each[len(full) :].decode("utf-8", "replace") for each in marks if each.startswith(full)}
        except OSError:
            continue  # ended meanwhile, or not ours to read
    return found


def mark(place: str) -> str:
    """The variable by which processes are known when nothing else is left to know them by."""
    return f"CORRAL_SPOOL={place}"


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: tells a recycled pid from the real one."""
    try:
        return int(_stat(pid)[19])
    except OSError:
        return None


def _stat(pid: int) -> list[str]:
    """/proc/<pid>/stat from the third field on: state, parent, group, session, …"""
    text = _read(f"/proc/{pid}/stat").decode("utf-8", "replace")
    return text[text.rindex(")") + 2 :].split()


def boot_id() -> str:
    """The kernel's name for this boot."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while True:
            part = os.read(descriptor, 65_536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    except ProcessLookupError:
        return b""
    finally:
        os.close(descriptor)


def listening(pids: list[int], number: int) -> list[int]:
    """Those who have a handler for a signal: it tells them something, and would end all others."""
    found = []
    for pid in pids:
        try:
            lines = _read(f"/proc/{pid}/status").split(b"\n")
        except OSError:
            continue  # ended meanwhile
        caught = next((int(line[7:], 16) for line in lines if line.startswith(b"SigCgt:")), 0)
        if caught >> (number - 1) & 1:
            found.append(pid)
    return found


def send(pids: list[int], number: int) -> None:
    """Signal processes; those that ended meanwhile, or belong to somebody else, are passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
            if number != signal.SIGKILL:
                os.kill(pid, signal.SIGCONT)
        except OSError:
            continue
