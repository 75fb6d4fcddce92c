"""The faults of a leader under load. After each of them, another controller leads, or the same one again."""

from __future__ import annotations

import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from tests.integration.controller.faults import passing
from tests.limits import PATIENCE_S
from tests.oracle.oracle import Oracle
from tests.several_controllers import Member, SeveralControllers
from tests.takeovers.servers import Pooler
from wire.api.jobs import SubmitRequest
from wire.codec import dumps, encode
from wire.http.client import Client
from wire.job.spec import JobSpec
from wire.job.start_conditions import OnNodeLost, Restart
from wire.names import JobState

BUSY = 12
"""Number of jobs that are kept in the queue or running."""
PAUSE_S = 0.1
LAST_TRIES = 20
"""How often the last submit is tried again. Each try already waits for a leader."""
WRONG_CLOCK_S = 3600
ACTIVE = [state for state in JobState if not state.terminal]
CRASHES = "killed", "stopped", "cut from the database", "cut from the agents", "clock ahead", "clock behind"
ORDERLY = "terminated", "upgraded"
POOLER = "pooler restarted"


class Takeovers:
    """Faults of the leader of a running system."""

    def __init__(self, oracle: Oracle, seed: int, faults: str = "", pooler: Pooler | None = None) -> None:
        self.oracle = oracle
        assert isinstance(oracle.system, SeveralControllers)
        self.system: SeveralControllers = oracle.system
        self.dice = random.Random(seed)
        self._pooler = pooler
        self._versions = 0
        known: dict[str, Callable[[Member, Member], float]] = {
            "killed": self._killed,
            "stopped": self._stopped,
            "cut from the database": self._cut_from_database,
            "cut from the agents": self._cut_from_agents,
            "clock ahead": lambda leader, standby: self._wrong_clock(leader, standby, WRONG_CLOCK_S),
            "clock behind": lambda leader, standby: self._wrong_clock(leader, standby, -WRONG_CLOCK_S),
            "terminated": self._terminated,
            "upgraded": self._upgraded,
        }
        if pooler is not None:
            known[POOLER] = self._pooler_restarted
        wanted = faults.split(",") if faults else list(known)
        self._faults = {name: fault for name, fault in known.items() if name in wanted}

    def strike(self) -> tuple[str, float]:
        """Inject one fault into the leader. Return its name, and the seconds until a controller leads."""
        time.sleep(self.dice.uniform(0.2, 1.5))
        leader, standby = self.system.leader(), self.system.standby()
        name = self.dice.choice(list(self._faults))
        seconds = self._faults[name](leader, standby)
        if name != POOLER:
            assert leader.process is not None
            leader.process.wait(PATIENCE_S)
        for member in self.system.members:
            if not member.runs:
                self.system.begin(member)
        for member in self.system.members:
            self.system.until(lambda member=member: self.system.answers(member), f"{member.name} answers")
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
        dice = random.Random(self.dice.random())
        with self.system.client() as client:
            number = len(self.oracle.ids)
            while not enough.is_set():
                number += 1
                policy, endless = dice.choice((OnNodeLost.WAIT, OnNodeLost.REQUEUE)), Restart(limit=None)
                beats = dice.choice((0, 5, 20, 120))
                spec = self.oracle.spec(beats, gpus=1, on_node_lost=policy, restart=endless)
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

    def _cut_from_database(self, leader: Member, standby: Member) -> float:
        proxy = self.system.proxies[leader.name]
        try:
            return self._until_led(standby, proxy.cut)
        finally:
            proxy.heal()

    def _cut_from_agents(self, leader: Member, standby: Member) -> float:
        """Nothing passes between the leader and its agents, which stand still. Then the leader is killed. The
        agents of the former leader continue while the next leader starts its own.
        """
        agents = self.system.processes("agent")
        for agent in agents:
            agent.send(signal.SIGSTOP)
        time.sleep(self.dice.choice((0.5, 2.0, 5.0, 20.0)))
        try:
            return self._killed(leader, standby)
        finally:
            time.sleep(self.dice.uniform(0.0, 1.0))
            for agent in agents:
                agent.send(signal.SIGCONT)

    def _wrong_clock(self, leader: Member, standby: Member, wrong_s: int) -> float:
        """The clock of the leader's host jumps. The leader commits with it, then ends or is killed."""
        clock = leader.place / "clock"
        clock.write_text(str(wrong_s))
        time.sleep(self.dice.uniform(1.0, 3.0))
        seconds = self._killed(leader, standby)
        if self.dice.random() < 0.5:  # The other starts of this controller keep the wrong clock.
            clock.unlink()
        return seconds

    def _upgraded(self, leader: Member, standby: Member) -> float:
        """First the standby gets another version, then the leader."""
        self._versions += 1
        for member in (standby, leader):
            (member.place / "version").write_text(f"9.0.{self._versions}")
        self._send(standby, signal.SIGTERM)
        assert standby.process is not None
        standby.process.wait(PATIENCE_S)
        self.system.begin(standby)
        self.system.until(lambda: self.system.answers(standby), f"{standby.name} answers")
        return self._terminated(leader, standby)

    def _pooler_restarted(self, _leader: Member, _standby: Member) -> float:
        """All connections to the database end. Return the seconds until a controller writes again."""
        assert self._pooler is not None
        self._pooler.stop()
        time.sleep(self.dice.choice((0.0, 1.0, 4.0, 12.0)))
        self._pooler.start()
        began = time.monotonic()
        with self.system.client() as client:
            spec = self.oracle.spec(0)
            key = f"after restart {began}"
            self.system.until(lambda: self._accepted(client, spec, key), "a controller writes again")
        return time.monotonic() - began

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
