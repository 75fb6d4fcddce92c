"""The agent's hold on its nursery: start it, hand it launches without ever blocking, notice its end."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

from agent.launch import Launch

_CODE = "import sys; sys.path.append(sys.argv[1]); from agent.nursery import main; main(*sys.argv[2:])"
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""For jobs; the agent itself takes more."""
HOME = str(Path(__file__).absolute().parent.parent)
"""The folder, or the zip file, that holds the package `agent`."""


class Cradle:
    """One nursery process and the socket to it."""

    def __init__(self, hints: Path, complaints: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs, open(complaints, "ab", opener=_private) as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _CODE, HOME, str(hints), str(OPEN_FILES)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd="/",
                env={"LANG": "C.UTF-8", "LD_BIND_NOW": "1", "CORRAL_SPOOL": str(hints.parent)},
                start_new_session=True,
            )
        ours.setblocking(False)
        self._socket = ours
        self._waiting = bytearray()

    def fileno(self) -> int:
        """For selecting: readable means that the nursery is gone."""
        return self._socket.fileno()

    @property
    def waiting(self) -> bool:
        """Is there more to hand over than the socket would take?"""
        return bool(self._waiting)

    def hand_over(self, launch: Launch) -> None:
        """Queue a launch for the next flush."""
        self._waiting += launch.pack()

    def flush(self) -> None:
        """Write what can be written; a nursery that is gone is noticed elsewhere."""
        try:
            while self._waiting:
                del self._waiting[: self._socket.send(self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self._waiting.clear()

    def bury(self) -> None:
        """After its end: collect it."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
