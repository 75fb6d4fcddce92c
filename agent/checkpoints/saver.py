"""Lets running jobs save checkpoints on request and at intervals, without ending the jobs."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from typing import Callable, Optional

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.attempts.spool import AttemptKey
from agent.event_loop import EventLoop
from agent.interactive.exec_sessions import CannotExec, spawn_in_job
from agent.supervisor.task_process import write_notice
from wire.agent.orders import Signal, Start

_POLL_S = 1.0


class CheckpointSaver:
    """Sends the checkpoint signal of a job, and runs its checkpoint command, without ending the job.

    1. `save` sends the signal to the processes that have a handler for it, and runs the command like a
       command of `corral exec`. While the checkpoint command of an earlier request runs, no second one is
       started.
    2. If the job has a checkpoint interval, `watch` plans a call of `save` after each interval. An agent that
       takes over a running job begins a new interval.

    The checkpoint that the job writes is found by the watcher of the checkpoint directory (watcher.py).
    """

    def __init__(
        self,
        loop: EventLoop,
        order_of: Callable[[AttemptKey], Optional[Start]],
        exec_spec: Callable[[AttemptKey, tuple[str, ...], str], LaunchSpec],
        pid_of: Callable[[AttemptKey], Optional[int]],
        send_signal: Callable[[Signal], None],
    ) -> None:
        self._loop = loop
        self._order_of = order_of
        self._exec_spec = exec_spec
        self._pid_of = pid_of
        self._send_signal = send_signal
        self._commands: dict[AttemptKey, subprocess.Popen[bytes]] = {}
        self._planned: set[AttemptKey] = set()

    def watch(self, key: AttemptKey) -> None:
        """Plan checkpoints of a running attempt at the interval that its job sets. Do nothing if the job sets
        no interval, or if this method was called for the attempt before.
        """
        order = self._order_of(key)
        if order is not None and order.checkpoint_every_s and key not in self._planned:
            self._planned.add(key)
            self._loop.call_later(order.checkpoint_every_s, partial(self._save_at_interval, key))

    def save(self, key: AttemptKey) -> None:
        """Let the attempt save a checkpoint now. An attempt that no longer runs is ignored."""
        order = self._order_of(key)
        if order is None:
            return
        if order.checkpoint_signal:
            self._send_signal(Signal(*key, order.checkpoint_signal))
        if order.checkpoint_command and key not in self._commands:
            self._run_command(key, order)

    def _save_at_interval(self, key: AttemptKey) -> None:
        order = self._order_of(key)
        if order is None:
            self._planned.discard(key)
            return
        self.save(key)
        self._loop.call_later(order.checkpoint_every_s, partial(self._save_at_interval, key))

    def _run_command(self, key: AttemptKey, order: Start) -> None:
        try:
            spec = self._exec_spec(key, order.checkpoint_command, "")
        except CannotExec:
            return
        spec.env["CORRAL_JOB_PID"] = str(self._pid_of(key) or "")
        log = _open_log(spec.directory)
        try:
            self._commands[key] = spawn_in_job(spec, "", subprocess.DEVNULL, log, log)
        except OSError as error:
            write_notice(spec.directory, f"no checkpoint was made: {error}")
            return
        finally:
            os.close(log)
        self._loop.call_later(_POLL_S, partial(self._await_command, key, spec.directory))

    def _await_command(self, key: AttemptKey, place: str) -> None:
        code = self._commands[key].poll()
        if code is None:
            self._loop.call_later(_POLL_S, partial(self._await_command, key, place))
            return
        del self._commands[key]
        if code and self._order_of(key) is not None:
            write_notice(place, f"the checkpoint command failed with exit code {code}")


def _open_log(place: str) -> int:
    """Return a descriptor to which the checkpoint command writes its output: the stderr log of the job, or
    the stdout log if the job has no stderr log. If neither can be opened, return a descriptor of /dev/null.
    """
    for name in ("stderr", "stdout"):
        try:
            return os.open(
                f"{place}/{name}", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError:
            continue
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
