"""Kills processes at random under load, then asks the oracle: `make faults SEED=7 SECONDS=60`."""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from statistics import median

from tests import processes
from tests.integration.controller.load import mix
from tests.oracle.oracle import Oracle
from tests.oracle.verdict import Broken
from tests.processes import Process
from tests.systems import system
from wire.http.client import Client, Refused, Unreachable
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

NODES = ("gpu01", "gpu02", "gpu03")
CALM_S = (0.0, 0.5)
STUNNED_S = (0.0, 1.0)
TRACED_S = 10.0
PAUSE_S = 0.05
LEAST = 3
"""Number of faults that are injected at least, however slow the machine is."""
BUSY = 30
"""Number of jobs that are kept running."""
EXPECTED = {
    Reason.USER: "cancelled",
    Reason.SUPERVISOR_LOST: "lost with their supervisor, and on record as that",
}
ACTIVE = [state for state in JobState if not state.terminal]


@dataclass(frozen=True)
class Report:
    """The faults, the duration, and the outcome."""

    seed: int
    seconds: float
    tried: Counter[str]
    ended: Counter[str]
    spoilt: Counter[str]
    recoveries: list[float]
    broken: list[Broken]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}, {self.seconds:.0f} s: {_listed(self.tried)}",
                f"{self.ended.total()} jobs acknowledged: {_listed(self.ended)}",
                f"not ended by themselves: {_listed(self.spoilt)}",
                f"from start to all nodes up: median {median(self.recoveries):.2f} s, "
                f"longest {max(self.recoveries):.2f} s",
                *map(str, self.broken),
                f"guarantees broken: {len(self.broken) or 'none'}",
            ]
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"


def run(seed: int, seconds: float) -> Report:
    """Inject faults into a new system for about this many seconds, let it finish, and verify it."""
    with system(*NODES) as running:
        oracle = Oracle(running.start())
        faults = Faults(oracle, seed)
        began = time.monotonic()
        with faults.load():
            while time.monotonic() < began + seconds or faults.tried.total() < LEAST:
                faults.strike()
        lasted = time.monotonic() - began
        broken, spoilt = oracle.verify(), oracle.spoilt()
    broken += [
        Broken("D", f"job {view.id} is {view.state.value} for {view.reason.value} ({view.detail})")
        for view in spoilt
        if view.reason not in EXPECTED
    ]
    ended = Counter(oracle.jobs[job].state.value.lower() for job in oracle.ids if job in oracle.jobs)
    lost = Counter(EXPECTED[view.reason] for view in spoilt if view.reason in EXPECTED)
    return Report(seed, lasted, faults.tried, ended, lost, running.recoveries, broken)


@contextmanager
def passing() -> Iterator[None]:
    """Ignore errors of a controller that is down or cannot store."""
    try:
        yield
    except Unreachable:
        pass
    except Refused as refused:
        if refused.status < 500:
            raise


class Faults:
    """Random faults for a running system."""

    def __init__(self, oracle: Oracle, seed: int) -> None:
        self.oracle = oracle
        self.system = oracle.system
        self.seed = seed
        self.dice = random.Random(seed)
        self.tried: Counter[str] = Counter()
        self._faults: dict[str, Callable[[], None]] = {
            "controller killed": self._controller_killed,
            "controller killed twice": self._controller_killed_twice,
            "controller killed at a system call": self._controller_killed_at_a_call,
            "controller stopped": self._controller_stopped,
            "controller stunned": self._controller_stunned,
            "agent killed": lambda: self._kill(self.system.processes("agent")),
            "agent killed at a system call": self._agent_killed_at_a_call,
            "agent stunned": lambda: self._stun(self.system.processes("agent")),
            "agent without descriptors": lambda: self._starve(self.system.processes("agent")),
            "controller without descriptors": self._controller_starved,
            "database locked by another program": self._database_locked,
            "nursery killed": lambda: self._kill(self.system.processes("nursery")),
            "nursery stunned": lambda: self._stun(self.system.processes("nursery")),
            "supervisor killed": lambda: self._kill(self.system.supervisors()),
            "supervisor stunned": lambda: self._stun(self.system.supervisors()),
            "controller, agent and nursery killed": self._much_killed,
            "job cancelled": self._job_cancelled,
        }

    def strike(self) -> None:
        """Wait for a moment, then inject one fault."""
        time.sleep(self.dice.uniform(*CALM_S))
        name = self.dice.choice(list(self._faults))
        self._faults[name]()
        self.tried[name] += 1

    @contextmanager
    def load(self) -> Iterator[None]:
        """Submit jobs all the time; at the end every submit is acknowledged."""
        enough = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            client = pool.submit(self._submit, enough)
            try:
                yield
            finally:
                enough.set()
            client.result()

    def _submit(self, enough: threading.Event) -> None:
        """Repeat a submit until it is acknowledged. Its idempotency key prevents a second job."""
        with self.system.client() as client:
            for number, spec in enumerate(mix(random.Random(self.seed + 1), self.oracle)):
                while not self._accepted(client, spec, f"job {number}"):
                    if enough.wait(PAUSE_S) and self.system.controller.poll() is not None:
                        return  # it will not come back: the run has failed
                while self._busy(client):
                    if enough.wait(PAUSE_S):
                        return

    def _accepted(self, client: Client, spec: JobSpec, key: str) -> bool:
        """Return False if no controller acknowledged the submit."""
        with passing():
            return bool(self.oracle.submit(client, spec, key))
        return False

    def _busy(self, client: Client) -> bool:
        with passing():
            return client.jobs(states=ACTIVE, limit=1).total >= BUSY
        return True

    # --- faults ---

    def _controller_killed(self) -> None:
        self.system.kill()
        self.system.start()

    def _controller_killed_twice(self) -> None:
        """The second kill hits the controller during its start."""
        self.system.kill()
        self.system.launch()
        time.sleep(self.dice.uniform(*STUNNED_S))
        self._controller_killed()

    def _controller_killed_at_a_call(self) -> None:
        """The kill hits the controller between two writes, before an fsync, or between a commit and its
        answers.
        """
        self._trace(
            self.system.controller.pid, self.dice.choice(("pwrite64", "fdatasync", "sendto", "write"))
        )
        self._controller_killed()

    def _controller_stopped(self) -> None:
        assert self.system.stop() == 0, self.system.log_end()
        self.system.start()

    def _controller_stunned(self) -> None:
        self.system.controller.send(signal.SIGSTOP)
        time.sleep(self.dice.uniform(*STUNNED_S))
        self.system.controller.send(signal.SIGCONT)

    def _agent_killed_at_a_call(self) -> None:
        """The kill hits the agent between two writes to its spool, or between such a write and the report."""
        for agent in self._one(self.system.processes("agent")):
            self._trace(agent.pid, self.dice.choice(("/^mkdir", "/^rename", "write")))
            agent.kill()

    def _controller_starved(self) -> None:
        self._starve([processes.process(self.system.controller.pid)])

    def _database_locked(self) -> None:
        with closing(sqlite3.connect(self.system.state / "corral.db", isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            time.sleep(self.dice.uniform(*STUNNED_S))

    def _much_killed(self) -> None:
        self.system.kill()
        self._kill(self.system.processes("agent"))
        self._kill(self.system.processes("nursery"))
        self.system.start()

    def _job_cancelled(self) -> None:
        with self.system.client() as client, suppress(Refused):  # it has ended by itself
            client.cancel(self.dice.choice(self.oracle.ids[-BUSY:] or [1]))

    def _trace(self, pid: int, call: str) -> None:
        """Kill the process at its nth call of this kind; returns at once if it cannot be traced."""
        when = f"inject={call}:signal=SIGKILL:when={self.dice.randrange(1, 30)}"
        if shutil.which("strace"):
            words = ["strace", "-f", "-o", "/dev/null", "-e", when, "-p", str(pid)]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(words, stderr=subprocess.DEVNULL, timeout=TRACED_S, check=False)

    def _stun(self, processes_of_kind: list[Process]) -> None:
        for each in self._one(processes_of_kind):
            each.send(signal.SIGSTOP)
            time.sleep(self.dice.uniform(*STUNNED_S))
            each.send(signal.SIGCONT)

    def _starve(self, processes_of_kind: list[Process]) -> None:
        """Keep the process from opening files for a moment."""
        for each in self._one(processes_of_kind):
            with suppress(OSError):  # it has just ended
                before = resource.prlimit(each.pid, resource.RLIMIT_NOFILE)
                held = len(os.listdir(f"/proc/{each.pid}/fd"))
                resource.prlimit(each.pid, resource.RLIMIT_NOFILE, (held, before[1]))
                time.sleep(self.dice.uniform(*STUNNED_S))
                resource.prlimit(each.pid, resource.RLIMIT_NOFILE, before)

    def _kill(self, processes_of_kind: list[Process]) -> None:
        for each in self._one(processes_of_kind):
            each.kill()

    def _one(self, processes_of_kind: list[Process]) -> list[Process]:
        """Return a random process of these, or None."""
        return self.dice.sample(processes_of_kind, min(1, len(processes_of_kind)))


def main() -> int:
    """Run and print; exit code 0 if all guarantees held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="to repeat a run; random if left out")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    print(f"{given.seconds:g} s of faults with seed {seed} …", flush=True)
    report = run(seed, given.seconds)
    print(report)
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
