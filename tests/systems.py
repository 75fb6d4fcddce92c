"""A complete Corral in a directory of its own: real controller, agents and jobs that a test kills and
restarts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomli_w

from agent.attempts import attempt_record
from tests import groups, processes
from tests.agent.agent_process import remove_socket
from tests.controller.store.scratch import scratch
from tests.limits import PATIENCE_S
from tests.processes import Process
from tests.programs import Program, run_corral
from wire.api.jobs import JobView
from wire.http.client import Client, Unreachable
from wire.names import JobState, NodeState

NODE = {"gpus": "simulated:8xH100", "cpus": 64, "memory": "512G", "run_as_self": True}


class System:
    """One controller with simulated nodes. Everything it leaves behind is in `place`."""

    def __init__(
        self, place: Path, nodes: Iterable[str] = ("gpu01",), program: Sequence[str] = ("controller",)
    ):
        self.place = place
        self.socket = place / "corral.sock"
        self.state = place / "state"
        self.config = place / "scheduler.toml"
        self.log = place / "controller.log"
        self.sections: dict[str, dict[str, Any]] = {
            "controller": {"state_dir": str(self.state), "socket": str(self.socket)},
            "nodes": {name: dict(NODE) for name in nodes},
            # because a busy machine must not decide how much of an answer is known
            "questions": {"budget_s": 20.0, "longest_s": 60.0},
        }
        self.program = program
        self.recoveries: list[float] = []
        """Seconds from each start of the controller until all nodes were up."""
        self._controller: Program | None = None

    @property
    def store_url(self) -> str:
        return str(self.sections.get("store", {}).get("url", f"sqlite:///{self.state}/corral.db"))

    @property
    def controller(self) -> Program:
        """The latest controller."""
        assert self._controller is not None
        return self._controller

    # --- the controller ---

    def start(self) -> System:
        """Start the controller and wait until it answers and all its nodes are up."""
        began = time.monotonic()
        self.launch()
        self.await_answer()
        self.await_nodes(*self.sections["nodes"])
        self.recoveries.append(time.monotonic() - began)
        return self

    def launch(self) -> Program:
        """Start the controller without waiting."""
        self.config.write_text(tomli_w.dumps(self.sections))
        self._controller = Program([*self.program, "--config", str(self.config)], self.log)
        return self._controller

    def kill(self) -> None:
        """kill -9."""
        self.controller.send(signal.SIGKILL)
        self.controller.wait(PATIENCE_S)

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.controller.send(signal.SIGTERM)
        return self.controller.wait(PATIENCE_S)

    def await_answer(self) -> None:
        """Wait until the controller answers."""

        def answers() -> bool:
            code = self.controller.poll()
            if code is not None:
                raise AssertionError(f"the controller ended with code {code}: {self.log_end()}")
            with suppress(Unreachable), self.client() as client:
                return client.health().status == "ok"
            return False

        self.until(answers, "the controller answers")

    def await_nodes(self, *names: str) -> None:
        """Wait until these nodes are up."""

        def up() -> bool:
            with self.client() as client:
                return {node.name for node in client.nodes().nodes if node.state is NodeState.UP} >= {*names}

        self.until(up, f"{names} are up")

    def log_end(self) -> str:
        """The end of the controller's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    # --- other processes ---

    def processes(self, *kinds: str) -> list[Process]:
        """Living processes of these kinds or all: agent, nursery, supervisor, job."""
        return [each for each in processes.of(self.place) if not kinds or each.kind in kinds]

    def agent(self, node: str) -> Process:
        """The agent of a node."""
        [found] = [each for each in self.processes("agent") if node in each.words]
        return found

    def supervisors(self) -> list[Process]:
        """The supervisor of an attempt, found by the lock on its record."""
        found = []
        for path in self.state.glob("nodes/*/attempts/*/record"):
            with suppress(OSError):  # because it has just ended
                holder = attempt_record.lock_holder(str(path))
                found += [processes.process(holder)] if holder is not None else []
        return found

    def corral(self, *words: str) -> str:
        """The output of a corral command, which must succeed."""
        environment = {**os.environ, "CORRAL_URL": f"unix://{self.socket}"}
        return run_corral(*words, environment=environment, check=True).stdout

    # --- jobs ---

    def client(self) -> Client:
        """A client with a connection of its own."""
        return Client(f"unix://{self.socket}")

    def jobs(self) -> dict[int, JobView]:
        """All jobs."""
        with self.client() as client:
            return {job.id: job for job in _all(client)[0]}

    def await_jobs(self, ids: Iterable[int], *states: JobState) -> dict[int, JobView]:
        """Follow the event stream until each of these jobs has been in one of the states (default: ended)."""
        missing, seen = set(ids), {}
        deadline = time.monotonic() + PATIENCE_S
        with self.client() as client:
            for jobs in _as_they_change(client):
                for job in jobs:
                    if job.id in missing and (job.state in states if states else job.state.terminal):
                        seen[job.id] = job
                missing -= seen.keys()
                if not missing:
                    return seen
                if time.monotonic() > deadline:
                    break
        raise AssertionError(
            f"jobs never were {states or 'ended'}: {self._as_it_is(missing)}\n{self.log_end()}"
        )

    def _as_it_is(self, ids: set[int]) -> str:
        """The present states of these jobs and of the nodes, for an error message."""
        with self.client() as client:
            nodes = [f"{node.name} {node.state.value}" for node in client.nodes().nodes]
        views = [view for job, view in sorted(self.jobs().items()) if job in ids]
        jobs = [f"{view.id} {view.state.value} ({view.reason}, {view.detail})" for view in views]
        return "\n".join([", ".join(nodes), *jobs])

    def until(self, true: Callable[[], Any], what: str) -> None:
        """Poll a condition until it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"never: {what}\n{self.log_end()}")
            time.sleep(0.02)

    def await_nothing(self, *kinds: str) -> None:
        """Wait until no process of these kinds is left."""
        self.until(lambda: not self.processes(*kinds), f"no {kinds} is left")

    def end(self) -> None:
        """Kill all remaining processes by pid, the controller first, because it restarts agents."""
        if self._controller is not None:
            self.kill()
        deadline = time.monotonic() + PATIENCE_S
        while (left := self.processes()) and time.monotonic() < deadline:
            for each in left:
                each.kill()
            time.sleep(0.01)
        assert not left
        assert not self.log.exists() or "met a bug" not in self.log.read_text(errors="replace"), (
            self.log_end()
        )
        for name in self.sections["nodes"]:
            groups.remove(name, self.state / "nodes" / name)
            remove_socket(self.state / "nodes" / name)


@contextmanager
def system(*nodes: str, **more: Any) -> Iterator[System]:
    """A system that is not started yet; its processes and files are gone afterwards."""
    with scratch() as place:
        made = System(place, nodes or ("gpu01",), **more)
        try:
            yield made
        finally:
            made.end()


def _as_they_change(client: Client) -> Iterator[Sequence[JobView]]:
    """All jobs, then the jobs of each commit; empty when the stream is silent."""
    jobs, seq = _all(client)
    yield jobs
    for batch in client.stream(after=seq):
        yield batch.jobs if batch is not None else ()


def _all(client: Client) -> tuple[list[JobView], int]:
    page = client.jobs(history=True)  # because jobs that ended long ago may have been deleted
    jobs, seq = [*page.jobs], page.seq
    while page.next is not None:
        page = client.jobs(history=True, after=page.next)
        jobs += page.jobs
    return jobs, seq
