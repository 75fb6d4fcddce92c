"""Counts take-overs between two controllers under load, then asks the oracle:
`python -m tests.takeovers.driver --count 200 --seed 7 --clusters 2`.

Each take-over has one fault of the leader (tests/takeovers/faults.py). `--pool session` or `--pool
transaction` puts pgbouncer before the server and restarts it, too. `--promote` promotes a standby server that
lags at least 100 journal entries behind instead.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from tests.controller.store.servers import PostgresUnderTest, postgres
from tests.integration.controller.faults import EXPECTED
from tests.oracle.oracle import Oracle
from tests.oracle.verdict import Broken
from tests.several_controllers import SeveralControllers, several_controllers
from tests.takeovers.audit import audited
from tests.takeovers.faults import CRASHES, ORDERLY, Takeovers
from tests.takeovers.promotion import promote
from tests.takeovers.servers import Pooler

NODES = ("gpu01", "gpu02")
CRASH_S, ORDERLY_S = 10.0, 1.0
"""The seconds within which another controller shall lead, after a crash and after SIGTERM."""


@dataclass
class Report:
    """The take-overs by fault with their times in seconds, and the outcome."""

    seed: int
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    jobs: int = 0
    lost: int = 0
    """The number of acknowledged jobs whose loss was accepted."""
    ended: Counter[str] = field(default_factory=Counter)
    stale: list[Broken] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def add(self, other: Report) -> None:
        for fault, times in other.times.items():
            self.times[fault] += times
        self.jobs += other.jobs
        self.lost += other.lost
        self.ended += other.ended
        self.stale += other.stale
        self.broken += other.broken

    def judge(self, oracle: Oracle, broken: list[Broken]) -> None:
        """Add the verdict of the oracle."""
        self.broken += broken
        self.broken += [
            Broken("D", f"job {view.id} is {view.state.value} for {view.reason.value} ({view.detail})")
            for view in oracle.spoilt()
            if view.reason not in EXPECTED
        ]
        self.jobs = len(oracle.ids)
        self.ended = Counter(oracle.jobs[job].state.value.lower() for job in oracle.ids if job in oracle.jobs)

    @property
    def late(self) -> list[str]:
        """The take-overs that took longer than they shall take."""
        limits = {**dict.fromkeys(CRASHES, CRASH_S), **dict.fromkeys(ORDERLY, ORDERLY_S)}
        return [
            f"{fault}: {seconds:.2f} s"
            for fault, times in self.times.items()
            for seconds in times
            if seconds > limits.get(fault.partition(",")[0], float("inf"))
        ]

    def __str__(self) -> str:
        kinds = Counter(each.promise for each in self.broken)
        lines = [f"seed {self.seed}: {sum(map(len, self.times.values()))} faults"]
        lines += [
            f"{fault}: {len(times)}, until a controller leads: median {median(times):.2f} s, "
            f"longest {max(times):.2f} s"
            for fault, times in sorted(self.times.items())
        ]
        return "\n".join(
            [
                *lines,
                f"late: {', '.join(self.late) or 'none'}",
                f"{self.jobs} jobs acknowledged, {dict(self.ended)}, {self.lost} of an accepted loss",
                f"stale journal entries, or with a wrong time: {len(self.stale)}",
                f"acknowledged and lost (A): {kinds['A']}; doubled (B, C, E): "
                f"{kinds['B'] + kinds['C'] + kinds['E']}; other: {kinds['D'] + kinds['F'] + kinds['G']}",
                *map(str, [*self.stale, *self.broken]),
            ]
        )


def run(
    server: PostgresUnderTest,
    seed: int,
    count: int,
    program: Sequence[str] = ("controller",),
    faults: str = "",
    pool: str = "",
) -> Report:
    """Inject `count` faults into a new cluster under load, let it finish, and verify it."""
    report = Report(seed)
    database = server.new_database()
    with ExitStack() as stack:
        system = stack.enter_context(several_controllers(database, NODES, program=program))
        pooler = None
        if pool:
            pooler = Pooler(server, pool)
            stack.callback(pooler.stop)
            pooler.start()
            for proxy in system.proxies.values():
                proxy.target = pooler.port
        changeable(system)
        oracle = Oracle(system.start())
        stale = stack.enter_context(audited(database))
        takeovers = Takeovers(oracle, seed, faults, pooler)
        with takeovers.load():
            for _ in range(count):
                try:
                    fault, seconds = takeovers.strike()
                except AssertionError as error:
                    # Print the error now, because other clusters may run for a long time yet.
                    print(f"seed {seed}: failed: {error}", flush=True)
                    raise
                name = f"{fault}, pooler in {pool} mode" if pool else fault
                report.times[name].append(seconds)
                print(f"seed {seed}: {name}: {seconds:.2f} s", flush=True)
        report.judge(oracle, oracle.verify())
        report.stale = stale()
    return report


def run_promotions(seed: int, count: int) -> Report:
    """Promote `count` standby servers that lag behind, each in a new cluster, and verify the clusters."""
    total = Report(seed)
    for number in range(count):
        report = Report(seed)
        done = promote(seed + 1_000 * number, NODES, changeable)
        report.judge(done.oracle, done.broken)
        report.lost, report.stale = done.lost, done.stale
        name = f"standby promoted {done.entries} entries behind"
        print(f"seed {seed}: {name}, {done.lost} jobs lost: {done.seconds:.2f} s", flush=True)
        report.times["standby promoted 100 entries or more behind"].append(done.seconds)
        total.add(report)
    return total


def changeable(system: SeveralControllers) -> None:
    """Let each controller have a wrong clock and another version."""
    for member in system.members:
        if member.program == ("controller",):
            member.program = ("tests.takeovers.changed_controller", "--place", str(member.place))


def main() -> int:
    """Run and print; exit code 0 if all guarantees held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="number of faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=1, help="clusters that run at the same time")
    parser.add_argument("--faults", default="", help="only these faults, with commas between them")
    parser.add_argument("--pool", choices=("", "session", "transaction"), default="")
    parser.add_argument("--promote", action="store_true")
    given = parser.parse_args()
    total = Report(given.seed)
    parts = [len(range(index, given.count, given.clusters)) for index in range(given.clusters)]
    with postgres() as server, ThreadPoolExecutor(given.clusters) as pool:
        normal = partial(run, server, faults=given.faults, pool=given.pool)
        one = run_promotions if given.promote else normal
        for report in pool.map(lambda at: one(given.seed + at, parts[at]), range(given.clusters)):
            total.add(report)
    print(total)
    return 1 if total.broken or total.stale else 0


if __name__ == "__main__":
    sys.exit(main())
