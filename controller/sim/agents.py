"""Agents of virtual nodes: they obey the same orders and tell the same things, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from wire.frames import AttemptStatus, Checkpoint, Go, Hello, NodeFacts, Settle, Start, Stop

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Course:
    """How an attempt will go: how long its process runs, and what it returns then."""

    runtime_s: float
    code: int = 0


class VirtualAgent:
    """One node's agent. `later(seconds, key)` must call back end() for that attempt then."""

    def __init__(
        self,
        name: str,
        facts: NodeFacts,
        course: Callable[[int, int], Course],
        later: Callable[[float, str, Key], None],
        since: Callable[[Key, float], float] = lambda _key, now: now,
    ) -> None:
        self.name = name
        self.facts = facts
        self.boots = 1
        self.attempts: dict[Key, AttemptStatus] = {}
        self._course = course
        self._later = later
        self._since = since

    def hello(self) -> Hello:
        """Everything the agent knows."""
        return Hello(
            node=self.name,
            version="virtual",
            boot_id=f"{self.name}-{self.boots}",
            incarnation="virtual",
            facts=self.facts,
            attempts=tuple(self.attempts.values()),
        )

    def obey(self, order: Start | Go | Stop | Settle, now: float) -> AttemptStatus | None:
        """Carry out an order; what there is to report at once."""
        key = order.job, order.attempt
        if isinstance(order, Go):
            return None  # members of virtual gangs begin together by themselves
        if isinstance(order, Settle):
            self.attempts.pop(key, None)
            return None
        if isinstance(order, Stop):
            return self._stop(key, order, now)
        return self.start(key, order.time_limit_s, now)

    def start(self, key: Key, limit_s: float | None, now: float) -> AttemptStatus:
        """Run an attempt, unless it runs already; what there is to report."""
        known = self.attempts.get(key)
        if known is not None:
            return known
        course = self._course(*key)
        runtime = course.runtime_s if limit_s is None else min(course.runtime_s, limit_s)
        since = self._since(key, now)
        status = self.attempts[key] = _begun(key, since)
        self._later(runtime - (now - since), self.name, key)
        return status

    def _stop(self, key: Key, order: Stop, now: float) -> AttemptStatus:
        """It ends at once; one that can save its state has saved it."""
        old = self.attempts.get(key, AttemptStatus(*key))
        if old.ended_at is None:
            saved = (
                Checkpoint("virtual", at=now) if order.checkpoint_s and old.started_at is not None else None
            )
            old = replace(old, ended_at=now, signal=15, why=order.why, checkpoint=saved)
            self.attempts[key] = old
        return old

    def end(self, key: Key, now: float) -> AttemptStatus | None:
        """The process of an attempt returns, if it still runs; what there is to report."""
        old = self.attempts.get(key)
        if old is None or old.ended_at is not None or old.started_at is None:
            return None
        course = self._course(*key)
        # The sum by which its end was arranged: a difference of fractions could fall short of it.
        done = now >= old.started_at + course.runtime_s
        over = _over(key, old.started_at, now, course.code if done else None)
        self.attempts[key] = over
        return over

    def reboot(self) -> None:
        """Everything that ran is gone, and nobody knows of it."""
        self.boots += 1
        self.attempts.clear()


# The members of a gang begin and end together, in the same words.


@lru_cache(maxsize=1)
def _begun(key: Key, now: float) -> AttemptStatus:
    return AttemptStatus(*key, pid=key[0], started_at=now)


@lru_cache(maxsize=1)
def _over(key: Key, started_at: float, now: float, code: int | None) -> AttemptStatus:
    """The process has returned by itself, or run into its limit."""
    why, number = ("time_limit", 15) if code is None else ("", None)
    return AttemptStatus(*key, key[0], started_at, now, code, number, why)
