"""Runs jobs on Slurm, Docker, SSH hosts and a cloud pool through one controller, and kills each of them once:
`python -m tests.mixed_engines.driver --count 1000 --seed 7`.

1. The jobs are submitted to each part in turn (tests/mixed_engines/parts.py).
2. When enough jobs of a part have ended and others run there, the part is killed and started again. The
   controller is killed once, too.
3. Each job writes its number and its attempt into one file, and ends with its own exit code. In the end, the
   file and the controller must agree, and no part may have anything left.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.agent.dockerd import docker_daemon
from tests.clients.real_slurm import RealSlurm
from tests.integration.engines.virtual_machines import virtual_machines
from tests.limits import PATIENCE_S
from tests.mixed_engines.parts import CloudPart, DockerPart, Part, SlurmPart, SshPart
from tests.systems import System, system
from wire.api.jobs import JobView
from wire.names import JobState

CONTROLLER = "controller"


@dataclass
class Row:
    """The jobs of one part, and what became of them."""

    part: Part
    ids: list[int] = field(default_factory=list)
    running: int = 0
    """The number of jobs that were running when the part was killed."""
    struck_after: int = 0
    """The number of jobs of the part that had ended before."""
    again: int = 0
    """The number of jobs with several attempts."""
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        return [*self.lost, *self.doubled, *self.left]


@dataclass
class Report:
    """The outcome of a run."""

    rows: list[Row]
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)
    """The processes and records that are left on the machine of the controller."""

    @property
    def broken(self) -> list[str]:
        return [*(each for row in self.rows for each in row.broken), *self.left]

    def __str__(self) -> str:
        lines = [
            "| part | jobs | fault | ended before | running then | run again | lost | doubled | left |",
            "|---|---|---|---|---|---|---|---|---|",
            *(
                f"| {row.part.name} | {len(row.ids)} | {row.part.fault} | {row.struck_after} | {row.running} "
                f"| {row.again} | {len(row.lost)} | {len(row.doubled)} | {len(row.left)} |"
                for row in self.rows
            ),
            f"{sum(len(row.ids) for row in self.rows)} jobs in {self.seconds:.0f} s, the controller killed "
            f"once, {len(self.left)} processes and records left on its machine",
        ]
        return "\n".join([*lines, *self.broken])


@contextmanager
def _directory(prefix: str) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run(count: int, seed: int = 1) -> Report:
    """Run `count` jobs with all faults, and return the outcome."""
    with ExitStack() as stack:
        slurm = RealSlurm(stack.enter_context(_directory("corral-slurm-")))
        stack.callback(slurm.end)
        slurm.start()
        docker = stack.enter_context(docker_daemon())
        corral = stack.enter_context(system())
        for name in ("hosts", "cloud"):
            (corral.place / name).mkdir()
        ssh = SshPart(corral.place / "hosts")
        stack.callback(ssh.end)
        ssh.start()
        cloud = stack.enter_context(virtual_machines(corral.place / "cloud"))
        settings = {"HOME": str(corral.place / "hosts"), "SLURM_CONF": slurm.environment["SLURM_CONF"]}
        stack.enter_context(_environment(**settings))
        parts = [SlurmPart(slurm), DockerPart(docker), ssh, CloudPart(cloud)]
        for part in parts:
            part.configure(corral)
        corral.start()
        return _Run(corral, parts, seed).run(count)


class _Run:
    """One run on a started controller."""

    def __init__(self, corral: System, parts: Sequence[Part], seed: int) -> None:
        self._corral = corral
        self._chance = random.Random(seed)
        self._report = Report([Row(part) for part in parts])
        self._starts = corral.place / "starts"
        """The file to which each attempt appends its job, its number and the pid of its shell."""
        self._overlaps = corral.place / "overlaps"
        """The file to which an attempt appends its job if an earlier attempt of the job still runs."""
        self._overlaps.touch()
        self._starts.touch()
        self._codes: dict[int, int] = {}

    def run(self, count: int) -> Report:
        began = time.monotonic()
        with ThreadPoolExecutor() as pool:
            submits = pool.submit(self._submit, count)
            self._strike(count // len(self._report.rows), pool)
            submits.result()
        self._kill_controller()
        views = self._await_ends()
        for row in self._report.rows:
            self._judge(row, views)
        self._await_nothing_left()
        self._report.seconds = time.monotonic() - began
        return self._report

    def _submit(self, count: int) -> None:
        rows = self._report.rows
        with self._corral.client() as client:
            for number in range(count):
                row, code = rows[number % len(rows)], number % 3
                script = (
                    'while [ "$CORRAL_ATTEMPT" -gt 1 ] && read -r job _ pid; do '
                    f'[ "$job" = "$CORRAL_JOB_ID" ] && [ -d /proc/$pid ] && echo $job >> {self._overlaps}; '
                    f"done < {self._starts}; "
                    f'echo "$CORRAL_JOB_ID $CORRAL_ATTEMPT $$" >> {self._starts}; '
                    f"sleep {self._chance.uniform(0.5, 4.0):.1f}; exit {code}"
                )
                [job] = client.submit(row.part.spec(("sh", "-c", script), self._corral.place)).ids
                row.ids.append(job)
                self._codes[job] = code

    def _strike(self, each: int, pool: ThreadPoolExecutor) -> None:
        """Kill each part when a tenth of its jobs, `each` at the end, has ended and others run. Several parts
        may be away at the same time.
        """
        waiting, strikes = list(self._report.rows), []
        while waiting:
            views = self._progress()
            for row in list(waiting):
                states = Counter(views[job].state for job in row.ids if job in views)
                ended = sum(number for state, number in states.items() if state.terminal)
                assert ended < each, f"all jobs of {row.part.name} ended before its fault"
                if states[JobState.RUNNING] and ended and 10 * ended >= each:
                    row.running, row.struck_after = states[JobState.RUNNING], ended
                    print(f"{row.part.fault}: {ended} ended, {row.running} running", flush=True)
                    strikes.append(pool.submit(row.part.strike))
                    waiting.remove(row)
            time.sleep(0.1)
        for strike in strikes:
            strike.result()

    def _kill_controller(self) -> None:
        self._corral.kill()
        self._corral.launch()
        self._corral.await_answer()

    def _await_ends(self) -> dict[int, JobView]:
        while True:
            views = self._progress()
            if all(views[job].state.terminal for job in self._codes):
                return views
            time.sleep(0.5)

    _ended, _since = 0, time.monotonic()

    def _progress(self) -> dict[int, JobView]:
        """Return all jobs. Raise AssertionError if no job has ended for 5 × PATIENCE_S."""
        views = self._corral.jobs()
        ended = sum(each.state.terminal for each in views.values())
        if ended > self._ended or not self._ended:
            if ended // 50 > self._ended // 50:
                print(f"{ended} of {len(self._codes)} jobs have ended", flush=True)
            self._ended, self._since = ended, time.monotonic()
        if time.monotonic() > self._since + 5 * PATIENCE_S:
            late = [
                f"{each.id} {each.state} {each.detail}" for each in views.values() if not each.state.terminal
            ]
            raise AssertionError("\n".join([*late, self._corral.log_end()]))
        return views

    def _judge(self, row: Row, views: dict[int, JobView]) -> None:
        """Compare the jobs of a part with the attempts that have run.

        1. A job is lost if it did not end with its own exit code, or if its last attempt did not run.
        2. A job is doubled if an attempt ran twice, if two attempts ran at the same time, or if it has
           several attempts although its part ends no jobs.
        """
        lines = [tuple(map(int, line.split())) for line in self._starts.read_text().splitlines()]
        starts = Counter((job, attempt) for job, attempt, _ in lines)
        overlaps = {*map(int, self._overlaps.read_text().split())}
        for job in row.ids:
            view, code = views[job], self._codes[job]
            wanted = JobState.FAILED if code else JobState.COMPLETED
            if (view.state, view.exit_code) != (wanted, code) or not starts[job, view.attempt]:
                row.lost.append(f"{row.part.name}: job {job} is {view.state} {view.exit_code} {view.detail}")
            row.again += view.attempt > 1
            twice = any(starts[job, attempt] > 1 for attempt in range(1, view.attempt + 1))
            if twice or job in overlaps or (view.attempt > 1 and not row.part.runs_again):
                ran = [line for line in lines if line[0] == job]
                row.doubled.append(f"{row.part.name}: job {job} has run as {ran}")

    def _await_nothing_left(self) -> None:
        """Wait until no job and no machine is left. Report those that are left after PATIENCE_S."""
        end = time.monotonic() + PATIENCE_S
        while True:
            for row in self._report.rows:
                row.left = [f"{row.part.name}: {each} is left" for each in row.part.left()]
            self._report.left = [
                *(
                    str(each)
                    for each in self._corral.processes("supervisor", "job")
                    if each.kind == "supervisor" or str(self._starts) in " ".join(each.words)
                ),
                *map(str, self._corral.state.glob("engines/*/jobs/*.json")),
            ]
            if not any((self._report.left, *(row.left for row in self._report.rows))):
                return
            if time.monotonic() > end:
                return
            time.sleep(0.5)


def main() -> int:
    """Run and print; exit code 0 if all guarantees held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=80, help="number of jobs")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    report = run(given.count, given.seed)
    print(report)
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
