"""What jobs that run have saved so far: looked at now and then, told when it has stopped changing.

A look is a process of its own that has become the job's user and holds nothing of the agent's: a file system
that does not answer keeps that one process, and nobody else.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import partial
from typing import Callable, Iterable, Optional

from agent import checkpoints, job
from agent.checkpoints import Saved
from agent.launch import Launch
from agent.loop import Loop
from agent.spool import Key
from wire.frames import Checkpoint

Prepare = Callable[[Key], Optional[Launch]]
"""A launch that says where an attempt saves, and as whom; None if it does not, or does not run."""


@dataclass
class _Look:
    """One look that has not answered yet."""

    pid: int
    answer: int


class Saves:
    """Looks at all of them every so often; `tell` hears of each that two looks have found the same."""

    def __init__(
        self,
        loop: Loop,
        every_s: float,
        running: Callable[[], Iterable[Key]],
        prepare: Prepare,
        tell: Callable[[Key, Checkpoint], None],
    ) -> None:
        self._loop = loop
        self._every_s = every_s
        self._running = running
        self._prepare = prepare
        self._tell = tell
        self._looks: dict[Key, _Look] = {}
        self._seen: dict[Key, Saved] = {}
        self._told: dict[Key, Saved] = {}

    def watch(self) -> None:
        """From now on."""
        self._loop.after(self._every_s, self._round)

    def _round(self) -> None:
        running = set(self._running())
        for key in [key for key in (*self._looks, *self._seen, *self._told) if key not in running]:
            self._forget(key)
        for key in running - self._looks.keys():
            launch = self._prepare(key)
            if launch is not None and launch.checkpoint_dir:
                self._begin(key, launch)
        self._loop.after(self._every_s, self._round)

    def _begin(self, key: Key, launch: Launch) -> None:
        answer, tell = os.pipe()
        try:
            pid = os.fork()
        except OSError:  # too many processes: another time
            os.close(answer)
            os.close(tell)
            return
        if pid == 0:
            _look(launch, tell)
        os.close(tell)
        self._looks[key] = _Look(pid, answer)
        self._loop.read(answer, partial(self._hear, key))

    def _hear(self, key: Key) -> None:
        """Its one line, or its end."""
        look = self._looks[key]
        told = os.read(look.answer, 4_096).decode("utf-8", "replace")
        self._end(key)
        if not told:
            return
        at, size, path = told.split(" ", 2)
        found = float(at), int(size), path
        before, self._seen[key] = self._seen.get(key), found
        # One that still grows may be half of one.
        if found == before and found != self._told.get(key):
            self._told[key] = found
            self._tell(key, Checkpoint(path, int(size), float(at)))

    def _end(self, key: Key) -> None:
        look = self._looks.pop(key, None)
        if look is not None:
            self._loop.read(look.answer, None)
            os.close(look.answer)
            os.kill(look.pid, signal.SIGKILL)
            os.waitpid(look.pid, os.WNOHANG)

    def _forget(self, key: Key) -> None:
        self._end(key)
        self._seen.pop(key, None)
        self._told.pop(key, None)


def _look(launch: Launch, tell: int) -> None:
    """In the child: the newest checkpoint, in a line."""
    try:
        for name in os.listdir("/proc/self/fd"):
            if int(name) != tell:
                try:
                    os.close(int(name))
                except OSError:
                    continue  # the one that listed them
        job.change_user(launch)
        found = max(checkpoints.everything(launch.checkpoint_dir), default=None)
        if found is not None:
            at, size, path = found
            os.write(tell, f"{at:.6f} {size} {path}".encode())
    finally:
        os._exit(0)
