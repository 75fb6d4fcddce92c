"""Users that a test has made for itself, and whatever runs as them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 20.0


def processes(uid: int) -> list[int]:
    """Everything that runs as this user."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == uid:
                found.append(int(folder.name))
    return found


def remove(name: str, uid: int) -> None:
    """The user goes, and before that all that runs as it."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes(uid)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    subprocess.run(["userdel", "--force", name], check=True, capture_output=True)
