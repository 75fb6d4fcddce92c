"""Watches the checkpoint directories of running jobs. A checkpoint is reported as soon as two scans find the
checkpoint unchanged.

1. Every `every_s` seconds, start one child process for each job. The child scans the checkpoint directory of
   the job. The child runs as the job's user and without the agent's descriptors, so that a hanging file
   system blocks only the child.
2. If two consecutive scans find a checkpoint unchanged, the checkpoint is complete: report the checkpoint
   once.
3. After its answer, the child deletes surplus old checkpoints. Start the next scan of a job only when the
   child of the last scan has exited.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Callable, Iterable, Optional

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.attempts.spool import AttemptKey
from agent.checkpoints import directory
from agent.checkpoints.directory import FoundCheckpoint
from agent.event_loop import EventLoop
from agent.processes.child_pipe import fork_with_pipe
from agent.processes.job_user import become_user
from agent.supervisor import task_process
from wire.agent.reports import Checkpoint
from wire.dataclass import dataclass

CheckpointSpec = Callable[[AttemptKey], Optional[LaunchSpec]]
"""Returns a launch spec with the user and the checkpoint directory of an attempt; None if the attempt
writes no checkpoints or does not run.
"""


@dataclass
class _Scan:
    """A running scan: the pid of its child process, and the pipe from which the agent reads the result."""

    pid: int
    answer: int


class CheckpointWatcher:
    """Scans the checkpoint directories of the attempts that `running` returns. Calls `report` whenever the
    newest checkpoint of an attempt is complete and was not reported before.
    """

    def __init__(
        self,
        loop: EventLoop,
        every_s: float,
        running: Callable[[], Iterable[AttemptKey]],
        spec_of: CheckpointSpec,
        report: Callable[[AttemptKey, Checkpoint], None],
    ) -> None:
        self._loop = loop
        self._every_s = every_s
        self._running = running
        self._spec_of = spec_of
        self._report = report
        self._scans: dict[AttemptKey, _Scan] = {}
        self._exiting: list[int] = []
        self._seen: dict[AttemptKey, FoundCheckpoint] = {}
        self._reported: dict[AttemptKey, FoundCheckpoint] = {}

    def start(self) -> None:
        self._loop.call_later(self._every_s, self._round)

    def _round(self) -> None:
        self._reap()
        running = set(self._running())
        for key in [key for key in (*self._scans, *self._seen, *self._reported) if key not in running]:
            self._forget(key)
        for key in running - self._scans.keys():
            launch = self._spec_of(key)
            if launch is not None and launch.checkpoint_dir:
                self._start_scan(key, launch)
        self._loop.call_later(self._every_s, self._round)

    def _start_scan(self, key: AttemptKey, launch: LaunchSpec) -> None:
        try:
            pid, answer = fork_with_pipe(partial(_scan, launch, self._reported.get(key)))
        except OSError:
            return  # Try again in the next round of scans, because the host has too many processes now.
        self._scans[key] = _Scan(pid, answer)
        self._loop.on_readable(answer, partial(self._read_answer, key))

    def _read_answer(self, key: AttemptKey) -> None:
        """Read the result of a scan: one line for the newest checkpoint, or nothing if there is no
        checkpoint. The pipe is closed when the child exits.
        """
        scan = self._scans[key]
        text = os.read(scan.answer, 4_096).decode("utf-8", "replace")
        if not text:
            self._end_scan(key)
            return
        at, size, path = text.split(" ", 2)
        found = float(at), int(size), path
        before, self._seen[key] = self._seen.get(key), found
        # Report a checkpoint only if the previous scan found the same time and size, because a checkpoint
        # that still changes may be incomplete.
        if found == before and found != self._reported.get(key):
            self._reported[key] = found
            self._report(key, Checkpoint(path, int(size), float(at)))

    def _end_scan(self, key: AttemptKey) -> None:
        scan = self._scans.pop(key, None)
        if scan is not None:
            self._loop.on_readable(scan.answer, None)
            os.close(scan.answer)
            os.kill(scan.pid, signal.SIGKILL)
            self._exiting.append(scan.pid)
            self._reap()

    def _reap(self) -> None:
        """Reap the children that have exited. Do not wait for the others, because a child that reads a
        hanging file system never exits.
        """
        self._exiting = [pid for pid in self._exiting if not os.waitpid(pid, os.WNOHANG)[0]]

    def _forget(self, key: AttemptKey) -> None:
        self._end_scan(key)
        self._seen.pop(key, None)
        self._reported.pop(key, None)


def _scan(launch: LaunchSpec, reported: Optional[FoundCheckpoint], sink: int) -> None:
    """Write the newest checkpoint as one line to the pipe `sink`, delete surplus old checkpoints, and exit.
    Checkpoints newer than `reported`, the last reported checkpoint, are not deleted, because they may be
    incomplete. This function runs in the child process of the scan.
    """
    try:
        task_process.close_descriptors(sink)
        become_user(launch)
        found = sorted(directory.list_checkpoints(launch.checkpoint_dir), reverse=True)
        if found:
            at, size, path = found[0]
            os.write(sink, f"{at:.6f} {size} {path}".encode())
        if reported is not None:
            # Allow a difference of 10 microseconds, because reports round the time of a checkpoint to
            # microseconds.
            complete = [each for each in found if each[0] <= reported[0] + 1e-5]
            directory.delete_surplus(launch, complete)
    finally:
        os._exit(0)
