"""The control groups of one attempt: what it may use at most, who belongs to it, and the end of all of them.

Read by the nursery: imports only what is cheap. What goes where was looked up by the agent (cgroups.py).
"""

from __future__ import annotations

import os

Part = tuple[str, str, list[tuple[str, str]]]
"""The group's folder, the `cgroup.procs` by which a supervisor leaves it, and what is written into it."""


class Group:
    """Nothing, where the host gives us no control groups."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts

    def make(self) -> None:
        """Make it, limits included; raises OSError."""
        for folder, _, settings in self._parts:
            os.makedirs(folder, exist_ok=True)  # the agent's own may have been tidied away by somebody
            for name, value in settings:
                _write(f"{folder}/{name}", value)

    def enter(self) -> None:
        """What this process forks from now on belongs to it; raises OSError."""
        for folder, _, _ in self._parts:
            _write(f"{folder}/cgroup.procs", "0")

    def leave(self) -> None:
        """What this process forks from now on does not: a limit must not end the supervisor."""
        for _, home, _ in self._parts:
            try:
                _write(home, "0")
            except OSError:
                continue

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
                _write(f"{folder}/cgroup.kill", "1")
            except OSError:
                continue

    def remove(self) -> bool:
        """Remove it; False while somebody is in it, of which the kernel is the judge."""
        gone = True
        for folder, _, _ in self._parts:
            for below, _, _ in os.walk(folder, topdown=False):
                try:
                    os.rmdir(below)
                except FileNotFoundError:
                    continue
                except OSError:
                    gone = False
        return gone

    def overran(self) -> bool:
        """Did the kernel end somebody in it for want of memory?"""
        for folder, _, _ in self._parts:
            for name in ("memory.events", "memory.oom_control"):
                for line in _read(f"{folder}/{name}").splitlines():
                    if line.startswith("oom_kill ") and line.split()[1] != "0":
                        return True
        return False


def _write(path: str, text: str) -> None:
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
