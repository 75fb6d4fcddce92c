"""The control groups of one attempt: what it may use at most, who belongs to it, and the end of all of them.

Read by the nursery: imports only what is cheap. What goes where was looked up by the agent (cgroups.py).

Moving a process makes every fork on the host wait until the kernel has heard from all cores, 8 ms and more.
Two ways do not: v1 groups take single threads, which may leave again; in a v2 group a process can be born.
"""

from __future__ import annotations

import os
import signal

from agent import birth

Part = tuple[str, str, list[tuple[str, str]]]
"""The group's folder, the folder of the group that a supervisor goes back to, and what is written into it."""


class Group:
    """Nothing, where the host gives us no control groups."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts

    def make(self) -> None:
        """Make it, limits included; raises OSError."""
        for folder, _, settings in self._parts:
            _make(folder)
            for name, value in settings:
                put(f"{folder}/{name}", value)

    def enter(self) -> None:
        """This process, of one thread, belongs to it from now on, as does what it starts; raises OSError."""
        for folder, _, _ in self._parts:
            _move_to(folder)

    def leave(self) -> None:
        """Out again: a limit must not end the supervisor."""
        for _, home, _ in self._parts:
            try:
                _move_to(home)
            except OSError:
                continue

    def fork(self) -> int:
        """As os.fork(), with the child in it and this process outside; raises OSError."""
        if self.is_whole:
            try:
                return birth.fork_into(self._parts[0][0])
            except OSError:
                pass  # a kernel before 5.7, or one that was told to refuse
        pid = -1
        try:
            self.enter()
            pid = os.fork()
            return pid
        finally:
            if pid != 0:
                self.leave()

    @property
    def is_whole(self) -> bool:
        """Is it one of v2, slow to be entered and left?"""
        return any(not _takes_threads(folder) for folder, _, _ in self._parts)

    def members(self) -> list[int]:
        """Everybody in it, and in the groups they made below."""
        found: set[int] = set()
        for folder, _, _ in self._parts:
            for below, _, _ in os.walk(folder):
                found.update(map(int, _read(f"{below}/cgroup.procs").split()))
        return sorted(found)

    def kill(self) -> None:
        """End everybody at once, where the kernel can."""
        for folder, _, _ in self._parts:
            try:
                if os.path.exists(f"{folder}/freezer.state"):
                    self._freeze_and_kill(folder)
                else:
                    put(f"{folder}/cgroup.kill", "1")
            except OSError:
                continue

    def _freeze_and_kill(self, folder: str) -> None:
        """Who is frozen forks no more; who was missed is met by the next call."""
        put(f"{folder}/freezer.state", "FROZEN")
        try:
            for pid in self.members():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        finally:
            put(f"{folder}/freezer.state", "THAWED")

    def remove(self) -> bool:
        """Remove it; False while somebody is in it, of which the kernel is the judge."""
        left = [folder for folder, _, _ in self._parts if not _remove(folder)]
        return not left

    def overran(self) -> bool:
        """Did the kernel end somebody in it for want of memory?"""
        for folder, _, _ in self._parts:
            for name in ("memory.events", "memory.oom_control"):
                for line in _read(f"{folder}/{name}").splitlines():
                    if line.startswith("oom_kill ") and line.split()[1] != "0":
                        return True
        return False


def _make(folder: str) -> None:
    try:
        os.mkdir(folder)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)  # the agent's own was tidied away by somebody


def _remove(folder: str) -> bool:
    """Rarely does a job make groups below its own, so that is looked at last."""
    try:
        os.rmdir(folder)
        return True
    except FileNotFoundError:
        return True
    except OSError:
        pass
    gone = True
    for below, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(below)
        except FileNotFoundError:
            continue
        except OSError:
            gone = False
    return gone


def _takes_threads(folder: str) -> bool:
    return os.path.exists(f"{folder}/tasks")


def _move_to(folder: str) -> None:
    put(f"{folder}/{'tasks' if _takes_threads(folder) else 'cgroup.procs'}", "0")


def put(path: str, text: str) -> None:
    """Write a setting; raises OSError where the kernel has no such."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # never made: what is not there, the kernel lacks
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""
