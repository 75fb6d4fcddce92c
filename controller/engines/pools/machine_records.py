"""The machines of a pool: the durable record of each machine, and the rules by which a machine counts as
joined or ended.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace

from controller.engines.pools.machine_pool import Machine, MachineState
from wire.dataclass import dataclass

LOOKS_WITHOUT = 2
"""The number of complete looks without a machine after which the machine counts as absent."""
UNLISTED_S = 120.0
"""Seconds after an order for which the pool's list may still lack the machine."""


class Stage(enum.Enum):
    """What Corral does with a machine."""

    WANTED = "wanted"
    """The machine is to be ordered. An order may be under way, or its answer was lost."""
    BOOTING = "booting"
    """The pool has accepted the order, and the agent has not connected yet."""
    JOINED = "joined"
    """The agent has connected at least once."""
    LEAVING = "leaving"
    """The node is drained, and the machine is ended when no job holds resources on the node."""
    ENDING = "ending"
    """The node is removed, and the pool is asked to end the machine."""
    ENDED = "ended"
    """The pool has ended the machine, or the machine was never started."""


@dataclass(frozen=True)
class MachineRecord:
    """The durable facts about one machine. `tried` is True from the moment before the first order.

    `secret` is the private SSH host key, until the order is accepted. `cleared` is True when the node of an
    ended machine has been removed from the cluster. All times are seconds since 1970.
    """

    token: str
    shape: str
    wanted_at: float
    zone: str = ""
    price_per_hour: float = 0.0
    project: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ready_in_s: float = 0.0
    host_key: str = ""
    secret: str = ""
    tried: bool = False
    ref: str = ""
    asked_at: float | None = None
    joined_at: float | None = None
    leaving: str = ""
    ending: str = ""
    ended_at: float | None = None
    why: str = ""
    cleared: bool = False

    @property
    def stage(self) -> Stage:
        if self.ended_at is not None:
            return Stage.ENDED
        if self.ending:
            return Stage.ENDING
        if self.leaving:
            return Stage.LEAVING
        if self.joined_at is not None:
            return Stage.JOINED
        return Stage.BOOTING if self.asked_at is not None else Stage.WANTED

    def cost(self, begin: float, end: float) -> float:
        """Return the money for this machine between two times. A machine costs money from its order on."""
        if self.asked_at is None:
            return 0.0
        until = end if self.ended_at is None else min(end, self.ended_at)
        return max(0.0, until - max(begin, self.asked_at)) / 3_600.0 * self.price_per_hour


@plain_dataclass(slots=True)
class PoolMachine:
    """One machine of a pool, with what the last looks have shown.

    WANTED -> BOOTING -> JOINED -> LEAVING -> ENDING -> ENDED
    1. The record is on disk before the order. A look that shows the token or the ref makes the machine
       BOOTING, also if the answer to the order was lost.
    2. A machine that was absent from two complete looks, at least two intervals apart, and that was ordered
       more than UNLISTED_S ago, has ENDED. So has a machine that the pool lists as ended. In a pool that
       stores no tokens, such a machine only counts as absent.
    3. A machine whose agent is connected has not ended, whatever the pool lists.

    Invariant: the pool is asked to end a machine with a record only if the record says ENDING or ENDED.
    """

    record: MachineRecord
    listed: Machine | None = None
    """The machine as the last look has shown it; None if the last complete look has not shown it."""
    absences: int = 0
    first_absence: float = 0.0
    last_absence: float = 0.0
    retry_at: float = 0.0
    unused_since: float | None = None
    problem: str = ""

    @property
    def live(self) -> bool:
        """Return whether the machine was ordered and is not known to have ended, so that it may exist."""
        return self.record.ended_at is None and self.record.tried

    @property
    def running(self) -> bool:
        return self.listed is not None and self.listed.state is MachineState.RUNNING

    def present(self, found: Machine, now: float) -> bool:
        """Record that a look has shown the machine. Return whether the record has changed."""
        self.listed, self.absences = found, 0
        before = self.record
        if before.ref != found.ref or before.asked_at is None:
            asked = before.asked_at if before.asked_at is not None else now
            self.record = replace(before, ref=found.ref, asked_at=asked, tried=True, secret="")
        return self.record != before

    def absent(self, began: float) -> None:
        """Record that a complete look, which began at `began`, did not show the machine."""
        self.listed = None
        if not self.absences:
            self.first_absence = began
        self.absences += 1
        self.last_absence = began

    def gone(self, interval_s: float, now: float) -> bool:
        """Return whether the machine was absent long enough to count as ended (step 2)."""
        apart = self.last_absence - self.first_absence
        asked = self.record.asked_at or self.record.wanted_at
        return self.absences >= LOOKS_WITHOUT and apart >= 2 * interval_s and now - asked >= UNLISTED_S

    def finish(self, why: str, now: float) -> None:
        """Record the end of the machine."""
        self.record = replace(self.record, ended_at=now, why=self.record.ending or why, secret="")
