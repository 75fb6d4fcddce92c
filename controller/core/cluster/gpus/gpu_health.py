"""The health state machine of one GPU. Each function returns the new condition of the GPU and changes
nothing.

1. A fault makes an OK GPU SUSPECT, CORDONED or LOST, depending on the configured action for the fault. A
   fault is an Xid (an error number of the NVIDIA driver) or a reading, such as the number of ECC errors, that
   reaches its threshold.
2. The agent checks the GPU at the time `due`. One passed check makes a SUSPECT GPU OK. A CORDONED GPU becomes
   PROBING with the first passed check, and OK after `checks` passed checks in a row. A failed check makes a
   GPU CORDONED, unless the GPU is LOST.
3. The first check comes `check_s` seconds after the first fault. Each further fault, failed check or failed
   reset doubles this wait, up to `check_most_s`. After a day in state OK, the wait starts at `check_s` again.
4. If `needs` is "reset", "reboot" or "resume", the GPU is not checked yet. Before the next check it must be
   reset, its host must be rebooted, or an operator must resume it.

New jobs start only on OK GPUs. Agents report faults; this module decides the health state that follows.

Example with the defaults: Xid 48 cordons a GPU at 12:00. The checks at 12:00:30, 12:01:00 and 12:01:30 pass,
so the GPU is OK. After the same fault within a day, the first check comes 60 s after the fault.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from wire.names import GpuHealth, TroubleKind

FORGET_FAULTS_AFTER_S = 86_400.0
"""After a GPU was OK for this many seconds, its earlier faults no longer lengthen the wait before a check."""


class HealthAction(enum.Enum):
    """The controller's reaction to a GPU fault. A fault is an Xid (an error number of the NVIDIA driver), or
    a reading that has reached its threshold, such as the number of ECC errors.
    """

    IGNORE = "ignore"
    """Do nothing. By default, this is the reaction to an Xid that reports a routine action of the driver."""
    BLAME = "blame"
    """The job caused the fault: the GPU stays in use, and the fault is shown with the failed job."""
    SUSPECT = "suspect"
    """No new job starts on the GPU until one check has passed."""
    CORDON = "cordon"
    """No new job starts on the GPU until several checks have passed."""
    RESET = "reset"
    """No new job starts on the GPU until the GPU was reset (by its agent, a reboot or an operator) and checks
    have passed.
    """
    REBOOT = "reboot"
    """The GPU is LOST until the host has been rebooted."""


XID_ACTIONS: Mapping[int, tuple[HealthAction, str]] = MappingProxyType(
    {
        13: (HealthAction.BLAME, "graphics engine exception"),
        31: (HealthAction.BLAME, "memory page fault"),
        43: (HealthAction.IGNORE, "a program was stopped"),
        45: (HealthAction.IGNORE, "cleanup after a program's end"),
        48: (HealthAction.CORDON, "double-bit ECC error"),
        63: (HealthAction.IGNORE, "a row of memory was remapped"),
        64: (HealthAction.RESET, "a row of memory could not be remapped"),
        74: (HealthAction.CORDON, "NVLink error"),
        79: (HealthAction.REBOOT, "fallen off the bus"),
        92: (HealthAction.IGNORE, "many single-bit ECC errors"),
        94: (HealthAction.BLAME, "contained ECC error"),
        95: (HealthAction.CORDON, "uncontained ECC error"),
        119: (HealthAction.RESET, "its system processor does not answer"),
        120: (HealthAction.RESET, "its system processor has failed"),
    }
)


READING_ACTIONS: Mapping[TroubleKind, HealthAction] = MappingProxyType(
    {
        TroubleKind.ECC_UNCORRECTED: HealthAction.CORDON,
        TroubleKind.ECC_CORRECTED: HealthAction.SUSPECT,
        TroubleKind.ROW_REMAP: HealthAction.RESET,
        TroubleKind.NVLINK: HealthAction.CORDON,
        TroubleKind.SLOWDOWN: HealthAction.SUSPECT,
        TroubleKind.MEMORY: HealthAction.SUSPECT,
    }
)
"""The default action for each GPU reading that reaches its threshold; `[gpus.rules]` overrides
these actions.
"""


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """The thresholds in `[gpus.rules]`. A GPU reading that reaches its threshold counts as a GPU fault."""

    corrected_per_hour: int = 1_000
    """The number of corrected ECC errors within an hour that counts as a fault."""
    slowdown_s: float = 60.0
    """A thermal or hardware slowdown counts as a fault after this many seconds without interruption."""
    memory_s: float = 60.0
    """If memory of a GPU stays in use for this many seconds without any job or process on the GPU, this
    counts as a fault.
    """


@dataclass(frozen=True, slots=True)
class GpuHealthPolicy:
    """The settings of `[gpus]` in scheduler.toml that decide what happens to GPUs with faults."""

    check_s: float = 30.0
    """Seconds from a first fault to the first check, and between the checks of a PROBING GPU."""
    check_most_s: float = 3_600.0
    """The longest wait before a check, in seconds."""
    checks: int = 3
    """The number of checks in a row that a cordoned GPU must pass before the GPU takes jobs again."""
    xids: Mapping[int, HealthAction] = field(default_factory=dict)
    """Actions by Xid (an error number of the NVIDIA driver), which override XID_ACTIONS."""
    rules: Mapping[TroubleKind, HealthAction] = field(default_factory=lambda: READING_ACTIONS)
    """The action for each kind of GPU reading that reaches its threshold. READING_ACTIONS applies to a kind
    that is missing here.
    """
    limits: ReadingLimits = ReadingLimits()
    reset: tuple[str, ...] = ()
    """The command that resets a GPU; the UUID of the GPU is appended. If it is empty, agents reset no GPU."""
    most_out: float = 1.0
    """A fault takes no further GPU out of service while at least this fraction of the GPUs of its model is
    out of service. One GPU of each model may always go out of service.
    """

    def action(self, xid: int) -> tuple[HealthAction, str]:
        """Return the action for an Xid (an error number of the NVIDIA driver), and the meaning of the Xid in
        words.
        """
        usual, means = XID_ACTIONS.get(xid, (HealthAction.SUSPECT, "not known to Corral"))
        return self.xids.get(xid, usual), means

    def rule(self, kind: TroubleKind) -> HealthAction:
        """Return the action for a kind of GPU reading that has reached its threshold."""
        return self.rules.get(kind, READING_ACTIONS.get(kind, HealthAction.SUSPECT))


DEFAULT_HEALTH_POLICY = GpuHealthPolicy()


@dataclass(frozen=True, slots=True)
class GpuCondition:
    """The health of one GPU. `needs` names what must happen before the next check: "reset", "reboot" or
    "resume"; empty if the check needs none of them. `due` is the time of the next check; `due` is unused
    while `needs` is set.
    """

    health: GpuHealth = GpuHealth.OK
    why: str = ""
    needs: str = ""
    falls: int = 0
    """The number of faults, failed checks and failed resets, which decides the wait before the next check. It
    starts again at 1 with the first fault after the GPU was OK for FORGET_FAULTS_AFTER_S seconds.
    """
    good: int = 0
    """The number of checks passed in a row."""
    since: float = 0.0
    due: float = 0.0

    @property
    def ok(self) -> bool:
        """True if new jobs may start on the GPU."""
        return self.health is GpuHealth.OK


_IN_VAIN = "; the reset failed: "
_GRAVITY = (GpuHealth.OK, GpuHealth.PROBING, GpuHealth.SUSPECT, GpuHealth.CORDONED, GpuHealth.LOST)
_FALLS = {
    HealthAction.SUSPECT: (GpuHealth.SUSPECT, ""),
    HealthAction.CORDON: (GpuHealth.CORDONED, ""),
    HealthAction.RESET: (GpuHealth.CORDONED, "reset"),
    HealthAction.REBOOT: (GpuHealth.LOST, "reboot"),
}


def after_fault(
    old: GpuCondition, action: HealthAction, why: str, now: float, policy: GpuHealthPolicy
) -> GpuCondition:
    """Return the condition of a GPU after a fault. `action` is the configured reaction to the fault, which
    determines the new state of the GPU. If the GPU is already in a worse state, its condition stays the same.
    If it is already in this state, its condition changes only if a reset or reboot is now needed in addition.
    """
    health, needs = _FALLS[action]
    if _GRAVITY.index(health) < _GRAVITY.index(old.health) or (
        health is old.health and (old.needs or not needs)
    ):
        return old
    return _fallen(old, health, why, needs, now, policy)


def left_in_service(old: GpuCondition, why: str, now: float) -> GpuCondition:
    """Return the condition of an OK GPU that stays in service in spite of a fault, because too many GPUs of
    its model are out of service. `why` describes the fault and the reason.
    """
    return old if old.why == why else replace(old, why=why, since=now)


def occupy(old: GpuCondition, why: str, now: float, policy: GpuHealthPolicy) -> GpuCondition:
    """Return the condition of a GPU that is in use by a process outside of any job. The GPU becomes SUSPECT,
    unless its health is already worse, or it needs a reset, reboot or resume. The use does not count as a
    fault.
    """
    if _GRAVITY.index(old.health) > _GRAVITY.index(GpuHealth.SUSPECT) or old.needs:
        return old
    return replace(old, health=GpuHealth.SUSPECT, why=why, good=0, since=now, due=now + policy.check_s)


def still_waits(old: GpuCondition, why: str, now: float, policy: GpuHealthPolicy) -> GpuCondition:
    """Return the condition of a GPU that is still unusable at a check for the same reason as before, such as
    a process outside of any job.

    A PROBING GPU becomes SUSPECT. The failed check is not a new fault, so the wait before the next check does
    not grow. The condition does not change if the GPU is OK or needs a reset, reboot or resume.
    """
    if old.ok or old.needs:
        return old
    health = GpuHealth.SUSPECT if old.health is GpuHealth.PROBING else old.health
    return replace(old, health=health, why=why, good=0, since=now, due=now + policy.check_s)


def check_now(old: GpuCondition, now: float) -> GpuCondition:
    """Return the condition of a GPU whose next check is due now. Call this when the cause of its bad health
    may be gone. The condition does not change if the GPU is OK or needs a reset, reboot or resume.
    """
    return old if old.ok or old.needs else replace(old, due=now)


def after_driver_loss(old: GpuCondition, why: str, now: float, policy: GpuHealthPolicy) -> GpuCondition:
    """Return the condition of a GPU after the NVIDIA driver has lost the GPU: LOST. Checks continue, so the
    GPU can become OK again. The condition does not change if the GPU is already LOST or needs a reset, reboot
    or resume.
    """
    known = old.needs or old.health is GpuHealth.LOST
    return old if known else _fallen(old, GpuHealth.LOST, why, "", now, policy)


def after_check(old: GpuCondition, ok: bool, why: str, now: float, policy: GpuHealthPolicy) -> GpuCondition:
    """Return the condition of a GPU after a check with the result `ok`. The condition does not change if the
    GPU is OK or needs a reset, reboot or resume.
    """
    if old.ok or old.needs:
        return old
    if not ok:
        health = GpuHealth.LOST if old.health is GpuHealth.LOST else GpuHealth.CORDONED
        return _fallen(old, health, why or old.why, "", now, policy)
    if old.health is GpuHealth.SUSPECT or old.good + 1 >= policy.checks:
        return replace(old, health=GpuHealth.OK, why="", good=0, since=now, due=0.0)
    return replace(
        old,
        health=GpuHealth.PROBING,
        good=old.good + 1,
        since=now,
        due=now + policy.check_s,
    )


def after_failed_reset(old: GpuCondition, why: str, now: float, policy: GpuHealthPolicy) -> GpuCondition:
    """Return the condition of a GPU after a failed reset. The GPU still needs a reset, and each failure
    lengthens the wait before the next reset. The condition does not change if no reset is needed any more.
    """
    if old.needs != "reset":
        return old
    why = f"{old.why.partition(_IN_VAIN)[0]}{_IN_VAIN}{why}"
    return _fallen(old, old.health, why, "reset", now, policy)


def probing(old: GpuCondition, now: float) -> GpuCondition:
    """Return the condition of a GPU after the required reset, reboot or resume. The GPU is PROBING, with a
    check due now.
    """
    return replace(old, health=GpuHealth.PROBING, needs="", good=0, since=now, due=now)


def cordoned(old: GpuCondition, why: str, now: float) -> GpuCondition:
    """Return the condition of a GPU that an operator has cordoned: CORDONED until an operator resumes the
    GPU.
    """
    return replace(old, health=GpuHealth.CORDONED, why=why, needs="resume", good=0, since=now, due=0.0)


def _fallen(
    old: GpuCondition, health: GpuHealth, why: str, needs: str, now: float, policy: GpuHealthPolicy
) -> GpuCondition:
    forgiven = old.ok and now - old.since > FORGET_FAULTS_AFTER_S
    falls = 1 if forgiven else old.falls + 1
    wait = min(policy.check_s * 2.0 ** min(falls - 1, 30), policy.check_most_s)
    return GpuCondition(health, why, needs, falls, 0, now, now + wait)


def resumed_by_operator(restored: GpuCondition, policy: GpuHealthPolicy) -> GpuCondition:
    """Return the condition of a GPU that an operator has resumed. The GPU is OK after one more passed check.
    `restored` is the result of `probing` for the GPU.
    """
    return replace(restored, good=max(0, policy.checks - 1), falls=max(1, restored.falls))
