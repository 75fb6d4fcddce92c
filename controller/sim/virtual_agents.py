"""Simulates the agents of nodes in virtual time. They carry out the engine's orders and send the reports that
real agents would send."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from controller.core.model.dataclass import dataclass
from wire.agent.orders import Stop
from wire.agent.reports import AttemptStatus, Checkpoint, Hello, NodeFacts

Key = tuple[int, int]
AttemptReports = dict[str, AttemptStatus]
"""The reports of agents about one attempt, by node name."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """The plan of an attempt: the seconds of work that are left, its exit code, and the seconds between two
    checkpoints that it writes while it runs (None: it writes none).
    """

    runtime_s: float
    code: int = 0
    checkpoint_every_s: float | None = None
    start_overhead_s: float = 0.0
    """The seconds at the beginning of the attempt in which the job does no work."""

    @property
    def held_s(self) -> float:
        """Return the seconds from the start to the end of the attempt, if nothing stops it."""
        return self.start_overhead_s + self.runtime_s

    def saved_work_s(self, after_s: float) -> float:
        """Return the seconds of work in a checkpoint that the attempt wrote `after_s` seconds after its
        start."""
        return max(0.0, after_s - self.start_overhead_s)


def hello_of(
    name: str, facts: NodeFacts, crashes: int = 0, attempts: tuple[AttemptStatus, ...] = ()
) -> Hello:
    """Return the hello, which is the first message of the agent of a node after it has connected.

    After each crash the host has another boot id. `attempts` are the attempts that the agent has.
    """
    return Hello(name, "virtual", f"{name}-{crashes + 1}", "virtual", facts, attempts)


class VirtualAgents:
    """The agents of all nodes. One object simulates all agents, because all members of a gang behave in the
    same way.

    `planned_run` returns the plan of an attempt. `started_at` returns the time from which its run time is
    counted.
    """

    def __init__(
        self, planned_run: Callable[[Key], PlannedRun], started_at: Callable[[Key, float], float]
    ) -> None:
        self._attempts: dict[Key, AttemptReports] = {}
        self._planned_run = planned_run
        self._started_at = started_at

    def start(
        self, key: Key, nodes: Iterable[str], limit_s: float | None, now: float
    ) -> tuple[AttemptReports, float]:
        """Start an attempt on these nodes. Return the agents' reports, and the seconds until the attempt
        ends."""
        runtime, since = self._planned_run(key).held_s, self._started_at(key, now)
        if limit_s is not None:
            runtime = min(runtime, limit_s)
        started = dict.fromkeys(nodes, AttemptStatus(*key, pid=key[0], started_at=since))
        known = self._attempts.get(key)
        if known is None:
            self._attempts[key] = started.copy()
        else:
            known.update(started)
        return started, runtime - (now - since)

    def stop(self, nodes: Iterable[str], order: Stop, now: float) -> AttemptReports:
        """Stop an attempt on these nodes at once, with a checkpoint if the order gives the job time to save
        one. Return the agents' reports.
        """
        key = order.job, order.attempt
        known = self._attempts.setdefault(key, {})
        reports: AttemptReports = {}
        for node in nodes:
            old = known.get(node, AttemptStatus(*key))
            if old.ended_at is None:
                saves = order.checkpoint_s and old.started_at is not None
                saved = Checkpoint("virtual", at=now) if saves else old.checkpoint
                known[node] = replace(old, ended_at=now, signal=15, why=order.why, checkpoint=saved)
            reports[node] = known[node]
        return reports

    def save(self, key: Key, nodes: Iterable[str], now: float) -> AttemptReports:
        """Write a checkpoint of the attempt if it still runs on all of these nodes. Return the agents'
        reports. If the attempt has ended on one of the nodes, write nothing, and return no reports.
        """
        known = self._attempts.get(key, {})
        running = {node: old for node in nodes if (old := known.get(node)) and old.ended_at is None}
        if len(running) < len(list(nodes)):
            return {}
        saved = Checkpoint("virtual", at=now)
        reports = {node: replace(old, checkpoint=saved) for node, old in running.items()}
        known.update(reports)
        return reports

    def end(self, key: Key, nodes: Iterable[str], now: float) -> AttemptReports:
        """End the processes of the attempt that still run on these nodes. Return the agents' reports."""
        known = self._attempts.get(key, {})
        reports: AttemptReports = {}
        before: AttemptStatus | None = None
        for node in nodes:
            old = known.get(node)
            if old is None or old.ended_at is not None or old.started_at is None:
                continue
            if old is not before:
                before, over = old, self._over(key, old.started_at, now)
            known[node] = reports[node] = over
        return reports

    def _over(self, key: Key, started_at: float, now: float) -> AttemptStatus:
        """Return the report about an attempt that exited at the time `now`, or was ended at its time
        limit.
        """
        planned = self._planned_run(key)
        # Compare `now` with start + run time, the time for which the end was scheduled. Because of rounding,
        # `now - started_at` could be less than the run time.
        if now >= started_at + planned.held_s:
            return AttemptStatus(*key, key[0], started_at, now, planned.code)
        return AttemptStatus(*key, key[0], started_at, now, signal=15, why="time_limit")

    def on_node(self, name: str) -> tuple[AttemptStatus, ...]:
        """Return the status of each attempt that the agent of this node knows."""
        return tuple(known[name] for known in self._attempts.values() if name in known)

    def crash(self, name: str, now: float) -> list[AttemptStatus]:
        """End all processes on a node at once, without reports, and delete the data of the node's agent.
        Return the last status of each attempt whose processes were running."""
        ended = [replace(each, ended_at=now) for each in self.on_node(name) if each.ended_at is None]
        for key in [key for key, known in self._attempts.items() if name in known]:
            self.settle(key, (name,))
        return ended

    def settle(self, key: Key, nodes: Iterable[str]) -> None:
        """Delete the status of the attempt on these nodes, because the controller has recorded the end of the
        attempt."""
        known = self._attempts.get(key, {})
        for node in nodes:
            known.pop(node, None)
        if not known:
            self._attempts.pop(key, None)
