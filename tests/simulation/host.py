"""Hosts that can crash: agent, spool and processes, each on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from controller.sim.generate.random_numbers import RandomStream
from controller.sim.replay.replay_clock import Clock
from controller.sim.virtual_agents import PlannedRun
from tests.simulation.oracle import GuaranteeOracle, ProcessRecord
from wire.agent.frames import AgentFrame, ControllerFrame
from wire.agent.orders import CheckGpu, Go, ResetGpu, Settle, Start, Stop
from wire.agent.reports import AttemptStatus, Checkpoint, GpuChecked, GpuReset, Hello, NodeFacts, Report

Key = tuple[int, int]
LAUNCH_S = 2.0
"""Most seconds from start order to process."""
FAILED_LAUNCHES = 0.01
LOOK_S = 10.0
"""Seconds between lease checks of supervisors."""
LEASE_OVER = "node_lost: no message from the controller for longer than the lease"


@dataclass(slots=True)
class Record:
    """An attempt in the spool."""

    status: AttemptStatus
    boot: int
    order: Start | None = None
    stop: Stop | None = None
    launched: bool = False
    released: bool = False
    """Whether its gang is complete."""
    settled: bool = False
    run: ProcessRecord | None = None

    @property
    def over(self) -> bool:
        """Return whether the attempt has ended."""
        return self.status.ended_at is not None


class SimulatedHost:
    """Obeys orders like the real agent (attempt_states.py). Its spool survives agent restarts and reboots."""

    def __init__(
        self,
        name: str,
        facts: NodeFacts,
        clock: Clock,
        rng: RandomStream,
        truth: GuaranteeOracle,
        course: Callable[[Start], PlannedRun],
        tell: Callable[[AgentFrame], None],
        in_touch: Callable[[], bool],
    ) -> None:
        self.name = name
        self.up = True
        """Whether its agent runs."""
        self.slowness = 1.0
        self.missing = 0
        """GPUs that have disappeared from the bus."""
        self.sick: set[str] = set()
        self.boots = 1
        self.heard = 0.0
        """Time of the last message of the controller, from which leases count."""
        self.spool: dict[Key, Record] = {}
        self._facts = facts
        self._clock = clock
        self._rng = rng
        self._truth = truth
        self._course = course
        self._tell = tell
        self._in_touch = in_touch

    @property
    def facts(self) -> NodeFacts:
        """The present facts of the host."""
        return replace(self._facts, gpus=self._facts.gpus[: len(self._facts.gpus) - self.missing])

    def hello(self) -> Hello:
        """The hello of the agent."""
        told = tuple(record.status for record in self.spool.values() if not record.settled)
        return Hello(self.name, "virtual", f"{self.name}-{self.boots}", "virtual", self.facts, told)

    def unsettled(self) -> list[Key]:
        """Ended attempts that the controller has not settled."""
        return [key for key, record in self.spool.items() if not record.settled]

    # --- orders ---

    def obey(self, frame: ControllerFrame) -> None:
        """Carry out an order."""
        self.heard = self._clock.now
        if isinstance(frame, Start):
            self._start(frame)
        elif isinstance(frame, Stop):
            self._stop(frame)
        elif isinstance(frame, Settle) and (record := self.spool.get((frame.job, frame.attempt))):
            record.settled = record.over
        elif isinstance(frame, Go):
            self._go((frame.job, frame.attempt))
        elif isinstance(frame, CheckGpu):
            boot = self.boots
            self._clock.after(frame.after_s, lambda: self._look(frame.uuid, boot))
        elif isinstance(frame, ResetGpu):
            boot = self.boots
            self._clock.after(frame.after_s, lambda: self._reset(frame.uuid, boot))

    def _reset(self, uuid: str, boot: int) -> None:
        if self.up and boot == self.boots:
            self._tell(GpuReset(uuid, uuid not in self.sick, "virtual" if uuid in self.sick else ""))

    def _look(self, uuid: str, boot: int) -> None:
        if self.up and boot == self.boots:
            self._tell(GpuChecked(uuid, uuid not in self.sick, "virtual" if uuid in self.sick else ""))

    def _start(self, order: Start) -> None:
        key, now = (order.job, order.attempt), self._clock.now
        if key in self.spool:
            self._tell(Report(self.spool[key].status))
            return
        newest = max((attempt for job, attempt in self.spool if job == order.job), default=-1)
        if order.attempt < newest:
            why = f"refused: attempt {newest} of job {order.job} was already seen here"
            self._tell(Report(AttemptStatus(*key, ended_at=now, why=why)))
            return
        older = [each for each in self._unended(order.job) if each != key]
        self.spool[key] = Record(AttemptStatus(*key), self.boots, order, launched=not older)
        if not older:
            self._launch(key)
        for job, attempt in older:
            self._stop(Stop(job, attempt, 0.0, "superseded"))

    def _stop(self, stop: Stop) -> None:
        key = (stop.job, stop.attempt)
        record = self.spool.get(key)
        if record is None:
            never = AttemptStatus(*key, ended_at=self._clock.now, why=stop.why)
            record = self.spool[key] = Record(never, self.boots)
        if record.over:
            self._tell(Report(record.status))
            return
        record.stop = record.stop or stop
        if record.run is not None:
            pause = self._rng.between(0.0, stop.checkpoint_s + stop.grace_s)
            self._clock.after(pause, lambda: self._end_by(key, record.run, stop.why))
        elif not record.launched or record.status.ready:
            record.launched = True
            self._launch(key)  # because the launch, or the wait at the gang barrier, finds the stop order

    def _go(self, key: Key) -> None:
        record = self.spool.get(key)
        if record is not None and not record.released:
            record.released = True
            if record.status.ready:
                self._launch(key)

    # --- processes ---

    def _launch(self, key: Key) -> None:
        boot = self.boots
        self._clock.after(self._rng.between(0.0, LAUNCH_S), lambda: self._begin(key, boot))

    def _begin(self, key: Key, boot: int) -> None:
        record = self.spool.get(key)
        if boot != self.boots or record is None or record.over:
            return
        if record.boot != self.boots:
            return  # because a supervisor ends an attempt of an earlier boot, even after the order to go
        order = record.order
        assert order is not None
        if record.stop is not None:
            self._over(key, replace(record.status, ended_at=self._clock.now, why=record.stop.why))
        elif record.run is not None:
            return
        elif not record.status.ready and self._rng.chance(FAILED_LAUNCHES):
            self._over(key, replace(record.status, ended_at=self._clock.now, why="launch_failed: bad luck"))
        elif order.barrier and not record.released:
            record.status = replace(record.status, ready=True)
            self._report(record.status)
            self._mind_lease(key, record)
        else:
            status = replace(record.status, pid=order.job, started_at=self._clock.now)
            record.status = status
            record.run = self._truth.begins(order, self.name, self.facts, status)
            self._report(status)
            self._let_run(key, record.run)
            self._let_save(key, record.run)
            if not order.barrier:
                self._mind_lease(key, record)

    def _let_run(self, key: Key, run: ProcessRecord) -> None:
        course, limit = self._course(run.order), run.order.time_limit_s
        runtime = course.runtime_s * self.slowness
        if limit is not None and limit < runtime:
            grace = self._rng.between(0.0, run.order.grace_s)
            self._clock.after(limit + grace, lambda: self._end_by(key, run, "time_limit"))
        else:
            self._clock.after(runtime, lambda: self._end(key, run, course.code))

    def _let_save(self, key: Key, run: ProcessRecord) -> None:
        """Some jobs save checkpoints by themselves."""
        if run.order.checkpoint_signal and self._rng.chance(0.5):
            self._clock.after(self._rng.between(0.0, 3_600.0), lambda: self._save(key, run))

    def _save(self, key: Key, run: ProcessRecord) -> None:
        record = self.spool.get(key)
        if run.over or record is None:
            return
        found = Checkpoint(f"/saved/{run.order.job}", run.order.attempt, self._clock.now)
        record.status = run.status = replace(record.status, checkpoint=found)
        self._report(record.status)
        self._let_save(key, run)

    def _mind_lease(self, key: Key, record: Record) -> None:
        """Supervisors check leases, with or without an agent."""
        assert record.order is not None
        lease_s = record.order.lease_s

        def look() -> None:
            if record.boot != self.boots or record.over or lease_s is None:
                return
            if self._in_touch():
                self.heard = self._clock.now
            if self._clock.now < self.heard + lease_s:
                self._clock.after(LOOK_S, look)
            elif record.run is not None:
                grace = self._rng.between(0.0, record.run.order.grace_s)
                self._clock.after(grace, lambda: self._end_by(key, record.run, LEASE_OVER))
            elif record.status.ready:
                self._over(key, replace(record.status, ended_at=self._clock.now, why=LEASE_OVER))

        if lease_s is not None:
            look()

    def _end_by(self, key: Key, run: ProcessRecord | None, why: str) -> None:
        """Stop the process; some exit with a code of their own."""
        if self._rng.chance(0.3):
            self._end(key, run, int(self._rng.uniform() * 2), None, why)
        else:
            self._end(key, run, None, 15, why)

    def _end(
        self, key: Key, run: ProcessRecord | None, code: int | None, signal: int | None = None, why: str = ""
    ) -> None:
        if run is None or run.over:
            return
        record, now = self.spool.get(key), self._clock.now
        saved = run.status.checkpoint
        if record is not None and record.stop is not None:
            why = why or record.stop.why  # because an end after the stop order counts as caused by it
            if record.stop.checkpoint_s and self._rng.chance(0.8):
                saved = Checkpoint(f"/saved/{key[0]}", key[1], now)
        status = replace(run.status, ended_at=now, code=code, signal=signal, why=why, checkpoint=saved)
        self._truth.ends(run, status)
        if record is not None:
            self._over(key, status)

    def _over(self, key: Key, status: AttemptStatus) -> None:
        self.spool[key].status = status
        self._report(status)
        for other in self._unended(key[0])[:1]:
            if not self.spool[other].launched:
                self.spool[other].launched = True
                self._launch(other)

    def _unended(self, job: int) -> list[Key]:
        return sorted(key for key, record in self.spool.items() if key[0] == job and not record.over)

    def _report(self, status: AttemptStatus) -> None:
        if self.up:  # otherwise the spool has it, and the next hello reports it
            self._tell(Report(status))

    # --- faults ---

    def reboot(self, *, wiped: bool) -> None:
        """All processes end at once; the spool is lost too if `wiped`."""
        self.up = False
        self.boots += 1
        for run in [*self._truth.alive[self.name]]:
            self._truth.ends(run, replace(run.status, ended_at=self._clock.now), lost=True)
        if wiped:
            for record in self.spool.values():
                if record.run is not None:
                    record.run.forgotten = True
            self.spool.clear()

    def wake(self) -> None:
        """The agent starts; unfinished attempts of an earlier boot are reported lost."""
        self.up = True
        for key, record in [*self.spool.items()]:
            if record.boot != self.boots and not record.over:
                self._clock.after(self._rng.uniform(), lambda key=key: self._give_up(key))  # type: ignore[misc]

    def _give_up(self, key: Key) -> None:
        record = self.spool.get(key)
        if record is not None and record.boot != self.boots and not record.over:
            why = "supervisor_lost: the host rebooted"
            self._over(key, replace(record.status, ended_at=self._clock.now, why=why))
