"""Virtual agents of a replay. They repeat the reports in the journal. For an attempt that differs from the
journal, they send predicted reports.

If an attempt is placed on the nodes and at the time that the journal says, its agents repeat the reports in
the journal. Any other attempt runs for as long as the job ran in the journal, independent of its nodes and
its start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from controller.core.model.events.attempts import (
    AttemptExited,
    AttemptStarted,
    CheckpointSaved,
    JobPlaced,
    MemberReady,
    MembersExited,
    MembersStarted,
    StepsRecorded,
)
from controller.core.model.events.controller import ConfigApplied
from controller.core.model.events.nodes import NodeJoined
from controller.core.model.inputs import agent_inputs, controller_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import Job
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State
from controller.sim.replay.history import History
from controller.sim.replay.job_durations import LOST, NEVER, RecordedRun
from controller.sim.replay.replay_clock import Clock
from wire.agent.orders import Go, Settle, Start, Stop, TimeLimit
from wire.agent.reports import AttemptStatus, Hello, Usage

STEP_S = 1.0
"""Seconds between the controller's checks for nodes that have stopped reporting."""

Key = tuple[int, int, str]
"""Job id, attempt number and node name."""


_OfMembers = AttemptStarted | AttemptExited | MembersStarted | MembersExited


class RecordedAgents:
    """The virtual agents of all nodes.

    The journal contains no reports for an attempt that runs on other nodes or at another time than in the
    journal. For such an attempt, the agents make predicted reports and pass these reports to `report`.
    """

    def __init__(
        self,
        history: History,
        clock: Clock,
        report: Callable[[Input], None],
        policies: Callable[[str], Pipeline] | None = None,
    ) -> None:
        self.state: State
        self._policies = policies
        self._history = history
        self._clock = clock
        self._report = report
        self._as_recorded: dict[Key, AttemptStatus] = {}
        """Attempts that run as recorded, with their last reported status."""
        self._other: dict[Key, AttemptStatus] = {}
        """All other attempts of which an agent has a status, with this last reported status."""
        self._orders: dict[Key, Start] = {}
        """Start orders of attempts that run as recorded. `predict` needs the order if the attempt later
        differs from the journal.
        """
        self._ended_attempts: dict[int, set[int]] = {}
        """For each job, the numbers of the attempts that ended without a stop order. If there are n such
        attempts, the next attempt runs as long as run n of the job in the journal (counted from 0). If the
        journal has fewer runs, the next attempt runs as long as the last run there.
        """
        self._runs: dict[tuple[int, int], RecordedRun] = {}
        """The predicted run of every attempt that differs from the journal, by job id and attempt number."""
        self._limits: dict[Key, float] = {}
        """The time limits of attempts, in seconds."""

    # --- methods that repeat the recorded inputs of agents and operators ---

    def configured(self, event: ConfigApplied) -> Input:
        """Return the engine input that changes the configuration as this event of the journal did.

        If the replay has its own scheduling policy, the input has no pipeline, so the policy is unchanged.
        """
        known = self._policies is not None and event.policy
        pipeline = self._policies(event.policy) if self._policies is not None and known else None
        return controller_inputs.ApplyConfig(event.digest, event.by, pipeline, event.changed, event.policy)

    def attempt(self, job: int) -> int:
        return self.state.jobs[job].attempt

    def silence(self, node: str, at: float) -> float:
        """Return the seconds for which the node had been without a connection when the node was marked down
        at the time `at`.

        Add half of STEP_S, because the controller checks nodes only every STEP_S seconds.
        """
        aways = self._history.aways[node]
        return at - aways[bisect_right(aways, at) - 1] + STEP_S / 2

    def hello(self, event: NodeJoined) -> Input | None:
        """Return the input for the engine when a node has connected: the hello (first message) of its agent,
        with the status of each attempt that is on the node in this replay.
        """
        node = self.state.nodes.get(event.node)
        if node is not None and node.boot_id != event.boot_id:
            for key in [key for key in self._other if key[2] == event.node]:
                del self._other[key]  # A reboot ends all processes, so the attempts on the node are gone.
        known = [*self._as_recorded.items(), *self._other.items()]
        statuses = tuple(status for key, status in known if key[2] == event.node)
        hello = Hello(event.node, event.version, event.boot_id, "", event.facts, statuses)
        return agent_inputs.AgentSaidHello(event.node, hello)

    def ready(self, event: MemberReady) -> Input | None:
        """Return the input for the engine that repeats the report "gang member is ready"; None if the attempt
        differs from the journal.
        """
        key = (event.job, event.attempt, event.node)
        if key not in self._as_recorded:
            return None
        self._as_recorded[key] = AttemptStatus(event.job, event.attempt, ready=True)
        return agent_inputs.AgentReported(event.node, self._as_recorded[key])

    def started(self, event: AttemptStarted | MembersStarted) -> Input | None:
        """Return the input for the engine that repeats the report that processes have started; None if the
        attempt differs from the journal.
        """
        statuses = {}
        for node, pid in event.pids.items():
            key = (event.job, event.attempt, node)
            if key in self._as_recorded:
                statuses[node] = AttemptStatus(event.job, event.attempt, pid, event.at)
                self._as_recorded[key] = statuses[node]
        return _input_of(event, statuses)

    def saved(self, event: CheckpointSaved) -> Input | None:
        """Return the input for the engine that repeats the report of a saved checkpoint; None if the attempt
        differs from the journal.
        """
        key = (event.job, event.attempt, event.node)
        if key not in self._as_recorded:
            return None
        self._as_recorded[key] = replace(self._as_recorded[key], checkpoint=event.checkpoint)
        return agent_inputs.AgentReported(event.node, self._as_recorded[key])

    def steps(self, event: StepsRecorded) -> None:
        """Keep the recorded steps (srun commands) of the attempt for the later report of the
        attempt's end.
        """
        key = (event.job, event.attempt, event.node)
        if key in self._as_recorded:
            self._as_recorded[key] = replace(self._as_recorded[key], steps=event.steps)

    def exited(self, event: AttemptExited | MembersExited) -> Input | None:
        """Return the input for the engine that repeats the report that processes have ended; None if the
        attempt differs from the journal.
        """
        statuses = {}
        for node, how in event.exits.items():
            status = self._as_recorded.pop((event.job, event.attempt, node), None)
            if status is None:
                continue
            if not how.why.startswith(LOST) and self.state.jobs[event.job].stopping is None:
                self._note_end(event.job, event.attempt)
            statuses[node] = replace(
                status,
                ended_at=event.at,
                code=how.code,
                signal=how.signal,
                why=how.why,
                usage=Usage(how.cpu_s, how.max_rss_mib, how.use, how.memory_mib),
                failure=how.failure,
                checkpoint=how.checkpoint,
            )
        return _input_of(event, statuses)

    # --- methods that carry out decisions of the engine ---

    def place(self, placed: JobPlaced) -> None:
        """If the attempt is placed on the nodes and at the time that the journal says, note that its reports
        are repeated from the journal.
        """
        if placed == self._history.placed.get((placed.job, placed.attempt)):
            for allocation in placed.allocations:
                key = (placed.job, placed.attempt, allocation.node)
                self._as_recorded[key] = AttemptStatus(placed.job, placed.attempt)

    def carry_out(self, node: str, order: Start | Go | Stop | Settle | TimeLimit) -> None:
        """Carry out an order of the engine, such as to start or stop an attempt, if the node is connected.
        For an attempt that runs as recorded, only keep the start order.
        """
        key = (order.job, order.attempt, node)
        if isinstance(order, Go):
            # Ignore Go, the order that lets a gang start, because virtual gang members start together or at
            # the recorded time.
            return
        if isinstance(order, TimeLimit):
            self._limits[key] = order.time_limit_s
        elif key in self._as_recorded:
            if isinstance(order, Start):
                self._orders[key] = order
        elif not self._reachable(node):
            pass
        elif isinstance(order, Settle):
            self._other.pop(key, None)
        elif isinstance(order, Stop):
            self._stop(key, order)
        elif key not in self._other:
            self._other[key] = AttemptStatus(order.job, order.attempt)
            self._clock.after(self._run_of(key).launch_s, partial(self._begin, key, order))

    def predict(self, job: Job) -> None:
        """Replace the recorded reports of the job's current attempt by predicted reports, because the attempt
        now differs from the journal.
        """
        for key in [key for key in self._as_recorded if key[0] == job.id]:
            status = self._other[key] = self._as_recorded.pop(key)
            order, run, now = self._orders[key], self._run_of(key), self._clock.now
            if status.started_at is None:
                placed_at = now if job.placed_at is None else job.placed_at
                self._clock.at(placed_at + run.launch_s, partial(self._begin, key, order))
            else:
                self._arrange_end(key, order, status.started_at)

    def _begin(self, key: Key, order: Start) -> None:
        status, run = self._other.get(key), self._run_of(key)
        if status is None or status.ended_at is not None:
            return
        if not run.launched:
            self._finish(key)
            return
        self._tell(key, replace(status, pid=key[0], started_at=self._clock.now))
        self._arrange_end(key, order, self._clock.now)

    def _arrange_end(self, key: Key, order: Start, started_at: float) -> None:
        run, limit = self._run_of(key), order.time_limit_s
        if run.run_s < NEVER:
            self._clock.at(started_at + run.run_s, partial(self._finish, key))
        elif limit is not None:
            self._limits.setdefault(key, limit)
            self._clock.at(started_at + limit, partial(self._reach_limit, key, started_at))

    def _reach_limit(self, key: Key, started_at: float) -> None:
        """End the attempt at its time limit. If the limit was extended, schedule this method again for the
        new limit.
        """
        at = started_at + self._limits[key]
        if at > self._clock.now:
            self._clock.at(at, partial(self._reach_limit, key, started_at))
        else:
            self._end(key, None, 15, "time_limit")

    def _finish(self, key: Key) -> None:
        run = self._run_of(key)
        self._note_end(key[0], key[1])
        self._end(key, run.code, run.signal, run.why)

    def _stop(self, key: Key, order: Stop) -> None:
        if key in self._other:
            self._clock.after(self._run_of(key).stop_s, partial(self._end, key, None, 15, order.why))
        else:
            self._other[key] = AttemptStatus(order.job, order.attempt)
            self._end(key, None, None, order.why)

    def _end(self, key: Key, code: int | None, signal: int | None, why: str) -> None:
        status = self._other.get(key)
        if status is not None and status.ended_at is None:
            now = self._clock.now
            self._tell(key, replace(status, ended_at=now, code=code, signal=signal, why=why))

    def _tell(self, key: Key, status: AttemptStatus) -> None:
        self._other[key] = status
        # Report only if the node is connected. If it is not, the hello after the next connect reports the
        # status.
        if self._reachable(key[2]):
            self._report(agent_inputs.AgentReported(key[2], status))

    def _reachable(self, name: str) -> bool:
        node = self.state.nodes.get(name)
        return node is not None and node.up

    def _run_of(self, key: Key) -> RecordedRun:
        job, attempt, _ = key
        if (job, attempt) not in self._runs:
            runs = self._history.runs[job]
            spent = len(self._ended_attempts.get(job, ()))
            self._runs[job, attempt] = runs[min(spent, len(runs) - 1)]
        return self._runs[job, attempt]

    def _note_end(self, job: int, attempt: int) -> None:
        self._ended_attempts.setdefault(job, set()).add(attempt)


def _input_of(event: _OfMembers, statuses: dict[str, AttemptStatus]) -> Input | None:
    """Return one input for the engine with all reports (`statuses`, by node) of an event; None if there are
    no reports.
    """
    if not statuses:
        return None
    if isinstance(event, AttemptStarted | AttemptExited):
        return agent_inputs.AgentReported(event.node, statuses[event.node])
    return agent_inputs.MembersReported(event.job, event.attempt, statuses)
