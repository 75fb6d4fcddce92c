"""Runs a controller and simulated hosts in a temporary directory, and removes the directory at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from cli.demo import kill_descendants
from cli.exit_codes import FAILED, CommandError
from cli.jobs.selection import ACTIVE, pages
from cli.signals import DeferredSignals
from wire.http.client import Client, Refused, Unreachable
from wire.names import NodeState
from wire.program_parts import CONTROLLER

READY_S, JOBS_END_S, STOP_S, SWEEP_S = 120.0, 10.0, 10.0, 5.0
LONGEST = 60
"""The most characters in the path of the demo's directory. The path of a socket in this directory is longer,
and the kernel accepts at most 107 characters for it.
"""

_HEAD = """\
[cluster]
name = "demo"

[controller]
state_dir = "{place}/state"
socket = "{place}/corral.sock"

[scheduler]
then = "fair"

[rebalance]
mode = "propose"
"""
_NODE = """
[nodes.{name}]
link = "local"
gpus = "simulated:8xH100"
cpus = 64
memory = "512G"
labels = {{ rack = "{rack}" }}
run_as_self = true
"""


class Cluster:
    """Context manager that starts the demo cluster. At the end, the manager stops all jobs and processes, and
    removes all files.
    """

    def __init__(self, interrupts: DeferredSignals, nodes: Sequence[str]) -> None:
        self._interrupts = interrupts
        self._nodes = nodes
        self._controller: subprocess.Popen[bytes] | None = None
        self.place = Path()

    @property
    def url(self) -> str:
        return f"unix://{self.place}/corral.sock"

    @property
    def workdir(self) -> str:
        return f"{self.place}/work"

    def __enter__(self) -> Cluster:
        kill_descendants.adopt_orphans()
        self.place = Path(tempfile.mkdtemp(prefix="corral-demo-"))
        if len(str(self.place)) > LONGEST:
            self.place.rmdir()
            self.place = Path(tempfile.mkdtemp(prefix="corral-demo-", dir="/tmp"))
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def await_ready(self) -> None:
        """Wait until the controller answers and all nodes are up. Raise CommandError after READY_S
        seconds.
        """
        deadline = time.monotonic() + READY_S
        while True:
            with suppress(Unreachable), self.client() as client:
                nodes = client.nodes().nodes
                if len(nodes) == len(self._nodes) and all(node.state is NodeState.UP for node in nodes):
                    return
            self.check()
            if time.monotonic() > deadline:
                raise CommandError(
                    f"the cluster was not ready within {READY_S:g} s", self._last_words(), FAILED
                )
            self._interrupts.nap(0.05)

    def check(self, others: Sequence[int] = ()) -> None:
        """Raise CommandError if the controller has ended. Also collect the exit status of orphan processes
        that have ended. Child processes with an id in `others` are left out, because other code waits for
        these processes.
        """
        if self._controller is not None and self._controller.poll() is not None:
            raise CommandError(
                f"the controller ended with code {self._controller.returncode}", self._last_words(), FAILED
            )
        kill_descendants.reap([*others, *([self._controller.pid] if self._controller else [])])

    def client(self) -> Client:
        return Client(self.url, timeout_s=5.0)

    def environment(self) -> dict[str, str]:
        """Return the environment of this process without the CORRAL_ variables, because these variables would
        change the settings of the demo.
        """
        return {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}

    def _start(self) -> None:
        Path(self.workdir).mkdir(mode=0o700)
        config = self.place / "scheduler.toml"
        nodes = [_NODE.format(name=name, rack=f"r{place // 2 + 1}") for place, name in enumerate(self._nodes)]
        config.write_text(_HEAD.format(place=self.place) + "".join(nodes))
        with self._log().open("wb") as log:
            # Start the controller in a session of its own, so that Ctrl-C reaches only the demo. The demo
            # then stops the jobs before the controller.
            self._controller = subprocess.Popen(
                CONTROLLER.command("--config", str(config)),
                cwd=self.place,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self) -> None:
        """End the jobs, the controller and all other descendant processes, then remove the files. If one of
        these steps fails, the following steps are still carried out.
        """
        cancelled = False
        try:
            with suppress(Unreachable, Refused):
                cancelled = self._end_jobs()
            self._stop_controller()
            # If the controller has not cancelled the jobs, do not wait for their end.
            kill_descendants.end_descendants(SWEEP_S if cancelled else 0.0)
        finally:
            shutil.rmtree(self.place, ignore_errors=True)

    def _end_jobs(self) -> bool:
        """Cancel all jobs, and wait at most JOBS_END_S seconds for their end. Return False if the controller
        has ended.
        """
        if self._controller is None or self._controller.poll() is not None:
            return False
        # Cancel the jobs while the controller runs, because jobs keep running when the controller stops.
        with self.client() as client:
            deadline = time.monotonic() + JOBS_END_S
            while time.monotonic() < deadline:
                active = list(pages(client, ACTIVE))
                if not active:
                    return True
                for job in active:
                    # Ignore a refusal, because the job may have ended already.
                    with suppress(Refused):
                        client.cancel(job.id)
                time.sleep(0.1)
        return True

    def _stop_controller(self) -> None:
        if self._controller is None:
            return
        self._controller.send_signal(signal.SIGTERM)
        try:
            self._controller.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._controller.kill()
            self._controller.wait()

    def _log(self) -> Path:
        return self.place / "controller.log"

    def _last_words(self) -> str:
        with suppress(OSError):
            return "\n".join(self._log().read_text(errors="replace").splitlines()[-15:])
        return ""
