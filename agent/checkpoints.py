"""What a job has saved: the newest thing in its checkpoint directory, looked at as its own user.

Names that begin with a dot are not looked at, so a job can write under one and rename when it is done.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import time

from agent import job
from agent.launch import Launch

PATIENCE_S = 30.0
"""A file system that does not answer must not keep an attempt from ending."""
MOST_BYTES = 1_000
"""Longer paths would not fit in the room of a record, and are passed over."""
_MOST_ENTRIES = 100_000
_SLACK_S = 0.05
"""The kernel stamps files with a coarse clock, which is a little behind."""

Saved = tuple[float, int, str]


def look(launch: Launch, trusted_until: float | None) -> Saved | None:
    """The newest checkpoint as (time, size, path); what changed after `trusted_until` may be half of one.

    Deletes all but the newest `checkpoint_keep`, if that is wanted.
    """
    answer, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        _answer(launch, trusted_until, tell)
    os.close(tell)
    told, more, deadline = b"", b"?", time.monotonic() + PATIENCE_S
    while more and select.select((answer,), (), (), max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(answer, 4_096)
        told += more
    os.close(answer)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, os.WNOHANG if more else 0)  # more to come: it hangs in a file system, and is left there
    if not told:
        return None
    at, size, path = told.decode("utf-8").split(" ", 2)
    return float(at), int(size), path


def _answer(launch: Launch, trusted_until: float | None, tell: int) -> None:
    try:
        job.change_user(launch)
        found = sorted(everything(launch.checkpoint_dir), reverse=True)
        good = [each for each in found if trusted_until is None or each[0] < trusted_until - _SLACK_S]
        if good:
            at, size, path = good[0]
            os.write(tell, f"{at:.6f} {size} {path}".encode())
        if launch.checkpoint_keep:
            for _, _, path in good[launch.checkpoint_keep :]:
                _remove(path)
    except OSError as error:
        job.complain(launch.place, f"checkpoints cannot be looked at: {error}")
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def everything(folder: str) -> list[Saved]:
    """All that lies in a checkpoint directory."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            told = entry.path.encode("utf-8", "replace")
            fits = len(told) <= MOST_BYTES and told.decode() == entry.path and entry.path.isprintable()
            if fits and not entry.name.startswith(".") and not entry.is_symlink():
                found.append((*_measure(entry), entry.path))
    return found


def _measure(entry: os.DirEntry[str]) -> tuple[float, int]:
    """When it was last changed, and its size with all that is in it."""
    seen = entry.stat(follow_symlinks=False)
    at, size, waiting, count = seen.st_mtime, seen.st_size, [], 0
    if stat.S_ISDIR(seen.st_mode):
        size, waiting = 0, [entry.path]
    while waiting and count < _MOST_ENTRIES:
        with os.scandir(waiting.pop()) as entries:
            for each in entries:
                count += 1
                seen = each.stat(follow_symlinks=False)
                at = max(at, seen.st_mtime)
                if stat.S_ISDIR(seen.st_mode):
                    waiting.append(each.path)
                else:
                    size += seen.st_size
    return at, size


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        with os.scandir(path) as entries:
            below = [entry.path for entry in entries]
        for each in below:
            _remove(each)
        os.rmdir(path)
    else:
        os.unlink(path)
