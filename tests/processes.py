"""The processes of one system: whatever has its directory in its words, environment or working directory."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A living process; `born` tells it from a later one with the same number."""

    pid: int
    born: int
    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.pid}: {' '.join(self.words)[:200]}"

    @property
    def alive(self) -> bool:
        """Is it still there, and still itself?"""
        return _born(self.pid) == self.born

    def send(self, number: int) -> None:
        """Signal this process and never another one that has its number by now."""
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                if self.alive:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def kill(self) -> None:
        """End it without a word."""
        self.send(signal.SIGKILL)


def of(place: Path) -> list[Process]:
    """All that is alive and belongs to the system in this directory."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):  # ended while we looked
                found += _look(int(name), os.fsencode(place))
    return found


def process(pid: int) -> Process:
    """The process that has this number now; raises OSError if there is none."""
    found = _look(pid, b"")
    if not found:
        raise ProcessLookupError(pid)
    return found[0]


def _look(pid: int, mark: bytes) -> list[Process]:
    born = _born(pid)
    words, folder = _read(pid, "cmdline"), os.fsencode(os.readlink(f"/proc/{pid}/cwd"))
    named = mark in words or mark in _read(pid, "environ") or mark in folder
    if born is None or not named:
        return []
    told = tuple(word.decode("utf-8", "replace") for word in words.split(b"\0")[:-1])
    return [Process(pid, born, _kind(pid, told), told)]


def _kind(pid: int, words: tuple[str, ...]) -> str:
    if "--spool" in words:
        return "agent"
    if any("agent.supervisor.fork_server" in word for word in words):
        # The nursery listens to the agent; the supervisors that it forks do not.
        return "nursery" if os.readlink(f"/proc/{pid}/fd/0").startswith("socket:") else "supervisor"
    return "job"


def _born(pid: int) -> int | None:
    """In ticks since boot; None for what has ended, collected or not."""
    try:
        state, *fields = _read(pid, "stat").rpartition(b") ")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(fields[18])


def _read(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()
