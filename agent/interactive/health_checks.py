"""Runs the health checks of jobs. A check runs a command in the job's allocation, sends an HTTP request from
this node, or reads the modification time of a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.parse
from contextlib import suppress
from functools import partial
from typing import Callable, Optional

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.attempts.spool import AttemptKey
from agent.event_loop import EventLoop
from agent.interactive.exec_sessions import CannotExec, spawn_in_job
from agent.processes import process_tree
from agent.processes.job_user import become_user
from agent.supervisor import task_process
from wire.agent.orders import Start
from wire.agent.reports import HealthReport
from wire.dataclass import dataclass
from wire.job.health import HealthCheck

_ANSWER_BYTES = 4_096
_LONGEST_WHY = 200
_EXIT_POLL_S = 0.02


class _Probe:
    """A running check: its process, and the pipe with the output of this process."""

    def __init__(self, pid: int, answer: int, process: Optional[subprocess.Popen[bytes]] = None) -> None:
        self.pid = pid
        self.answer = answer
        self.process = process
        self.text = b""

    def poll(self) -> Optional[int]:
        """Return the exit code of the process, or 128 + n for signal n; None if the process has not ended."""
        if self.process is not None:
            code = self.process.poll()
        else:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if ended else None
        return code if code is None or code >= 0 else 128 - code


@dataclass
class _Watch:
    """The health of one attempt. `healthy` is the health that was reported last; None before the first
    report.
    """

    check: HealthCheck
    started: float
    healthy: Optional[bool] = None
    failures: int = 0
    probe: Optional[_Probe] = None

    def judge(self, ok: bool, now: float) -> bool:
        """Count the result of a check; `ok` is True if the check has passed. Return True if the attempt has
        become healthy or unhealthy by this result. Before the first report, failures in the first `start_s`
        seconds do not count.
        """
        if ok:
            self.failures = 0
        elif self.healthy is None and now - self.started < self.check.start_s:
            return False
        else:
            self.failures += 1
            if self.failures < self.check.failures:
                return False
        changed = self.healthy is not ok
        self.healthy = ok
        return changed


class HealthChecks:
    """Checks the health of the attempts that have a health check, and reports changes to the controller.

    1. The agent calls `watch` when it reports that an attempt runs. Only the agent on the job's first node
       checks the job.
    2. Every `every_s` seconds, start a check: a command runs like a command of `corral exec`; for a URL or a
       file, a child process that runs as the job's user sends the request or examines the file.
    3. When the process ends, or after `timeout_s` seconds, count the result (`_Watch.judge`).

    An agent that takes over running attempts does not know their earlier health. So the agent reports the
    first result of each attempt, even if the health has not changed.
    """

    def __init__(
        self,
        loop: EventLoop,
        order_of: Callable[[AttemptKey], Optional[Start]],
        exec_spec: Callable[[AttemptKey, tuple[str, ...], str], LaunchSpec],
        user_spec: Callable[[AttemptKey, Start], Optional[LaunchSpec]],
        report: Callable[[HealthReport], None],
    ) -> None:
        self._loop = loop
        self._order_of = order_of
        self._exec_spec = exec_spec
        self._user_spec = user_spec
        self._report = report
        self._watched: dict[AttemptKey, _Watch] = {}
        self._killed: list[_Probe] = []
        """Checks whose processes were killed and may not have ended yet."""

    def watch(self, key: AttemptKey) -> None:
        """Begin to check a running attempt. Do nothing if its job has no health check, if this node is not
        the job's first node, or if the checks of the attempt have already begun.
        """
        order = self._order_of(key)
        if key in self._watched or order is None or order.health is None or order.rank:
            return
        self._watched[key] = _Watch(order.health, time.monotonic())
        self._loop.call_later(0.0, partial(self._begin, key))

    def _begin(self, key: AttemptKey) -> None:
        self._killed = [each for each in self._killed if each.poll() is None]
        watch, order = self._watched[key], self._order_of(key)
        if order is None:
            del self._watched[key]
            return
        self._loop.call_later(watch.check.every_s, partial(self._begin, key))
        if watch.probe is not None:
            return
        try:
            probe = self._start_probe(key, order, watch.check)
        except (CannotExec, OSError) as error:
            self._judge(key, watch, str(error))
            return
        watch.probe = probe
        os.set_blocking(probe.answer, False)
        self._loop.on_readable(probe.answer, partial(self._read, key, probe))
        self._loop.call_later(watch.check.timeout_s, partial(self._time_out, key, probe))

    def _start_probe(self, key: AttemptKey, order: Start, check: HealthCheck) -> _Probe:
        answer, sink = os.pipe()
        try:
            if check.command:
                process = spawn_in_job(
                    self._exec_spec(key, check.command, ""), "", subprocess.DEVNULL, sink, sink
                )
                return _Probe(process.pid, answer, process)
            launch = self._user_spec(key, order)
            if launch is None:
                raise CannotExec(f"the user {order.user} does not exist on this node")
            # Import the HTTP client only when a job has a check of a URL, because the import takes 12 ms.
            # Import it before the fork, because the job's user may not be allowed to read the files of this
            # Python.
            import http.client  # noqa: F401

            pid = os.fork()
            if pid == 0:
                _check_in_child(launch, check, sink)
            return _Probe(pid, answer)
        except BaseException:
            os.close(answer)
            raise
        finally:
            os.close(sink)

    def _read(self, key: AttemptKey, probe: _Probe) -> None:
        try:
            data = os.read(probe.answer, _ANSWER_BYTES)
        except BlockingIOError:
            return
        probe.text = (probe.text + data)[-_ANSWER_BYTES:]
        if not data:
            self._loop.on_readable(probe.answer, None)
            self._await_exit(key, probe)

    def _await_exit(self, key: AttemptKey, probe: _Probe) -> None:
        """Count the result of a check as soon as its process has exited. This is called when the process has
        closed its output, shortly before it exits.
        """
        watch = self._watched.get(key)
        if watch is None or watch.probe is not probe:
            return
        code = probe.poll()
        if code is None:
            self._loop.call_later(_EXIT_POLL_S, partial(self._await_exit, key, probe))
            return
        why = ""
        if code:
            lines = probe.text.decode("utf-8", "replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            of_command = f"exit code {code}{': ' if last else ''}{last}"
            why = of_command if watch.check.command else last or "no answer"
        self._end(key, watch, probe, why)

    def _time_out(self, key: AttemptKey, probe: _Probe) -> None:
        watch = self._watched.get(key)
        if watch is None or watch.probe is not probe:
            return
        processes = [*process_tree.descendants(probe.pid), probe.pid]
        process_tree.send_signal(processes, signal.SIGKILL)
        self._killed.append(probe)
        self._end(key, watch, probe, f"no answer within {watch.check.timeout_s:g} s")

    def _end(self, key: AttemptKey, watch: _Watch, probe: _Probe, why: str) -> None:
        self._loop.on_readable(probe.answer, None)
        os.close(probe.answer)
        watch.probe = None
        self._judge(key, watch, why)

    def _judge(self, key: AttemptKey, watch: _Watch, why: str) -> None:
        if watch.judge(not why, time.monotonic()) and watch.healthy is not None:
            self._report(HealthReport(*key, watch.healthy, why[:_LONGEST_WHY]))


def _check_in_child(launch: LaunchSpec, check: HealthCheck, sink: int) -> None:
    """Request the URL of a check, or examine its file. If the check fails, write the reason to `sink`. Then
    exit, because this function runs in the child process of the check.
    """
    try:
        task_process.close_descriptors(sink)
        become_user(launch)
        why = _file_problem(launch, check) if check.file else _url_problem(check)
        if not why:
            os._exit(0)
        os.write(sink, why.encode("utf-8", "replace")[:_LONGEST_WHY])
    except (OSError, ValueError) as error:
        with suppress(OSError):
            os.write(sink, (str(error) or type(error).__name__).encode("utf-8", "replace")[:_LONGEST_WHY])
    finally:
        os._exit(1)


def _url_problem(check: HealthCheck) -> str:
    import http.client

    parts = urllib.parse.urlsplit(check.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=check.timeout_s)
    try:
        connection.request("GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        status = connection.getresponse().status
    except http.client.HTTPException as error:
        return str(error) or type(error).__name__
    return "" if status < 400 else f"HTTP status {status}"


def _file_problem(launch: LaunchSpec, check: HealthCheck) -> str:
    try:
        age_s = time.time() - os.stat(os.path.join(launch.cwd, check.file)).st_mtime
    except FileNotFoundError:
        return f"{check.file} does not exist"
    return "" if age_s <= check.file_age_s else f"{check.file} has not changed for {age_s:.0f} s"
