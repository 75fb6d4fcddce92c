"""The oracle reads the records that jobs write, and checks the guarantees when all jobs have ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.oracle import journal, records
from tests.oracle.verdict import Broken, Evidence, Room, judge
from tests.systems import System
from wire.api.jobs import JobView
from wire.http.client import Client
from wire.job.spec import JobSpec
from wire.names import JobState

WATCHED_JOB = Path(__file__).with_name("watched_job.py")


class Oracle:
    """Records the submits that a system acknowledged, and the directory of job records."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.records = system.place / "records"
        self.records.mkdir()
        self.acknowledged: list[tuple[int, JobSpec]] = []
        self.jobs: dict[int, JobView] = {}
        """The final view of every job, after verify()."""

    def spec(self, until: int | Path = 2, outcome: int = 0, **asked: Any) -> JobSpec:
        """A watched job that runs for some beats, or until a file exists."""
        program = (sys.executable, "-IS", str(WATCHED_JOB), str(self.records), str(until), str(outcome))
        return JobSpec(command=program, memory_mib=64, **{"cpu_milli": 500, "grace_s": 1.0, **asked})

    def submit(self, client: Client, spec: JobSpec, key: str = "") -> tuple[int, ...]:
        """Submit, and record the acknowledged ids."""
        submitted = client.submit(spec, key=key)
        self.acknowledge(spec, *submitted.ids)
        return submitted.ids

    def acknowledge(self, spec: JobSpec, *ids: int) -> None:
        """Record these acknowledged ids."""
        self.acknowledged += [(job, spec) for job in ids]

    @property
    def ids(self) -> list[int]:
        """The acknowledged ids."""
        return [job for job, _ in self.acknowledged]

    def lives(self) -> list[records.Life]:
        """The records that jobs have written so far."""
        return records.read(self.records)

    def await_lives(self, *jobs: int) -> dict[int, records.Life]:
        """Wait until each of these jobs has recorded that it runs."""
        self.system.until(lambda: {*jobs} <= {life.job for life in self.lives()}, f"jobs {jobs} live")
        return {life.job: life for life in self.lives() if life.job in jobs}

    def verify(self) -> list[Broken]:
        """Let all jobs end, stop the system, and check the guarantees."""
        self.system.await_jobs(self.system.jobs())
        return judge(self._evidence())

    def spoilt(self) -> list[JobView]:
        """Acknowledged jobs with another end than that of their program."""
        asked = [(self.jobs[job], int(spec.command[-1])) for job, spec in self.acknowledged]
        return [view for view, outcome in asked if _came_to(view) != outcome]

    def _evidence(self) -> Evidence:
        self.jobs = self.system.jobs()
        with self.system.client() as client:
            rooms = {node.name: Room(node.cpu_milli, node.memory_mib) for node in client.nodes().nodes}
        code = self.system.stop()
        assert code == 0, f"the controller ended with code {code}: {self.system.log_end()}"
        self.system.await_nothing("agent", "nursery")
        left = [f"{each} is left" for each in self.system.processes()]
        return Evidence(
            self.acknowledged, self.jobs, self.lives(), rooms, left, journal.problems(self.system.store_url)
        )


def _came_to(view: JobView) -> int | None:
    if view.state is JobState.COMPLETED:
        return 0
    return view.exit_code if view.signal is None else -view.signal
