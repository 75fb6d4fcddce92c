"""Measures the resources that the running attempts of this host use, and reports the figures to the
controller.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, Optional, Sequence

from agent.attempts.attempt_states import AttemptStates
from agent.attempts.host_meter import HostMeter, MeasuredAttempt
from agent.attempts.spool import AttemptKey, Spool, format_key
from agent.event_loop import EventLoop
from agent.gpus.process_owners import GpuHolder
from agent.gpus.usage_meter import UsageMeter
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.isolation.cgroup_limits import HostCgroups
from agent.isolation.container_runtimes import ContainerRuntime
from wire.agent.frames import AgentFrame
from wire.agent.reports import AttemptStatus, AttemptUse, GpuProcess, GpuReport, GpuSample

REPORT_INTERVAL_S = 10.0


class UsageReporter:
    """Measures the GPU, CPU and memory usage of attempts, and sends the figures to the controller.

    The agent reports the usage of all running attempts every `REPORT_INTERVAL_S` seconds, and as soon as an
    attempt has its first figures. The controller keeps these figures in memory. The controller journals only
    the figures in the report of an attempt's end (`with_usage`).
    """

    def __init__(
        self,
        spool: Spool,
        attempts: AttemptStates,
        cgroups: HostCgroups,
        runtime: Optional[ContainerRuntime],
        send: Callable[[AgentFrame], None],
    ) -> None:
        self._spool = spool
        self._attempts = attempts
        self._cgroups = cgroups
        self._runtime = runtime
        self._send = send
        self._gpus = UsageMeter(spool.directory)
        self._host = HostMeter(spool.directory)
        self._sent: frozenset[tuple[AttemptKey, bool]] = frozenset()
        self._sent_at = 0.0

    def start(self, loop: EventLoop) -> None:
        """Measure the CPU time and memory of running attempts now, and again whenever the pause that
        `HostMeter.sample` returned has passed.
        """
        pause = self._host.sample(self._measured())
        self._report(time.monotonic())
        loop.call_later(pause, lambda: self.start(loop))

    def add_gpu_samples(self, samples: Sequence[GpuSample], processes: Sequence[GpuProcess]) -> None:
        """Add one reading of the GPUs to the usage of the attempts to which the GPUs are allocated. Send a
        report if one is due.
        """
        now = time.monotonic()
        self._gpus.add_samples(self._attempts.gpu_holders(), samples, processes, now)
        self._report(now)

    def gpu_holders(self) -> list[GpuHolder]:
        """Return the running attempts that have GPUs. For attempts with a container image, the result
        includes the spool directory and the HMAC key, with which the marks (signed environment variables) of
        their processes are checked.
        """
        spool, key, found = str(self._spool.root), self._spool.mark_key, []
        for each in self._attempts.gpu_holders():
            order = self._attempts.order((each.job, each.attempt))
            marked = order is not None and order.image
            found.append(replace(each, spool=spool, mark_key=key) if marked else each)
        return found

    def with_usage(self, status: AttemptStatus) -> AttemptStatus:
        """Return the status of an ended attempt with its usage. The status of a running attempt is returned
        unchanged.
        """
        return self._gpus.with_usage(self._host.with_usage(status))

    def forget(self, key: AttemptKey) -> None:
        self._gpus.forget(key)
        self._host.forget(key)

    def _measured(self) -> list[MeasuredAttempt]:
        """Return the running attempts whose CPU time and memory can be measured.

        The cgroup of an attempt with a container is not read, because the container engine may use another
        cgroup for the container. With podman and apptainer, the processes of the container are descendants of
        the supervisor, and are measured as such. With docker they are not descendants of the supervisor, so
        the attempt is left out.
        """
        supervisors, found = dict(self._attempts.supervisors()), []
        for key in self._attempts.running_keys():
            order = self._attempts.order(key)
            if order is None or (
                order.image and self._runtime is not None and self._runtime.kind == "docker"
            ):
                continue
            parts = [] if order.image else self._cgroups.parts(format_key(key), None, 0)
            cgroup = AttemptCgroup(parts)
            found.append(MeasuredAttempt(key, supervisors.get(key), cgroup))
        return found

    def _report(self, now: float) -> None:
        """Send the usage of all running attempts if a report is due. The report has all measured attempts,
        because the controller replaces all usage values of this node by the report.
        """
        holders = self._attempts.gpu_holders()
        gpus, host = self._gpus.uses(holders), self._host.uses()
        running = [key for key in self._attempts.running_keys() if key in gpus or key in host]
        first = frozenset((key, key in gpus) for key in running)
        if not running or (first <= self._sent and now - self._sent_at < REPORT_INTERVAL_S):
            return
        self._sent, self._sent_at = first, now
        self._send(GpuReport((), tuple(AttemptUse(*key, gpus.get(key), host.get(key)) for key in running)))
