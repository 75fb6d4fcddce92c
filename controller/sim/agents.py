"""The agents of virtual nodes: they obey the same orders and tell the same things, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from wire.frames import AttemptStatus, Checkpoint, Hello, NodeFacts, Stop

Key = tuple[int, int]
Told = dict[str, AttemptStatus]
"""What agents report of an attempt, by node."""


@dataclass(frozen=True, slots=True)
class Course:
    """How an attempt will go: how long its process runs, and what it returns then."""

    runtime_s: float
    code: int = 0


def hello(name: str, facts: NodeFacts) -> Hello:
    """What an agent says whose node has just been switched on."""
    return Hello(name, "virtual", f"{name}-1", "virtual", facts)


class VirtualAgents:
    """Those of all nodes in one, for what one member of a gang does the others do as well.

    `since` says from when on an attempt runs that is started now.
    """

    def __init__(self, course: Callable[[Key], Course], since: Callable[[Key, float], float]) -> None:
        self._attempts: dict[Key, Told] = {}
        self._course = course
        self._since = since

    def start(self, key: Key, nodes: Iterable[str], limit_s: float | None, now: float) -> tuple[Told, float]:
        """Run an attempt on these nodes; what there is to report, and in how many seconds it is over."""
        runtime, since = self._course(key).runtime_s, self._since(key, now)
        if limit_s is not None:
            runtime = min(runtime, limit_s)
        begun = dict.fromkeys(nodes, AttemptStatus(*key, pid=key[0], started_at=since))
        known = self._attempts.get(key)
        if known is None:
            self._attempts[key] = begun.copy()
        else:
            known.update(begun)
        return begun, runtime - (now - since)

    def stop(self, nodes: Iterable[str], order: Stop, now: float) -> Told:
        """It ends at once; one that can save its state has saved it."""
        key = order.job, order.attempt
        known = self._attempts.setdefault(key, {})
        told: Told = {}
        for node in nodes:
            old = known.get(node, AttemptStatus(*key))
            if old.ended_at is None:
                saves = order.checkpoint_s and old.started_at is not None
                saved = Checkpoint("virtual", at=now) if saves else None
                known[node] = replace(old, ended_at=now, signal=15, why=order.why, checkpoint=saved)
            told[node] = known[node]
        return told

    def end(self, key: Key, nodes: Iterable[str], now: float) -> Told:
        """Its processes return on these nodes, where they still run; what there is to report."""
        known = self._attempts.get(key, {})
        told: Told = {}
        before: AttemptStatus | None = None
        for node in nodes:
            old = known.get(node)
            if old is None or old.ended_at is not None or old.started_at is None:
                continue
            if old is not before:
                before, over = old, self._over(key, old.started_at, now)
            known[node] = told[node] = over
        return told

    def _over(self, key: Key, started_at: float, now: float) -> AttemptStatus:
        """The process has returned by itself, or run into its limit."""
        course = self._course(key)
        # The sum by which its end was arranged: a difference of fractions could fall short of it.
        if now >= started_at + course.runtime_s:
            return AttemptStatus(*key, key[0], started_at, now, course.code)
        return AttemptStatus(*key, key[0], started_at, now, signal=15, why="time_limit")

    def settle(self, key: Key, nodes: Iterable[str]) -> None:
        """Its end is known: forget it."""
        known = self._attempts.get(key, {})
        for node in nodes:
            known.pop(node, None)
        if not known:
            self._attempts.pop(key, None)
