"""Counts take-overs between two controllers under load, then asks the oracle:
`python -m tests.integration.controller.takeovers --count 200 --seed 7 --clusters 3`.

Each take-over has one fault of the leader: SIGTERM, SIGKILL, SIGSTOP for longer than the lease with a submit
that waits in its socket, or a cut connection to the database alone. The faulty controller is then started
again.
"""

from __future__ import annotations

import argparse
import random
import signal
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median

from sqlalchemy import create_engine, make_url, text

from tests.controller.store.servers import PostgresUnderTest, postgres
from tests.integration.controller.faults import EXPECTED, passing
from tests.limits import PATIENCE_S
from tests.oracle.oracle import Oracle
from tests.oracle.verdict import Broken
from tests.several_controllers import Member, SeveralControllers, several_controllers
from wire.api.jobs import SubmitRequest
from wire.codec import dumps, encode
from wire.http.client import Client
from wire.job.spec import JobSpec
from wire.names import JobState

NODES = ("gpu01", "gpu02")
BUSY = 12
"""Number of jobs that are kept in the queue or running."""
PAUSE_S = 0.1
LAST_TRIES = 20
"""How often the last submit is tried again. Each try already waits for a leader."""
ACTIVE = [state for state in JobState if not state.terminal]

# The database itself records which controller led when each journal entry was written, and which one wrote
# it.
_AUDIT = (
    "CREATE TABLE corral_control.audit (seq bigint, writer text, leader text)",
    "CREATE FUNCTION corral_control.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO corral_control.audit SELECT NEW.seq, current_setting('application_name'), "
    "(SELECT holder FROM corral_control.leader); RETURN NEW; END $$",
    "CREATE TRIGGER note AFTER INSERT ON journal FOR EACH ROW EXECUTE FUNCTION corral_control.note()",
)
_STALE = (
    "SELECT seq, writer, leader FROM corral_control.audit WHERE substring(writer from 'pid [0-9]+ on [^ ]+') "
    "IS DISTINCT FROM substring(leader from 'pid [0-9]+ on [^ ]+')"
)


@contextmanager
def audited(database: str) -> Iterator[Callable[[], list[Broken]]]:
    """Record the writer of each journal entry from now on. Yields a function that returns stale entries."""
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        for statement in _AUDIT:
            connection.execute(text(statement))

    def stale() -> list[Broken]:
        with engine.begin() as connection:
            found = connection.execute(text(_STALE)).all()
        return [
            Broken("L", f"entry {seq} was written by {writer} while {leader} led")
            for seq, writer, leader in found
        ]

    try:
        yield stale
    finally:
        engine.dispose()


@dataclass
class Report:
    """The take-overs by fault with their times in seconds, and the outcome."""

    seed: int
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    jobs: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    stale: list[Broken] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    def add(self, other: Report) -> None:
        for fault, times in other.times.items():
            self.times[fault] += times
        self.jobs += other.jobs
        self.ended += other.ended
        self.stale += other.stale
        self.broken += other.broken

    def __str__(self) -> str:
        kinds = Counter(each.promise for each in self.broken)
        lines = [f"seed {self.seed}: {sum(map(len, self.times.values()))} take-overs"]
        lines += [
            f"{fault}: {len(times)}, until another controller leads: median {median(times):.2f} s, "
            f"longest {max(times):.2f} s"
            for fault, times in sorted(self.times.items())
        ]
        return "\n".join(
            [
                *lines,
                f"{self.jobs} jobs acknowledged, {dict(self.ended)}",
                f"stale journal entries: {len(self.stale)}",
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
) -> Report:
    """Force `count` take-overs in a new cluster under load, let it finish, and verify it."""
    report = Report(seed)
    database = server.new_database()
    with several_controllers(database, NODES, program=program) as system:
        oracle = Oracle(system.start())
        with audited(database) as stale:
            takeovers = Takeovers(oracle, seed, faults)
            with takeovers.load():
                for _ in range(count):
                    try:
                        fault, seconds = takeovers.strike()
                    except AssertionError as error:
                        # Print the error now, because other clusters may run for a long time yet.
                        print(f"seed {seed}: failed: {error}", flush=True)
                        raise
                    report.times[fault].append(seconds)
                    print(f"seed {seed}: {fault}: {seconds:.2f} s", flush=True)
            report.broken, spoilt = oracle.verify(), oracle.spoilt()
            report.stale = stale()
    report.broken += [
        Broken("D", f"job {view.id} is {view.state.value} for {view.reason.value} ({view.detail})")
        for view in spoilt
        if view.reason not in EXPECTED
    ]
    report.jobs = len(oracle.ids)
    report.ended = Counter(oracle.jobs[job].state.value.lower() for job in oracle.ids if job in oracle.jobs)
    return report


class Takeovers:
    """Faults of the leader of a running system."""

    def __init__(self, oracle: Oracle, seed: int, faults: str = "") -> None:
        self.oracle = oracle
        assert isinstance(oracle.system, SeveralControllers)
        self.system: SeveralControllers = oracle.system
        self.seed = seed
        self.dice = random.Random(seed)
        known: dict[str, Callable[[Member, Member], float]] = {
            "killed": self._killed,
            "stopped": self._stopped,
            "cut from the database": self._cut,
            "terminated": self._terminated,
        }
        self._faults = {
            name: fault for name, fault in known.items() if not faults or name in faults.split(",")
        }

    def strike(self) -> tuple[str, float]:
        """Inject one fault into the leader. Return its name, and the seconds until the other controller
        leads.
        """
        time.sleep(self.dice.uniform(0.2, 1.5))
        leader, standby = self.system.leader(), self.system.standby()
        name = self.dice.choice(list(self._faults))
        seconds = self._faults[name](leader, standby)
        assert leader.process is not None
        leader.process.wait(PATIENCE_S)
        self.system.begin(leader)
        self.system.until(lambda: self.system.answers(leader), f"{leader.name} answers again")
        return name, seconds

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
        with self.system.client() as client:
            number = 0
            while not enough.is_set():
                number += 1
                spec = self.oracle.spec(self.dice.choice((0, 5, 20, 120)), gpus=1)
                tries = 0
                while not self._accepted(client, spec, f"job {number}"):
                    tries += enough.wait(PAUSE_S)
                    if tries > LAST_TRIES:
                        return  # no controller will come back: the run has failed
                while self._busy(client) and not enough.wait(PAUSE_S):
                    continue

    def _accepted(self, client: Client, spec: JobSpec, key: str) -> bool:
        with passing():
            return bool(self.oracle.submit(client, spec, key))
        return False

    def _busy(self, client: Client) -> bool:
        with passing():
            return client.jobs(states=ACTIVE, limit=1).total >= BUSY
        return True

    # --- faults: each returns the seconds until the standby leads ---

    def _killed(self, leader: Member, standby: Member) -> float:
        return self._until_led(standby, lambda: self._send(leader, signal.SIGKILL))

    def _terminated(self, leader: Member, standby: Member) -> float:
        return self._until_led(standby, lambda: self._send(leader, signal.SIGTERM))

    def _stopped(self, leader: Member, standby: Member) -> float:
        """A submit waits in the socket of the stopped leader, which continues when the other one leads."""
        seconds = self._until_led(standby, lambda: self._send(leader, signal.SIGSTOP))
        spec = self.oracle.spec(0)
        with self._queued_submit(leader, spec) as answer:
            time.sleep(self.dice.uniform(0.0, 1.0))
            self._send(leader, signal.SIGCONT)
            if answer().startswith(b"HTTP/1.1 201"):
                raise AssertionError("the stale leader has acknowledged a submit")
        return seconds

    def _cut(self, leader: Member, standby: Member) -> float:
        proxy = self.system.proxies[leader.name]
        try:
            return self._until_led(standby, proxy.cut)
        finally:
            proxy.heal()

    def _send(self, member: Member, number: int) -> None:
        assert member.process is not None
        member.process.send(number)

    def _until_led(self, standby: Member, fault: Callable[[], None]) -> float:
        began = time.monotonic()
        fault()

        def leads() -> bool:
            view = self.system.view(standby)
            return view is not None and any(each.this and each.role == "leader" for each in view.controllers)

        self.system.until(leads, f"{standby.name} leads")
        return time.monotonic() - began

    @contextmanager
    def _queued_submit(self, leader: Member, spec: JobSpec) -> Iterator[Callable[[], bytes]]:
        """Send a submit to a controller that stands still. Yields a function that waits for the answer."""
        body = dumps(encode(SubmitRequest(spec=spec))).encode()
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE_S)
            line.connect(f"{leader.socket}")
            head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            line.sendall(f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode() + body)

            def answer() -> bytes:
                with suppress(OSError):
                    return line.recv(4096)
                return b""

            yield answer


def main() -> int:
    """Run and print; exit code 0 if all guarantees held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="number of take-overs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=1, help="clusters that run at the same time")
    given = parser.parse_args()
    total = Report(given.seed)
    with postgres() as server, ThreadPoolExecutor(given.clusters) as pool:
        parts = [len(range(index, given.count, given.clusters)) for index in range(given.clusters)]
        for report in pool.map(lambda at: run(server, given.seed + at, parts[at]), range(given.clusters)):
            total.add(report)
    print(total)
    return 1 if total.broken or total.stale else 0


if __name__ == "__main__":
    sys.exit(main())
