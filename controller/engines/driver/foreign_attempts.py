"""The attempts that an execution engine runs: the record of each attempt, and the rules by which it counts as
started, ended or lost.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass as plain_dataclass
from dataclasses import field as plain_field
from dataclasses import replace

from controller.engines.contract import ForeignJob, ForeignState, Outcome
from wire.agent.orders import Start
from wire.agent.reports import AttemptStatus, Usage
from wire.dataclass import dataclass

PROOF_S = 30.0
"""Seconds to wait for the proof of a foreign job that the engine lists as ended, because the record of the
exit may arrive late.
"""
LOOKS_WITHOUT = 2
"""The number of complete looks from which a foreign job must be absent before Corral asks for a proof of its
end.
"""
FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 60.0


class Presence(enum.Enum):
    """What Corral knows about the foreign job of an attempt."""

    WANTED = "wanted"
    """The engine has not confirmed the foreign job: ask() was not called, is under way, or its answer was
    lost.
    """
    ASKED = "asked"
    """The engine has accepted the job, and no look has shown it yet."""
    SEEN = "seen"
    """The last look that could show the foreign job has shown it."""
    UNSEEN = "unseen"
    """A complete look did not show the foreign job."""
    ENDED = "ended"
    """The end of the attempt is recorded: there is a proof, or it was refused, stopped or lost."""


@dataclass(frozen=True)
class AttemptRecord:
    """The durable facts about one attempt on one node of an engine.

    `node` is Corral's name of the node. `order` is None if only the tag is known, because the record was lost
    and the attempt was found by its tag. `tried` is True from the moment before the first ask(). `unanswered`
    is True if `ref` comes from a look, and no ask() has returned yet.
    """

    tag: str
    node: str
    job: int
    attempt: int
    order: Start | None = None
    go: bool = True
    tried: bool = False
    ref: str = ""
    unanswered: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    code: int | None = None
    signal: int | None = None
    why: str = ""
    usage: Usage | None = None
    stop_why: str = ""
    grace_s: float = 10.0
    kill_at: float | None = None
    """When the grace time of a stopped attempt is over."""
    settled: bool = False
    forgotten: bool = False

    @property
    def status(self) -> AttemptStatus:
        """Return the status of the attempt, in the form in which agents report it."""
        return AttemptStatus(
            self.job,
            self.attempt,
            started_at=self.started_at,
            ended_at=self.ended_at,
            code=self.code,
            signal=self.signal,
            why=self.why,
            usage=self.usage,
            ready=not self.go,
        )


class NextStep(enum.Enum):
    """The request that an attempt needs next."""

    ASK = "ask"
    END = "end"
    PROVE = "prove"
    FORGET = "forget"


@plain_dataclass(frozen=True, slots=True)
class LossRules:
    """The seconds between two looks, and the seconds after the last look that showed a foreign job after
    which its attempt counts as lost.
    """

    interval_s: float
    lost_after_s: float


@plain_dataclass(slots=True)
class ForeignAttempt:
    """One attempt, with what the last looks at the engine have shown.

    WANTED -> ASKED -> SEEN -> UNSEEN -> ENDED
    1. ask() makes a WANTED attempt ASKED. A look that shows a foreign job with its tag makes it SEEN in any
       state. Exception: if the answer of ask() is not known and the foreign job waits, the attempt stays
       WANTED, so that ask() is called again. The first ask() may have been interrupted before its last step.
       For example, a container is created first and started afterwards. For the same reason an attempt
       becomes WANTED again if its foreign job waits and the engine reports `ask_again`.
    2. A complete look without the tag makes it UNSEEN, if the look began after the answer of ask(). An
       incomplete or failed look changes nothing.
    3. An attempt that is absent from two complete looks, at least two intervals apart, needs a proof. So does
       an attempt whose foreign job the engine lists as ended.
    4. With a proof the attempt has ENDED. Without a proof it is lost `lost_after_s` after it was seen last,
       or PROOF_S after the engine listed it as ended; if Corral has stopped it, it ends for the reason of the
       stop. Without a proof it never counts as succeeded.

    Invariant: an attempt that the engine has accepted ends only with a proof, after a stop, or as lost.

    Example: interval 10 s, lost after 300 s. A job is seen at 0 s, absent at 10 s and at 20 s. At 30 s it is
    absent for two intervals, and proof() is called. Without a proof it is lost at 300 s.
    """

    record: AttemptRecord
    presence: Presence
    seen_at: float
    """When a look last showed the foreign job. Before the first such look: when ask() was last called, or
    when the controller started.
    """
    state: ForeignState | None = None
    where: str = ""
    reason: str = ""
    absences: int = 0
    first_absence: float = 0.0
    last_absence: float = 0.0
    ended_seen_at: float | None = None
    """When a look first showed the foreign job as ended."""
    retry_at: float = 0.0
    retries: int = 0
    end_at: float = 0.0
    """When end() of a stopped attempt is due next."""
    duplicates: list[str] = plain_field(default_factory=list)
    """Further foreign jobs with the same tag, which must be ended."""

    @classmethod
    def of(cls, record: AttemptRecord, now: float) -> ForeignAttempt:
        """Return the attempt of a record that was just made or read from disk."""
        presence = Presence.WANTED
        if record.ended_at is not None:
            presence = Presence.ENDED
        elif record.ref and not record.unanswered:
            presence = Presence.ASKED
        return cls(record, presence, now)

    @property
    def live(self) -> bool:
        """Return whether the foreign job may exist."""
        return self.record.ended_at is None and (self.record.tried or bool(self.record.ref))

    def accepted(self, ref: str, now: float) -> None:
        """Record that ask() has returned `ref`, the name of the foreign job."""
        self.record = replace(self.record, ref=ref, unanswered=False)
        self.reason, self.retries = "", 0
        if self.presence is Presence.WANTED:
            self.presence, self.seen_at = Presence.ASKED, now
            self.absences = 0

    def delayed(self, why: str, now: float) -> None:
        """Record that ask() has failed or was refused for now. The pause before the next ask() doubles."""
        self.reason = why
        self.retry_at = now + min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(self.retries, 10))
        self.retries += 1
        # Do not count looks that began before this moment: they cannot show whether this ask() had an effect.
        self.seen_at, self.absences = now, 0

    def present(self, found: list[ForeignJob], now: float) -> bool:
        """Record which foreign jobs with the tag of this attempt a look has shown. Return whether the record
        has changed.

        If there are several, keep the one that the record names. If none of them has this name, the engine
        has queued the job again under another name: keep a running one, or else a waiting one, or else an
        ended one.
        """
        chosen = next((each for each in found if each.ref == self.record.ref), None)
        if chosen is None:
            order = (ForeignState.RUNNING, ForeignState.WAITING, ForeignState.ENDED)
            chosen = min(found, key=lambda each: (order.index(each.state), each.ref))
        before = self.record
        self.duplicates = [
            each.ref for each in found if each.ref != chosen.ref and each.state is not ForeignState.ENDED
        ]
        unanswered = self.presence is Presence.WANTED or chosen.ask_again
        waits = chosen.state is ForeignState.WAITING and before.order is not None
        self.presence = Presence.WANTED if unanswered and waits else Presence.SEEN
        self.seen_at, self.absences = now, 0
        self.state, self.where, self.reason = chosen.state, chosen.where, chosen.reason
        if chosen.ref != before.ref:
            # Keep durably that ask() is to be called again, because a controller that is killed now would
            # otherwise wait for a foreign job that nothing starts.
            still = self.presence is Presence.WANTED
            self.record = replace(self.record, ref=chosen.ref, tried=True, unanswered=still)
        if chosen.state is not ForeignState.WAITING and before.started_at is None:
            self.record = replace(self.record, started_at=now)
        if chosen.state is not ForeignState.ENDED:
            self.ended_seen_at = None
        elif self.ended_seen_at is None:
            self.ended_seen_at = now
        return self.record != before

    def absent(self, began: float) -> None:
        """Record that a complete look, which began at `began`, showed no foreign job with the tag of this
        attempt.
        """
        if self.presence is Presence.ENDED or not self.live or began < self.seen_at:
            return
        if self.presence is not Presence.WANTED:
            self.presence = Presence.UNSEEN
        self.state = None
        if not self.absences:
            self.first_absence = began
        self.absences += 1
        self.last_absence = began

    def absent_long_enough(self, rules: LossRules) -> bool:
        """Return whether the foreign job was absent from two complete looks, at least two intervals apart."""
        apart = self.last_absence - self.first_absence
        return self.absences >= LOOKS_WITHOUT and apart >= 2 * rules.interval_s

    def next_step(self, rules: LossRules, now: float) -> NextStep | None:
        """Return the request that the attempt needs now; None if it needs none."""
        record = self.record
        if record.ended_at is not None:
            due = record.settled and not record.forgotten and now >= self.retry_at
            return NextStep.FORGET if due else None
        if not record.tried:
            return NextStep.ASK if record.go and not record.stop_why and now >= self.retry_at else None
        if self.ended_seen_at is not None or (record.ref and self.absent_long_enough(rules)):
            return NextStep.PROVE if now >= self.retry_at else None
        if record.stop_why and record.ref:
            return NextStep.END if now >= self.end_at else None
        if self.presence is Presence.WANTED and not record.stop_why and now >= self.retry_at:
            return NextStep.ASK
        return None

    def verdict(self, outcome: Outcome | None, rules: LossRules, now: float) -> Outcome | None:
        """Return how the attempt has ended; None if this is still open. `outcome` is the proof, if any."""
        record = self.record
        if record.ended_at is not None:
            return None
        if outcome is not None:
            # A job that Corral stopped has the reason of the stop, unless it has the exit code 0 or
            # the proof gives a reason.
            if record.stop_why and outcome.code != 0 and not outcome.why:
                return replace(outcome, why=record.stop_why)
            return outcome
        if not record.tried:
            return Outcome(why=record.stop_why) if record.stop_why else None
        if self.ended_seen_at is not None:
            if now - self.ended_seen_at < PROOF_S:
                return None
            why = "supervisor_lost: the engine says that the job has ended, and has no exit code"
            return Outcome(why=record.stop_why or why)
        if not self.absent_long_enough(rules):
            return None
        if record.stop_why:
            return Outcome(why=record.stop_why)
        if record.ref and now - self.seen_at >= rules.lost_after_s:
            return Outcome(why="node_lost: the engine no longer lists the job, and has no record of its end")
        return None

    def stop(self, why: str, grace_s: float, now: float) -> bool:
        """Record that Corral wants the attempt to end. Return whether the record has changed: a second stop
        has an effect only if its grace time is shorter, and does not change the reason.
        """
        if self.record.stop_why and self.record.grace_s <= grace_s:
            return False
        before = self.record.kill_at
        kill_at = now + grace_s if before is None else min(before, now + grace_s)
        why = self.record.stop_why or why
        self.record = replace(self.record, stop_why=why, grace_s=grace_s, kill_at=kill_at)
        self.end_at = now
        return True

    def stop_at_time_limit(self, now: float) -> bool:
        """If the time limit of the attempt is over, record that Corral wants the attempt to end. Return
        whether the record has changed. Engines with `walltime` usually end the foreign job first.
        """
        record, order = self.record, self.record.order
        if order is None or order.time_limit_s is None or record.started_at is None:
            return False
        if record.ended_at is not None or record.stop_why or now < record.started_at + order.time_limit_s:
            return False
        return self.stop("time_limit", order.grace_s, now)

    def finish(self, outcome: Outcome, now: float) -> None:
        """Record the end of the attempt."""
        ran = outcome.code is not None or outcome.signal is not None
        started = self.record.started_at
        self.record = replace(
            self.record,
            started_at=now if started is None and ran else started,
            ended_at=now,
            code=outcome.code,
            signal=outcome.signal,
            why=outcome.why,
            usage=outcome.usage,
        )
        self.presence, self.reason, self.where = Presence.ENDED, "", ""
