"""The cgroups of one attempt: creation with limits, start of processes in them, kill and removal.

Imported by the fork server: only cheap imports. Paths and settings come from cgroup_detection.py.

Moving a process into a cgroup makes every fork on the host wait for all cores, 8 ms and more. Two ways do
not: v1 cgroups take single threads, which may leave again; a process can be started in a v2 cgroup by clone3.
"""

from __future__ import annotations

import os
import signal

from agent.supervisor import clone_into_cgroup

CgroupSpec = tuple[str, str, list[tuple[str, str]]]
"""The cgroup's directory, the directory of the supervisor's own cgroup, and the settings to write."""


class AttemptCgroup:
    """The cgroups of an attempt, one per v1 controller or one of v2; none if the host offers none."""

    def __init__(self, parts: list[CgroupSpec]) -> None:
        self._parts = parts

    def make(self) -> None:
        """Create them and write their limits; raises OSError."""
        for directory, _, settings in self._parts:
            _make(directory)
            for name, value in settings:
                write_setting(f"{directory}/{name}", value)

    def enter(self) -> None:
        """Move this process, which has one thread, into them; raises OSError. Children start there."""
        for directory, _, _ in self._parts:
            _move_to(directory)

    def leave(self) -> None:
        """Move this process back to its own cgroup, because the job's limits must not end the supervisor."""
        for _, own_directory, _ in self._parts:
            try:
                _move_to(own_directory)
            except OSError:
                continue

    def fork(self) -> int:
        """As os.fork(), with the child in the cgroups and this process outside; raises OSError."""
        if self.is_v2:
            try:
                return clone_into_cgroup.fork_into(self._parts[0][0])
            except OSError:
                pass  # because the kernel is older than 5.7, or seccomp forbids clone3
        pid = -1
        try:
            self.enter()
            pid = os.fork()
            return pid
        finally:
            if pid != 0:
                self.leave()

    @property
    def is_v2(self) -> bool:
        """Whether it is a v2 cgroup, which is slow to enter and to leave."""
        return any(not _takes_threads(directory) for directory, _, _ in self._parts)

    def members(self) -> list[int]:
        """The pids in them, and in the cgroups that the job created below."""
        found: set[int] = set()
        for directory, _, _ in self._parts:
            for below, _, _ in os.walk(directory):
                found.update(map(int, _read(f"{below}/cgroup.procs").split()))
        return sorted(found)

    def kill(self) -> None:
        """Kill all processes in them at once, where the kernel can."""
        for directory, _, _ in self._parts:
            try:
                if os.path.exists(f"{directory}/freezer.state"):
                    self._freeze_and_kill(directory)
                else:
                    write_setting(f"{directory}/cgroup.kill", "1")
            except OSError:
                continue

    def _freeze_and_kill(self, directory: str) -> None:
        """Kill while frozen, because frozen processes cannot fork. The next call kills what was missed."""
        write_setting(f"{directory}/freezer.state", "FROZEN")
        try:
            for pid in self.members():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        finally:
            write_setting(f"{directory}/freezer.state", "THAWED")

    def remove(self) -> bool:
        """Remove them; False while the kernel refuses because processes are left."""
        left = [directory for directory, _, _ in self._parts if not _remove(directory)]
        return not left

    def has_oom_kill(self) -> bool:
        """Whether the kernel killed one of its processes for lack of memory."""
        for directory, _, _ in self._parts:
            for name in ("memory.events", "memory.oom_control"):
                for line in _read(f"{directory}/{name}").splitlines():
                    if line.startswith("oom_kill ") and line.split()[1] != "0":
                        return True
        return False

    def peak_mib(self) -> int:
        """The most memory that its processes held together; 0 if the kernel does not report it."""
        for directory, _, _ in self._parts:
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                text = _read(f"{directory}/{name}").strip()
                if text.isdigit():
                    return int(text) >> 20
        return 0


def out_of_memory_reason(limit_mib: int, reached_mib: int) -> str:
    """Why the kernel killed an attempt: its limit, the memory it reached, and the flag for more."""
    reached = f", and it reached {reached_mib} MiB" if reached_mib else ""
    if not limit_mib:
        return f"out_of_memory: the host had no memory left{reached}"
    more = max(limit_mib, reached_mib) * 2
    size = f"{-(-more // 1024)}G" if more >= 1024 else f"{more}M"
    return f"out_of_memory: it had {limit_mib} MiB of memory{reached}; ask for more, such as --memory {size}"


def _make(directory: str) -> None:
    try:
        os.mkdir(directory)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)  # because the agent's cgroup was removed meanwhile


def _remove(directory: str) -> bool:
    """Remove a cgroup; whether it is gone. Cgroups below it are removed only if needed, which is rare."""
    try:
        os.rmdir(directory)
        return True
    except FileNotFoundError:
        return True
    except OSError:
        pass
    gone = True
    for below, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(below)
        except FileNotFoundError:
            continue
        except OSError:
            gone = False
    return gone


def _takes_threads(directory: str) -> bool:
    return os.path.exists(f"{directory}/tasks")


def _move_to(directory: str) -> None:
    write_setting(f"{directory}/{'tasks' if _takes_threads(directory) else 'cgroup.procs'}", "0")


def write_setting(path: str, text: str) -> None:
    """Write a cgroup file; raises OSError if the kernel does not have it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
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
