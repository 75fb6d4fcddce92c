"""The processes of one system: those with its directory in arguments, environment or working directory."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A running process. Its start time `born` distinguishes it from a later process with the same pid."""

    pid: int
    born: int
    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.pid}: {' '.join(self.words)[:200]}"

    @property
    def alive(self) -> bool:
        """Whether the same process is still alive."""
        return _born(self.pid) == self.born

    def send(self, number: int) -> None:
        """Signal this process, and never a later one with the same pid."""
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                if self.alive:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send(signal.SIGKILL)


def of(place: Path) -> list[Process]:
    """All living processes of the system in this directory."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):  # the process has just ended
                found += _look(int(name), os.fsencode(place))
    return found


def process(pid: int) -> Process:
    """The process with this pid; raises OSError if there is none."""
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
    arguments = tuple(word.decode("utf-8", "replace") for word in words.split(b"\0")[:-1])
    return [Process(pid, born, _kind(pid, arguments), arguments)]


def _kind(pid: int, words: tuple[str, ...]) -> str:
    if "--spool" in words:
        return "agent"
    if any("agent.supervisor.fork_server" in word for word in words):
        # The fork server reads from the agent; the supervisors that it forks do not.
        return "nursery" if os.readlink(f"/proc/{pid}/fd/0").startswith("socket:") else "supervisor"
    return "job"


def _born(pid: int) -> int | None:
    """The start time in ticks since boot; None if the process has ended, also as a zombie."""
    try:
        state, *fields = _read(pid, "stat").rpartition(b") ")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(fields[18])


def _read(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()
