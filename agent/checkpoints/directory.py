"""Finds checkpoints in the checkpoint directory of a job, as the user of the job.

Names that begin with a dot are ignored. So a job can write a checkpoint under a name with a dot, and rename
the complete checkpoint.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
import time
from functools import partial

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.processes.child_pipe import fork_with_pipe
from agent.processes.job_user import become_user
from agent.supervisor import task_process

ANSWER_TIMEOUT_S = 30.0
"""A file system that does not answer for this many seconds counts as hanging, and its checkpoints are not
searched any longer.
"""
MAX_PATH_BYTES = 1_000
"""The most bytes in the path of a checkpoint. Checkpoints with longer paths are ignored, because these paths
do not fit into the reserved space of a record.
"""
_MOST_ENTRIES = 100_000
_SLACK_S = 0.05
"""File times may be behind the clock by this many seconds, because the kernel uses a coarse clock for file
times.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FoundCheckpoint = tuple[float, int, str]


def newest_checkpoint(launch: LaunchSpec, trusted_until: float | None) -> FoundCheckpoint | None:
    """Return the newest checkpoint of a job as (unix time, bytes, path); None if there is none.

    A checkpoint that changed after the unix time `trusted_until` may be incomplete and is ignored. If
    `trusted_until` is None, all checkpoints count as complete. Older checkpoints are deleted if there are
    more than the job keeps (`delete_surplus`).
    """
    text = _call_as_user(launch, lambda: _newest(launch, trusted_until))
    if not text:
        return None
    at, size, path = text.decode("utf-8").split(" ", 2)
    return float(at), int(size), path


def checkpoint_to_resume(launch: LaunchSpec, named: str) -> str:
    """Return the path of the checkpoint from which a new attempt resumes; empty if there is none. `named` is
    the checkpoint that was reported to the controller last.

    1. If `named` exists, return `named`.
    2. If `named` does not exist, return the newest checkpoint: an attempt on a lost node may have written a
       later checkpoint and deleted `named`.
    3. If the file system does not answer, return `named` without a check.
    """

    def look() -> str:
        if named and os.path.lexists(named):
            return f"={named}"
        try:
            found = max(list_checkpoints(launch.checkpoint_dir), default=None)
        except FileNotFoundError:
            found = None
        return "=" if found is None else f"={found[2]}"

    text = _call_as_user(launch, look)
    return os.fsdecode(text[1:]) if text else named


def _call_as_user(launch: LaunchSpec, function: Callable[[], str]) -> bytes:
    """Call `function` in a child process that runs as the job's user, and return the text that `function`
    returns. If the child fails or does not answer in time, return an empty text.
    """
    try:
        pid, answer = fork_with_pipe(partial(_call_in_child, launch, function))
    except OSError:
        return b""
    text, more, deadline = b"", b"?", time.monotonic() + ANSWER_TIMEOUT_S
    poll = select.poll()  # select.select() fails for descriptors above 1023.
    poll.register(answer, select.POLLIN)
    while more and poll.poll(max(0.0, deadline - time.monotonic()) * 1_000):
        more = os.read(answer, 4_096)
        text += more
    os.close(answer)
    os.kill(pid, signal.SIGKILL)
    # Do not wait for a child process that has not answered, because a child that reads a hanging file system
    # never ends.
    os.waitpid(pid, os.WNOHANG if more else 0)
    return text


def _call_in_child(launch: LaunchSpec, function: Callable[[], str], sink: int) -> None:
    try:
        become_user(launch)
        os.write(sink, function().encode("utf-8", "surrogateescape"))
    except OSError as error:
        task_process.write_notice(launch.directory, f"the checkpoint directory cannot be read: {error}")
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _newest(launch: LaunchSpec, trusted_until: float | None) -> str:
    """Return the newest complete checkpoint as a line `TIME BYTES PATH`; empty if there is none. Also delete
    older checkpoints if there are more than the job keeps (`delete_surplus`).
    """
    found = sorted(list_checkpoints(launch.checkpoint_dir), reverse=True)
    good = [each for each in found if trusted_until is None or each[0] < trusted_until - _SLACK_S]
    delete_surplus(launch, good)
    return f"{good[0][0]:.6f} {good[0][1]} {good[0][2]}" if good else ""


def delete_surplus(launch: LaunchSpec, complete: list[FoundCheckpoint]) -> None:
    """Delete the oldest checkpoints until the others are at most `checkpoint_keep` checkpoints with at most
    `checkpoint_mib` MiB together. 0 means no limit. `complete` has the complete checkpoints, the newest
    first. The newest one is always kept.
    """
    total = 0
    for number, (_, size, path) in enumerate(complete):
        total += size
        too_many = bool(launch.checkpoint_keep) and number >= launch.checkpoint_keep
        if number and (too_many or (launch.checkpoint_mib and total > launch.checkpoint_mib << 20)):
            _remove(path)


def list_checkpoints(folder: str) -> list[FoundCheckpoint]:
    """Return all checkpoints in a directory, unordered. Symbolic links, names that begin with a dot, and
    paths that are too long or not printable are left out. Raise OSError if the directory cannot be read.
    """
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            text = entry.path.encode("utf-8", "replace")
            fits = len(text) <= MAX_PATH_BYTES and text.decode() == entry.path and entry.path.isprintable()
            if fits and not entry.name.startswith(".") and not entry.is_symlink():
                found.append((*_measure(entry), entry.path))
    return found


def _measure(entry: os.DirEntry[str]) -> tuple[float, int]:
    """Return the unix time of the last change and the size in bytes of a file, or of all files in a directory
    together. In a directory, only about _MOST_ENTRIES entries are examined.
    """
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
