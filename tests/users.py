"""Users made for one test, and their processes."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.limits import PATIENCE_S


def _why_not() -> str:
    """Return why tests cannot run processes as other users here; empty if they can."""
    if os.geteuid() != 0:
        return "only root can switch users"
    return "" if os.stat("/").st_mode & 0o001 else "other users may not enter the root directory"


WHY_NOT = _why_not()
as_other_users = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
"""For tests that run processes as other users."""


def processes(uid: int) -> list[int]:
    """Everything that runs as this user."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == uid:
                found.append(int(folder.name))
    return found


def remove(name: str, uid: int) -> None:
    """Kill all processes of the user, then remove the user."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes(uid)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    subprocess.run(["userdel", "--force", name], check=True, capture_output=True)


def make(name: str) -> int:
    """Make a user without password and home. Returns the uid."""
    subprocess.run(["useradd", "-M", "-p", "*", "-s", "/bin/sh", name], check=True, capture_output=True)
    return pwd.getpwnam(name).pw_uid


@contextmanager
def made(*words: str) -> Iterator[list[pwd.struct_passwd]]:
    """Users for one test, removed afterwards with their processes. Skips if users cannot be made."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    missing = [program for program in ("useradd", "userdel") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    names = [f"corral-{word}-{os.getpid()}" for word in words]
    uids: dict[str, int] = {}
    try:
        for name in names:
            uids[name] = make(name)
        yield [pwd.getpwnam(name) for name in names]
    finally:
        for name, uid in uids.items():
            remove(name, uid)
