"""The cgroups of one attempt: creates the cgroups with limits, starts processes in them, kills these
processes, and removes the cgroups.

The fork server must stay small and imports this module, so this module imports only small modules. Paths and
settings come from cgroup_limits.py.

Moving a whole process into a cgroup delays every fork on the host by 8 ms or more. Two methods avoid this
delay: with v1, a single thread can enter and leave cgroups; with v2, clone3 can start a process in a cgroup.
"""

from __future__ import annotations

import os
import signal

from agent.isolation import clone_into_cgroup

CgroupSpec = tuple[str, str, list[tuple[str, str]]]
"""A cgroup to create: its directory, the directory of the supervisor's own cgroup, and settings as (file,
value).
"""


class AttemptCgroup:
    """The cgroups of one attempt. With cgroup v2 this is one cgroup, with cgroup v1 one cgroup for each
    cgroup controller (such as memory), and on a host without cgroups none.
    """

    def __init__(self, parts: list[CgroupSpec]) -> None:
        self._parts = parts

    def make(self) -> None:
        """Create the cgroups and write their limits. Raise OSError if the kernel refuses."""
        for directory, _, settings in self._parts:
            _make(directory)
            for name, value in settings:
                write_setting(f"{directory}/{name}", value)

    def enter(self) -> None:
        """Move this process into the attempt's cgroups, so that its next children start there. The process
        must have only one thread. Raise OSError if the kernel refuses.
        """
        for directory, _, _ in self._parts:
            _move_to(directory)

    def leave(self) -> None:
        """Move this process back to its own cgroup, because the supervisor must not run under the job's
        limits.
        """
        for _, own_directory, _ in self._parts:
            try:
                _move_to(own_directory)
            except OSError:
                continue

    def fork(self) -> int:
        """Fork a child that starts in the attempt's cgroups. Return the pid of the child; in the child,
        return 0. Raise OSError if the kernel refuses.
        """
        if self.is_v2:
            try:
                return clone_into_cgroup.fork_into(self._parts[0][0])
            except OSError:
                # The kernel lacks the system call clone3 (before Linux 5.7), or seccomp forbids this call.
                # Enter the cgroup and fork, which is slower.
                pass
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
        """Return whether one of the cgroups is a v2 cgroup. Callers ask this, because it is slow to move a
        process into or out of a v2 cgroup.
        """
        return any(not _takes_threads(directory) for directory, _, _ in self._parts)

    def members(self) -> list[int]:
        """Return the pids of all processes in the cgroups. Processes in child cgroups, which the job may have
        created, are included.
        """
        found: set[int] = set()
        for directory, _, _ in self._parts:
            for below, _, _ in os.walk(directory):
                found.update(map(int, _read(f"{below}/cgroup.procs").split()))
        return sorted(found)

    def kill(self) -> None:
        """Kill all processes in the cgroups, with cgroup.kill in a v2 cgroup or with the freezer in v1. Do
        nothing in a cgroup that has neither.
        """
        for directory, _, _ in self._parts:
            try:
                if os.path.exists(f"{directory}/freezer.state"):
                    self._freeze_and_kill(directory)
                else:
                    write_setting(f"{directory}/cgroup.kill", "1")
            except OSError:
                continue

    def _freeze_and_kill(self, directory: str) -> None:
        """Freeze the processes of a v1 cgroup, then kill them one after the other: a frozen process cannot
        fork. If a process survives, the next call kills it.
        """
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
        """Remove the cgroups. Return False if the kernel refuses, because the cgroups still have
        processes.
        """
        left = [directory for directory, _, _ in self._parts if not _remove(directory)]
        return not left

    def has_oom_kill(self) -> bool:
        for directory, _, _ in self._parts:
            for name in ("memory.events", "memory.oom_control"):
                for line in _read(f"{directory}/{name}").splitlines():
                    if line.startswith("oom_kill ") and line.split()[1] != "0":
                        return True
        return False

    def cpu_s(self) -> float | None:
        """Return the CPU time, in seconds, of all running and ended processes of the attempt; None if no
        cgroup counts CPU time.
        """
        for directory, _, _ in self._parts:
            if _read(f"{directory}/cpuacct.usage"):
                return int(_read(f"{directory}/cpuacct.usage")) / 1e9
            micros = _value(f"{directory}/cpu.stat", "usage_usec")
            if micros is not None:
                return micros / 1e6
        return None

    def memory_mib(self) -> int | None:
        """Return the memory of all processes of the attempt in MiB, without cached files that the kernel can
        drop; None if no cgroup counts memory.
        """
        for directory, _, _ in self._parts:
            for name, cached in (
                ("memory.current", "inactive_file"),
                ("memory.usage_in_bytes", "total_inactive_file"),
            ):
                text = _read(f"{directory}/{name}").strip()
                if text.isdigit():
                    droppable = _value(f"{directory}/memory.stat", cached) or 0
                    return max(0, int(text) - droppable) >> 20
        return None

    def peak_mib(self) -> int:
        """Return the peak memory of all processes of the attempt together, in MiB; 0 if the kernel does not
        report a peak.
        """
        for directory, _, _ in self._parts:
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                text = _read(f"{directory}/{name}").strip()
                if text.isdigit():
                    return int(text) >> 20
        return 0


def out_of_memory_reason(limit_mib: int, reached_mib: int) -> str:
    """Return a sentence for users which says that the kernel killed the attempt for lack of memory. It names
    the peak `reached_mib`, unless this is 0, and the memory limit `limit_mib` with the option that requests
    more memory, unless this is 0.
    """
    reached = f" (its peak was {reached_mib} MiB)" if reached_mib else ""
    if not limit_mib:
        return f"out_of_memory: the host had no memory left for the job{reached}"
    more = max(limit_mib, reached_mib) * 2
    size = f"{-(-more // 1024)}G" if more >= 1024 else f"{more}M"
    remedy = f"request more, such as --memory {size}"
    return f"out_of_memory: {limit_mib} MiB of memory were not enough for the job{reached}; {remedy}"


def _make(directory: str) -> None:
    try:
        os.mkdir(directory)
    except FileExistsError:
        pass
    except FileNotFoundError:
        # Create the agent's parent cgroup again, because the cgroup was removed.
        os.makedirs(directory, exist_ok=True)


def _remove(directory: str) -> bool:
    """Remove a cgroup; if the kernel refuses, first remove the cgroups in it. Return whether the cgroup was
    removed.
    """
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
    """Write one setting to a cgroup file. Raise OSError if the kernel does not have the file or refuses the
    value.
    """
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


def _value(path: str, name: str) -> int | None:
    """Return the number after `name` in a file of lines such as `usage_usec 4000`; None if `name`
    is missing.
    """
    for line in _read(path).splitlines():
        word, _, number = line.partition(" ")
        if word == name and number.isdigit():
            return int(number)
    return None
