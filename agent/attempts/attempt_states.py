"""Decides which actions the agent takes after each order of the controller and each change of an attempt.
This module has no clock and no I/O.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from agent.attempts.actions import (
    AttemptAction,
    DeleteLogs,
    FailLaunch,
    LaunchSupervisor,
    MoveToSettled,
    RecordEnd,
    RecordOrder,
    ReleaseBarrier,
    RequestStop,
    SendReport,
    WatchSupervisor,
)
from agent.attempts.spool import AttemptKey, SpooledAttempt, apply_fact
from agent.gpus.process_owners import GpuHolder, simulated_load
from wire.agent.orders import Go, Settle, Start, Stop
from wire.agent.reports import AttemptStatus, Checkpoint, Report
from wire.dataclass import dataclass

NODE_UNFIT = "node_unfit"
"""The first word of the reason `why` in the status of an attempt that this host could not start. The
controller then tries another node.
"""


@dataclass
class AttemptState:
    status: AttemptStatus
    order: Start | None = None
    """The start order; None if the attempt has ended or never had a start order on this node."""
    launched: bool = False
    """Whether a launch spec was sent to the fork server, by this agent or by an earlier one."""
    supervisor: int | None = None
    """The pid of the supervisor that the agent watches; None if the agent watches no supervisor of the
    attempt.
    """
    stop: Stop | None = None
    losses: int = 0
    """The number of supervisors of this attempt that exited without recording an end."""
    user: str = ""
    settled: bool = False
    """Whether the controller has recorded the end of the attempt."""
    released: bool = False
    """Whether the controller has sent Go, the order with which the gang starts."""

    @property
    def ended(self) -> bool:
        """Return whether the end of the attempt is recorded in the spool."""
        return self.status.ended_at is not None


class AttemptStates:
    """The state machine of all attempts on this node.

    Life of an attempt
    1. `start`: record the order, then launch a supervisor. If an older attempt of the same job has not ended,
       stop the older attempt, and launch this attempt after its end.
    2. `apply_hint` "forked": watch the supervisor. If a stop order, or Go for a gang member, arrived before
       the supervisor ran, write this order again and wake the supervisor.
    3. `apply_hint` "ready" (gang members), "started", "checkpoint": change the status and report the new
       status.
    4. `apply_hint` "ended", or `supervisor_gone` with "ended" in the record: report the end.
    5. `settle`: the controller has recorded the end. Delete the logs only when `keep` newer attempts are
       settled.

    If a supervisor exits without recording an end, launch another supervisor: the first time at once, then
    after 0.5, 1 ... 30 s. This supervisor ends the processes that are left and records `supervisor_lost`.

    Invariants
    - An attempt is launched only when all older attempts of its job have ended.
    - RecordOrder comes before LaunchSupervisor, so that the spool has a record of every attempt that runs.
    - A repeated start order only sends the report again. A repeated stop order can only make the end earlier.
      A repeated hint has no effect.
    Cost: proportional to the number of attempts of the same job, for each order and hint.

    Example: `start(7.1)` returns [RecordOrder, LaunchSupervisor 7.1]. `start(7.2)` before 7.1 has ended
    returns [RecordOrder, RequestStop 7.1 "superseded"]. The hint "ended" of 7.1 returns [SendReport,
    LaunchSupervisor 7.2]. `start(7.1)` again only repeats the report of 7.1.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._known: dict[AttemptKey, AttemptState] = {}
        self._of_job: dict[int, list[int]] = {}
        self._settled: deque[AttemptKey] = deque()

    # --- the state of one attempt or of all attempts ---

    def unsettled(self) -> tuple[AttemptStatus, ...]:
        """Return the statuses of all attempts whose end the controller has not stored yet. The agent sends
        these statuses when it connects.
        """
        return tuple(attempt.status for attempt in self._known.values() if not attempt.settled)

    def has_ended(self, key: AttemptKey) -> bool | None:
        """Return whether this attempt has ended; None if this node has no record of the attempt."""
        attempt = self._known.get(key)
        return None if attempt is None else attempt.ended

    def started(self, key: AttemptKey) -> bool:
        attempt = self._known.get(key)
        return attempt is not None and attempt.status.pid is not None

    def order(self, key: AttemptKey) -> Start | None:
        """Return the start order of an attempt. Return None if the attempt has ended, or if this node has no
        start order for the attempt.
        """
        attempt = self._known.get(key)
        return None if attempt is None else attempt.order

    def running_order(self, key: AttemptKey) -> Start | None:
        """Return the start order of an attempt whose program runs; None for any other attempt."""
        attempt = self._known.get(key)
        return attempt.order if attempt is not None and attempt.status.pid is not None else None

    def pid(self, key: AttemptKey) -> int | None:
        """Return the pid of the attempt's first process; None for an attempt that has not started."""
        attempt = self._known.get(key)
        return None if attempt is None else attempt.status.pid

    def user(self, key: AttemptKey) -> str:
        """Return the user of the attempt's job; empty if this node never had a start order of the attempt."""
        attempt = self._known.get(key)
        return "" if attempt is None else attempt.user

    def running_keys(self) -> list[AttemptKey]:
        return [key for key, each in self._known.items() if each.status.pid is not None and not each.ended]

    def supervisors(self) -> list[tuple[AttemptKey, int | None]]:
        """Return a pair (attempt, pid of its supervisor) for each launched attempt that has not ended. If the
        agent watches no supervisor of the attempt, the pid is None.
        """
        return [
            (key, each.supervisor) for key, each in self._known.items() if each.launched and not each.ended
        ]

    def gpu_holders(self) -> list[GpuHolder]:
        return [
            GpuHolder(
                *key,
                each.order.user,
                each.order.command[0],
                each.status.pid,
                each.supervisor,
                each.order.gpus,
                simulated_load=simulated_load(each.order.env),
            )
            for key, each in self._known.items()
            if each.order is not None and each.status.pid is not None and each.order.gpus
        ]

    # --- attempts of earlier agents, when this agent starts ---

    def adopt(self, found: SpooledAttempt, holder: int | None = None, settled: bool = False) -> None:
        """Add an attempt that an earlier agent has recorded. `holder` is the pid of the attempt's supervisor;
        None if no supervisor runs. `settled` is True if the controller has stored the attempt's end.
        """
        status = found.status
        key = (status.job, status.attempt)
        ended = status.ended_at is not None
        order, stop = (None, None) if ended else (found.order, found.stop)
        user = "" if found.order is None else found.order.user
        self._remember(
            key, AttemptState(status, order, supervisor=holder, stop=stop, settled=settled, user=user)
        )
        if settled:
            self._settled.append(key)

    def resume(self) -> list[AttemptAction]:
        """Continue the attempts of earlier agents: watch each supervisor that still runs. For each job,
        launch a supervisor for the oldest attempt that has not ended, if this attempt has no supervisor.
        """
        actions: list[AttemptAction] = []
        for key, attempt in self._known.items():
            if attempt.ended:
                continue
            if attempt.supervisor is not None:
                attempt.launched = True
                actions += self._watch(key, attempt, attempt.supervisor)
            elif self._not_ended(key[0])[0] == key:
                attempt.launched = True
                actions.append(LaunchSupervisor(key))
        return actions + self._delete_surplus()

    # --- orders of the controller ---

    def start(self, order: Start, now: float) -> list[AttemptAction]:
        """Record an attempt, and launch this attempt when all older attempts of its job have ended. If this
        attempt is already recorded, only report its state. If a newer attempt of the job is recorded, refuse
        this attempt.
        """
        key = (order.job, order.attempt)
        if key in self._known:
            return [SendReport(Report(self._known[key].status))]
        newest = self._newest(order.job)
        if order.attempt < newest:
            why = f"refused: attempt {newest} of job {order.job} was already seen here"
            return [SendReport(Report(AttemptStatus(*key, ended_at=now, why=why)))]
        older = self._not_ended(order.job)
        self._remember(key, AttemptState(AttemptStatus(*key), order, launched=not older, user=order.user))
        if not older:
            return [RecordOrder(order), LaunchSupervisor(key)]
        actions: list[AttemptAction] = [RecordOrder(order)]
        for job, attempt in older:
            actions += self.stop(Stop(job, attempt, 0.0, "superseded"), now)
        return actions

    def record_failed(self, key: AttemptKey, now: float, why: str) -> list[AttemptAction]:
        """Remove an attempt whose start order could not be written to the spool, and report the end of the
        attempt to the controller.
        """
        self._drop(key)
        return [SendReport(Report(AttemptStatus(*key, ended_at=now, why=f"{NODE_UNFIT}: {why}")))]

    def stop(self, stop: Stop, now: float) -> list[AttemptAction]:
        """Stop an attempt. If the attempt has ended, only report its state. If this node has no record of the
        attempt, record the attempt as ended, so that a start order which arrives later has no effect.
        """
        key = (stop.job, stop.attempt)
        attempt = self._known.get(key)
        if attempt is None:
            status = AttemptStatus(*key, ended_at=now, why=stop.why)
            if stop.attempt < self._newest(stop.job):
                return [SendReport(Report(status))]
            self._remember(key, AttemptState(status))
            return [RecordEnd(status), SendReport(Report(status))]
        if attempt.ended:
            return [SendReport(Report(attempt.status))]
        if attempt.stop is not None:
            grace = min(stop.grace_s, attempt.stop.grace_s)
            saving = min(stop.checkpoint_s, attempt.stop.checkpoint_s)
            stop = replace(attempt.stop, grace_s=grace, checkpoint_s=saving)
        attempt.stop = stop
        if attempt.launched:
            return [RequestStop(stop)]
        # Launch a supervisor for the attempt although it must not run. The supervisor finds the stop order,
        # starts no job, and records the end of the attempt.
        attempt.launched = True
        return [RequestStop(stop), LaunchSupervisor(key)]

    def release(self, go: Go) -> list[AttemptAction]:
        """Let a gang member start its program, because all members of the gang are ready."""
        attempt = self._known.get((go.job, go.attempt))
        if attempt is None or attempt.ended or attempt.status.pid is not None:
            return []
        attempt.released = True
        return [ReleaseBarrier((go.job, go.attempt))]

    def checkpoint_found(self, key: AttemptKey, checkpoint: Checkpoint) -> list[AttemptAction]:
        """Report a checkpoint of a running job, unless the checkpoint was reported before."""
        attempt = self._known.get(key)
        if attempt is None or attempt.ended or attempt.status.pid is None:
            return []
        return self._update(key, attempt, replace(attempt.status, checkpoint=checkpoint))

    def settle(self, settle: Settle) -> list[AttemptAction]:
        """Mark an ended attempt as settled, because the controller has stored the end of the attempt. If more
        than `keep` attempts (an argument of the constructor) are then settled, delete the logs and the record
        of the oldest settled attempt.
        """
        key = (settle.job, settle.attempt)
        attempt = self._known.get(key)
        if attempt is None or not attempt.ended or attempt.settled:
            return []
        attempt.settled = True
        self._settled.append(key)
        return [MoveToSettled(key), *self._delete_surplus()]

    def forget(self, key: AttemptKey) -> list[AttemptAction]:
        """Delete the record and the logs of a settled attempt, because the logs exceed a limit of log
        retention.
        """
        attempt = self._known.get(key)
        if attempt is None or not attempt.settled:
            return []
        self._settled.remove(key)
        self._drop(key)
        return [DeleteLogs(key)]

    # --- messages from the fork server and from supervisors ---

    def apply_hint(self, key: AttemptKey, fact: list[str]) -> list[AttemptAction]:
        """Apply one line that the fork server or a supervisor wrote to the agent's FIFO. The line may arrive
        late or twice, and its attempt may have been deleted.
        """
        attempt = self._known.get(key)
        if attempt is None or attempt.ended:
            return []
        if fact[0] == "forked":
            return self._watch(key, attempt, int(fact[1]))
        if fact[0] == "unforked":
            return [FailLaunch(key, f"{NODE_UNFIT}: cannot fork a supervisor: {' '.join(fact[1:])}")]
        return self._update(key, attempt, apply_fact(attempt.status, fact))

    def supervisor_gone(
        self, key: AttemptKey, found: SpooledAttempt, holder: int | None
    ) -> list[AttemptAction]:
        """Handle the exit of a watched supervisor. `found` is the attempt as recorded in the spool. `holder`
        is the pid of another supervisor that has locked the record since the exit, or None.
        """
        attempt = self._known.get(key)
        if attempt is None or attempt.ended:
            return []
        attempt.supervisor = None
        actions = self._update(key, attempt, found.status) if found.status != attempt.status else []
        if attempt.ended:
            return actions
        if holder is not None:
            return actions + self._watch(key, attempt, holder)
        attempt.losses += 1
        return [*actions, LaunchSupervisor(key, after_s=min(30.0, 0.5 * (attempt.losses - 1)))]

    def fork_server_gone(self) -> list[AttemptAction]:
        """Launch a supervisor for each launched attempt whose supervisor the agent does not watch. If the
        attempt already has a supervisor, the new supervisor finds the record locked and exits.
        """
        return [LaunchSupervisor(key) for key, pid in self.supervisors() if pid is None]

    def _watch(self, key: AttemptKey, attempt: AttemptState, pid: int) -> list[AttemptAction]:
        attempt.supervisor = pid
        halt: list[AttemptAction] = [RequestStop(attempt.stop)] if attempt.stop is not None else []
        release: list[AttemptAction] = [ReleaseBarrier(key)] if attempt.released else []
        return [WatchSupervisor(key, pid), *halt, *release]

    def _update(self, key: AttemptKey, attempt: AttemptState, status: AttemptStatus) -> list[AttemptAction]:
        if status == attempt.status:
            return []
        attempt.status = status
        if not attempt.ended:
            return [SendReport(Report(status))]
        attempt.order = attempt.supervisor = attempt.stop = None
        return [SendReport(Report(status)), *self._launch_next(key[0])]

    def _launch_next(self, job: int) -> list[AttemptAction]:
        """Launch the oldest attempt of this job that has not ended, unless this attempt is
        already launched.
        """
        for key in self._not_ended(job)[:1]:
            if not self._known[key].launched:
                self._known[key].launched = True
                return [LaunchSupervisor(key)]
        return []

    def _not_ended(self, job: int) -> list[AttemptKey]:
        """Return the attempts of a job that have not ended, oldest first."""
        keys = [(job, attempt) for attempt in sorted(self._of_job.get(job, ()))]
        return [key for key in keys if not self._known[key].ended]

    def _newest(self, job: int) -> int:
        return max(self._of_job.get(job, ()), default=-1)

    # --- adding and removing attempts ---

    def _remember(self, key: AttemptKey, attempt: AttemptState) -> None:
        self._known[key] = attempt
        self._of_job.setdefault(key[0], []).append(key[1])

    def _drop(self, key: AttemptKey) -> None:
        del self._known[key]
        self._of_job[key[0]].remove(key[1])
        if not self._of_job[key[0]]:
            del self._of_job[key[0]]

    def _delete_surplus(self) -> list[AttemptAction]:
        actions: list[AttemptAction] = []
        while len(self._settled) > self._keep:
            key = self._settled.popleft()
            self._drop(key)
            actions.append(DeleteLogs(key))
        return actions
