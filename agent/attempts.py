"""Decisions about attempts, pure: frames and facts in, instructions out, in the order they are to be done.

No clock, no files, no processes. What must be on disk before somebody is told stands before the telling.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from agent.holders import Holder
from agent.instructions import (
    Forget,
    GiveUp,
    Halt,
    HandOver,
    Instruction,
    Keep,
    KeepEnded,
    PutAway,
    Release,
    Tell,
    Watch,
)
from agent.spool import Found, Key, learn
from wire.frames import AttemptStatus, Checkpoint, Go, Report, Settle, Start, Stop

UNFIT = "node_unfit"
"""An attempt that could not begin because its host lacks what every attempt needs: it goes elsewhere."""


@dataclass
class Attempt:
    """One attempt; `order` is dropped once it ended, `supervisor` is the pid being watched."""

    status: AttemptStatus
    order: Start | None = None
    launched: bool = False
    supervisor: int | None = None
    stop: Stop | None = None
    losses: int = 0
    settled: bool = False
    released: bool = False

    @property
    def over(self) -> bool:
        """Has it ended?"""
        return self.status.ended_at is not None


class Attempts:
    """Every attempt this node remembers."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._known: dict[Key, Attempt] = {}
        self._of_job: dict[int, list[int]] = {}
        self._settled: deque[Key] = deque()

    # --- what is asked ---

    def unsettled(self) -> tuple[AttemptStatus, ...]:
        """What a hello tells."""
        return tuple(attempt.status for attempt in self._known.values() if not attempt.settled)

    def over(self, key: Key) -> bool | None:
        """Has this attempt ended? None if nobody here knows it."""
        attempt = self._known.get(key)
        return None if attempt is None else attempt.over

    def started(self, key: Key) -> bool:
        """Has its process been seen?"""
        attempt = self._known.get(key)
        return attempt is not None and attempt.status.pid is not None

    def order(self, key: Key) -> Start | None:
        """The order of an attempt that has not ended."""
        attempt = self._known.get(key)
        return None if attempt is None else attempt.order

    def running(self, key: Key) -> Start | None:
        """The order of an attempt whose process is there."""
        attempt = self._known.get(key)
        return attempt.order if attempt is not None and attempt.status.pid is not None else None

    def keys(self) -> list[Key]:
        """The attempts whose processes are there."""
        return [key for key, each in self._known.items() if each.status.pid is not None and not each.over]

    def supervisors(self) -> list[tuple[Key, int | None]]:
        """Attempts that must have a supervisor, and which one is being watched."""
        return [
            (key, each.supervisor) for key, each in self._known.items() if each.launched and not each.over
        ]

    def holders(self) -> list[Holder]:
        """The attempts that run and hold GPUs."""
        return [
            Holder(
                *key,
                each.order.user,
                each.order.command[0],
                each.status.pid,
                each.supervisor,
                each.order.gpus,
            )
            for key, each in self._known.items()
            if each.order is not None and each.status.pid is not None and each.order.gpus
        ]

    # --- after a start of the agent ---

    def adopt(self, found: Found, holder: int | None = None, settled: bool = False) -> None:
        """Take over what an earlier agent left in the spool; `holder` is the living supervisor."""
        status = found.status
        key = (status.job, status.attempt)
        over = status.ended_at is not None
        order, stop = (None, None) if over else (found.order, found.stop)
        self._remember(key, Attempt(status, order, supervisor=holder, stop=stop, settled=settled))
        if settled:
            self._settled.append(key)

    def resume(self) -> list[Instruction]:
        """What has to be done about everything that was adopted, once the hello is out."""
        done: list[Instruction] = []
        for key, attempt in self._known.items():
            if attempt.over:
                continue
            if attempt.supervisor is not None:
                attempt.launched = True
                done += self._watch(key, attempt, attempt.supervisor)
            elif self._alive(key[0])[0] == key:
                attempt.launched = True
                done.append(HandOver(key))
        return done + self._retire()

    # --- what the controller orders ---

    def start(self, order: Start, now: float) -> list[Instruction]:
        """Run it, unless it is known already or overtaken by a newer attempt."""
        key = (order.job, order.attempt)
        if key in self._known:
            return [Tell(Report(self._known[key].status))]
        newest = self._newest(order.job)
        if order.attempt < newest:
            why = f"refused: attempt {newest} of job {order.job} was already seen here"
            return [Tell(Report(AttemptStatus(*key, ended_at=now, why=why)))]
        older = self._alive(order.job)
        self._remember(key, Attempt(AttemptStatus(*key), order, launched=not older))
        if not older:
            return [Keep(order), HandOver(key)]
        done: list[Instruction] = [Keep(order)]
        for job, attempt in older:
            done += self.stop(Stop(job, attempt, 0.0, "superseded"), now)
        return done

    def not_kept(self, key: Key, now: float, why: str) -> list[Instruction]:
        """The order could not be written down: it never was."""
        self._drop(key)
        return [Tell(Report(AttemptStatus(*key, ended_at=now, why=f"{UNFIT}: {why}")))]

    def stop(self, stop: Stop, now: float) -> list[Instruction]:
        """End it; what is unknown is remembered as ended, so that it can never start."""
        key = (stop.job, stop.attempt)
        attempt = self._known.get(key)
        if attempt is None:
            status = AttemptStatus(*key, ended_at=now, why=stop.why)
            if stop.attempt < self._newest(stop.job):
                return [Tell(Report(status))]
            self._remember(key, Attempt(status))
            return [KeepEnded(status), Tell(Report(status))]
        if attempt.over:
            return [Tell(Report(attempt.status))]
        if attempt.stop is not None:
            grace = min(stop.grace_s, attempt.stop.grace_s)
            saving = min(stop.checkpoint_s, attempt.stop.checkpoint_s)
            stop = replace(attempt.stop, grace_s=grace, checkpoint_s=saving)
        attempt.stop = stop
        if attempt.launched:
            return [Halt(stop)]
        attempt.launched = True
        return [Halt(stop), HandOver(key)]  # its supervisor finds the order to stop and records the end

    def go(self, go: Go) -> list[Instruction]:
        """Its gang is complete."""
        attempt = self._known.get((go.job, go.attempt))
        if attempt is None or attempt.over or attempt.status.pid is not None:
            return []
        attempt.released = True
        return [Release((go.job, go.attempt))]

    def saved(self, key: Key, checkpoint: Checkpoint) -> list[Instruction]:
        """A job that runs has saved something new."""
        attempt = self._known.get(key)
        if attempt is None or attempt.over or attempt.status.pid is None:
            return []
        return self._update(key, attempt, replace(attempt.status, checkpoint=checkpoint))

    def settle(self, settle: Settle) -> list[Instruction]:
        """The end is on record over there."""
        key = (settle.job, settle.attempt)
        attempt = self._known.get(key)
        if attempt is None or not attempt.over or attempt.settled:
            return []
        attempt.settled = True
        self._settled.append(key)
        return [PutAway(key), *self._retire()]

    # --- what nursery and supervisors tell ---

    def hear(self, key: Key, fact: list[str]) -> list[Instruction]:
        """A hint from the FIFO; may come twice, late, or about something forgotten."""
        attempt = self._known.get(key)
        if attempt is None or attempt.over:
            return []
        if fact[0] == "forked":
            return self._watch(key, attempt, int(fact[1]))
        if fact[0] == "unforked":
            return [GiveUp(key, f"{UNFIT}: cannot fork a supervisor: {' '.join(fact[1:])}")]
        return self._update(key, attempt, learn(attempt.status, fact))

    def lost_sight(self, key: Key, found: Found, holder: int | None) -> list[Instruction]:
        """The watched supervisor is gone; this is what its record says, and who holds that now."""
        attempt = self._known.get(key)
        if attempt is None or attempt.over:
            return []
        attempt.supervisor = None
        done = self._update(key, attempt, found.status) if found.status != attempt.status else []
        if attempt.over:
            return done
        if holder is not None:
            return done + self._watch(key, attempt, holder)
        attempt.losses += 1
        return [*done, HandOver(key, after_s=min(30.0, 0.5 * (attempt.losses - 1)))]

    def lost_nursery(self) -> list[Instruction]:
        """Launches under way may be lost; those that are not find their record held and vanish."""
        return [HandOver(key) for key, pid in self.supervisors() if pid is None]

    def _watch(self, key: Key, attempt: Attempt, pid: int) -> list[Instruction]:
        attempt.supervisor = pid
        halt: list[Instruction] = [Halt(attempt.stop)] if attempt.stop is not None else []
        release: list[Instruction] = [Release(key)] if attempt.released else []
        return [Watch(key, pid), *halt, *release]

    def _update(self, key: Key, attempt: Attempt, status: AttemptStatus) -> list[Instruction]:
        if status == attempt.status:
            return []
        attempt.status = status
        if not attempt.over:
            return [Tell(Report(status))]
        attempt.order = attempt.supervisor = attempt.stop = None
        return [Tell(Report(status)), *self._let_next(key[0])]

    def _let_next(self, job: int) -> list[Instruction]:
        """A newer attempt of the job may have waited for this end."""
        for key in self._alive(job)[:1]:
            if not self._known[key].launched:
                self._known[key].launched = True
                return [HandOver(key)]
        return []

    def _alive(self, job: int) -> list[Key]:
        """The attempts of a job that have not ended, oldest first."""
        keys = [(job, attempt) for attempt in sorted(self._of_job.get(job, ()))]
        return [key for key in keys if not self._known[key].over]

    def _newest(self, job: int) -> int:
        return max(self._of_job.get(job, ()), default=-1)

    # --- memory ---

    def _remember(self, key: Key, attempt: Attempt) -> None:
        self._known[key] = attempt
        self._of_job.setdefault(key[0], []).append(key[1])

    def _drop(self, key: Key) -> None:
        del self._known[key]
        self._of_job[key[0]].remove(key[1])
        if not self._of_job[key[0]]:
            del self._of_job[key[0]]

    def _retire(self) -> list[Instruction]:
        done: list[Instruction] = []
        while len(self._settled) > self._keep:
            key = self._settled.popleft()
            self._drop(key)
            done.append(Forget(key))
        return done
