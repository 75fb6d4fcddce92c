"""The health of one GPU, pure: ok → suspect → cordoned → probing → ok, waiting longer each time it falls.

Only an OK GPU takes new work. What a GPU suffers from is told by its agent; what that means is decided here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from wire.words import GpuHealth

FORGIVEN_S = 86_400.0
"""A GPU that was well for so long falls ill for the first time again."""


class Action(enum.Enum):
    """What an Xid leads to."""

    IGNORE = "ignore"
    """It says something about the driver's housekeeping."""
    BLAME = "blame"
    """The job's own doing: the GPU stays, and the job that fails hears why."""
    SUSPECT = "suspect"
    """Out until it was looked at once."""
    CORDON = "cordon"
    """Out until it has passed several looks."""
    RESET = "reset"
    """Out until the GPU was reset: by its agent, a reboot, or by somebody who then resumes it."""
    REBOOT = "reboot"
    """Lost until the host has booted again."""


XIDS: Mapping[int, tuple[Action, str]] = MappingProxyType(
    {
        13: (Action.BLAME, "graphics engine exception"),
        31: (Action.BLAME, "memory page fault"),
        43: (Action.IGNORE, "a program was stopped"),
        45: (Action.IGNORE, "cleanup after a program's end"),
        48: (Action.CORDON, "double-bit ECC error"),
        63: (Action.IGNORE, "a row of memory was remapped"),
        64: (Action.RESET, "a row of memory could not be remapped"),
        74: (Action.CORDON, "NVLink error"),
        79: (Action.REBOOT, "fallen off the bus"),
        92: (Action.IGNORE, "many single-bit ECC errors"),
        94: (Action.BLAME, "contained ECC error"),
        95: (Action.CORDON, "uncontained ECC error"),
        119: (Action.RESET, "its system processor does not answer"),
        120: (Action.RESET, "its system processor has failed"),
    }
)


@dataclass(frozen=True, slots=True)
class Care:
    """How sick GPUs are treated: `[gpus]` of scheduler.toml."""

    check_s: float = 30.0
    """Until the first look at a GPU that fell ill, and between looks at one that is getting well."""
    check_most_s: float = 3_600.0
    """The longest wait between looks, however often it falls."""
    checks: int = 3
    """Looks in a row that a cordoned GPU must pass."""
    xids: Mapping[int, Action] = field(default_factory=dict)
    """Actions other than the usual ones."""
    reset: tuple[str, ...] = ()
    """What resets a GPU, its UUID put behind; nothing: only people and reboots do."""

    def action(self, xid: int) -> tuple[Action, str]:
        """What to do about an Xid, and what it means."""
        usual, means = XIDS.get(xid, (Action.SUSPECT, "not known to Corral"))
        return self.xids.get(xid, usual), means


USUAL_CARE = Care()


@dataclass(frozen=True, slots=True)
class Condition:
    """How a GPU is. With `needs` nobody looks until that has happened; `due` is when somebody does."""

    health: GpuHealth = GpuHealth.OK
    why: str = ""
    needs: str = ""
    falls: int = 0
    """Times it has fallen ill without a long time of health between."""
    good: int = 0
    """Looks passed in a row."""
    since: float = 0.0
    due: float = 0.0

    @property
    def well(self) -> bool:
        """Takes new work."""
        return self.health is GpuHealth.OK


_IN_VAIN = "; the reset failed: "
_GRAVITY = (GpuHealth.OK, GpuHealth.PROBING, GpuHealth.SUSPECT, GpuHealth.CORDONED, GpuHealth.LOST)
_FALLS = {
    Action.SUSPECT: (GpuHealth.SUSPECT, ""),
    Action.CORDON: (GpuHealth.CORDONED, ""),
    Action.RESET: (GpuHealth.CORDONED, "reset"),
    Action.REBOOT: (GpuHealth.LOST, "reboot"),
}


def fall(old: Condition, action: Action, why: str, now: float, care: Care) -> Condition:
    """Something is wrong with the GPU; what is said of one that is as sick already changes nothing."""
    health, needs = _FALLS[action]
    if _GRAVITY.index(health) < _GRAVITY.index(old.health) or (
        health is old.health and (old.needs or not needs)
    ):
        return old
    return _fallen(old, health, why, needs, now, care)


def lose(old: Condition, why: str, now: float, care: Care) -> Condition:
    """The driver has lost the GPU. It is looked at all the same: should it answer again, it is back."""
    known = old.needs or old.health is GpuHealth.LOST
    return old if known else _fallen(old, GpuHealth.LOST, why, "", now, care)


def look(old: Condition, ok: bool, why: str, now: float, care: Care) -> Condition:
    """Somebody has looked at a sick GPU."""
    if old.well or old.needs:
        return old
    if not ok:
        health = GpuHealth.LOST if old.health is GpuHealth.LOST else GpuHealth.CORDONED
        return _fallen(old, health, why or old.why, "", now, care)
    if old.health is GpuHealth.SUSPECT or old.good + 1 >= care.checks:
        return replace(old, health=GpuHealth.OK, why="", good=0, since=now, due=0.0)
    return replace(old, health=GpuHealth.PROBING, good=old.good + 1, since=now, due=now + care.check_s)


def unreset(old: Condition, why: str, now: float, care: Care) -> Condition:
    """A reset was tried in vain: it is tried again, waiting longer each time."""
    if old.needs != "reset":
        return old
    told = f"{old.why.partition(_IN_VAIN)[0]}{_IN_VAIN}{why}"
    return _fallen(old, old.health, told, "reset", now, care)


def restore(old: Condition, now: float) -> Condition:
    """What it needed has happened, or somebody vouches for it: look at it at once."""
    return replace(old, health=GpuHealth.PROBING, needs="", good=0, since=now, due=now)


def cordon(old: Condition, why: str, now: float) -> Condition:
    """An operator takes it out, and only an operator puts it back."""
    return replace(old, health=GpuHealth.CORDONED, why=why, needs="resume", good=0, since=now, due=0.0)


def _fallen(old: Condition, health: GpuHealth, why: str, needs: str, now: float, care: Care) -> Condition:
    forgiven = old.well and now - old.since > FORGIVEN_S
    falls = 1 if forgiven else old.falls + 1
    wait = min(care.check_s * 2.0 ** min(falls - 1, 30), care.check_most_s)
    return Condition(health, why, needs, falls, 0, now, now + wait)


def vouched(restored: Condition, care: Care) -> Condition:
    """Of a GPU that somebody vouches for, one look is enough."""
    return replace(restored, good=max(0, care.checks - 1), falls=max(1, restored.falls))
