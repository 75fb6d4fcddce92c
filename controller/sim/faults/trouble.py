"""What goes wrong in a trial, when, and how it comes right again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.core import inputs
from controller.sim.faults import people
from controller.sim.faults.controller import Death
from controller.sim.faults.line import SILENCE_S, Way
from controller.sim.faults.plan import GPUS, one_of
from controller.sim.faults.wishes import TAINT
from controller.sim.generate.dice import Dice
from wire.frames import GpuTrouble
from wire.quota import UNLIMITED
from wire.words import JobState, TroubleKind

if TYPE_CHECKING:
    from controller.sim.faults.trial import Trial

FURIES = (0.3, 1.0, 2.0, 4.0)
"""How much of everything comes; one of these for each seed."""
AFTERSHOCKS = 0.4
GONE_S = 1_000.0
"""Whoever was told to end on a healthy node is gone after so long."""
WAYS = ((Way.UP,), (Way.DOWN,), (Way.UP, Way.DOWN))
TROUBLES = (
    (TroubleKind.SILENT, None),
    (TroubleKind.LOST, None),
    (TroubleKind.UNCLEAN, None),
    (TroubleKind.XID, 13),
    (TroubleKind.XID, 48),
    (TroubleKind.XID, 63),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of trouble: how often it comes in an hour, and what it does."""

    per_hour: float
    strike: Callable[[Trouble], None]


class Trouble:
    """Lets things go wrong on hosts, on lines, in the controller and at the users' hands."""

    def __init__(self, trial: Trial, seed: int) -> None:
        self.trial = trial
        self.clock = trial.clock
        self.dice = Dice(seed, "trouble")
        self.seen: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._struck = ""
        self._until = 0.0

    def arrange(self, seconds: float) -> None:
        """Let everything happen at its times, until the time is over."""
        fury = one_of(self.dice, FURIES)
        for name, kind in KINDS.items():
            at, pause_s = 0.0, 3_600 / (kind.per_hour * fury)
            while (at := at - math.log(1 - self.dice.roll()) * pause_s) < seconds:
                self.clock.at(at, lambda name=name: self._strike(name))  # type: ignore[misc]
        self._until = seconds

    def _strike(self, name: str) -> None:
        if self.clock.now >= self._until:
            return
        self.seen[name] += 1
        self.trial.note(name)
        KINDS[name].strike(self)
        if self.dice.chance(AFTERSHOCKS):
            # Troubles seldom come alone, and mostly to the same node.
            another = one_of(self.dice, [*KINDS])
            self.clock.after(self.dice.between(0.0, 40.0), lambda: self._strike(another))

    # --- lines ---

    def cut_short(self) -> None:
        """Too short to be noticed: everything comes late and in order."""
        self._cut(self.dice.between(0.0, SILENCE_S * 0.9))

    def cut_long(self) -> None:
        """Long enough for the connection to be given up; what was on its way is lost."""
        self._cut(self.dice.between(SILENCE_S, 1_200.0))

    def _cut(self, seconds: float) -> None:
        node = self.node()
        line = self.trial.lines[node]
        ways = one_of(self.dice, WAYS)

        def cut() -> None:
            if not line.cut:
                line.cut_off(ways)
                self.clock.after(seconds, lambda: self._heal(node))

        self._at_worst(node, cut)

    def _heal(self, node: str) -> None:
        self.trial.lines[node].heal()
        self.trial.reach(node)

    def _at_worst(self, node: str, strike: Callable[[], None]) -> None:
        """Now, or when the next frame is about to leave."""
        if self.dice.chance(0.5):
            self.trial.lines[node].arm(strike)
        else:
            strike()

    # --- hosts ---

    def restart_agent(self) -> None:
        """The agent is gone for some seconds; what runs goes on."""
        node = self.node()

        def die() -> None:
            host = self.trial.hosts[node]
            if host.up:
                host.up = False
                self.trial.lines[node].close("the agent ended")
                self.clock.after(self.dice.between(0.1, 30.0), lambda: self._wake(node))

        self._at_worst(node, die)

    def reboot(self) -> None:
        """Everything that runs dies; the spool stays."""
        self._reboot(wiped=False)

    def replace_host(self) -> None:
        """Everything that runs dies, and nobody will ever know of it: the disk is a new one."""
        self._reboot(wiped=True)

    def _reboot(self, *, wiped: bool) -> None:
        node = self.node()

        def die() -> None:
            host, line = self.trial.hosts[node], self.trial.lines[node]
            if not host.up:
                return
            host.reboot(wiped=wiped)
            if self.dice.chance(0.2):  # somebody has seen that it is off
                self.clock.after(self.dice.between(1.0, SILENCE_S), lambda: self._declare_lost(node))
            host.missing = int(self.dice.roll() * 2) if self.dice.chance(0.3) else 0
            # A host that loses its power says no goodbye.
            line.close("the agent has been silent", after_s=self.dice.between(0.0, SILENCE_S))
            self.clock.after(self.dice.between(SILENCE_S, 1_800.0), lambda: self._wake(node))

        self._at_worst(node, die)

    def _declare_lost(self, node: str) -> None:
        if not self.trial.hosts[node].up:
            self.trial.tell(inputs.DeclareLost(node, "root"))

    def _wake(self, node: str) -> None:
        self.trial.hosts[node].wake()
        self.trial.reach(node)

    def sicken_gpu(self) -> None:
        """A GPU falls ill for a while; what runs on it goes on."""
        node = self.node()
        host = self.trial.hosts[node]
        uuid = one_of(self.dice, [gpu.uuid for gpu in host.facts.gpus])
        host.sick.add(uuid)
        self.clock.after(self.dice.between(10.0, 3_600.0), lambda: host.sick.discard(uuid))
        if host.up:
            kind, xid = one_of(self.dice, TROUBLES)
            self.trial.lines[node].send(Way.UP, GpuTrouble(uuid, kind, "virtual", xid))

    def slow_down(self) -> None:
        """For a while, what starts there takes longer."""
        host = self.trial.hosts[self.node()]
        host.slowness = self.dice.between(1.0, 8.0)

        def recover() -> None:
            host.slowness = 1.0

        self.clock.after(self.dice.between(60.0, 7_200.0), recover)

    # --- the controller ---

    def kill_controller(self) -> None:
        """kill -9, around its next commit."""
        self.trial.controller.doom = one_of(self.dice, [*Death])

    # --- people ---

    def add(self, node: str) -> None:
        """A node is known, and connected to, if it was removed."""
        if node not in self.trial.controller.engine.state.nodes.by_name:
            self.trial.tell(inputs.AddNode(node, by="root"))
            self.clock.after(self.dice.between(0.0, 10.0), lambda: self.trial.reach(node))

    # --- the end ---

    def heal_all(self) -> None:
        """All comes right: from now on every job must find its end."""
        trial = self.trial
        trial.controller.doom = None
        trial.revive()
        for node, host in trial.hosts.items():
            host.missing, host.slowness = 0, 1.0
            host.sick.clear()
            host.wake()
            trial.tell(inputs.AddNode(node, by="root"))
            line = trial.lines[node]
            line.disarm()
            line.heal()
            line.close("for a last new one")
            trial.reach(node)
            trial.tell(inputs.Resume(node, "root"))
            none = {f"{TAINT}:{effect}": None for effect in ("NoExecute", "NoSchedule")}
            trial.tell(inputs.MarkNode(node, "root", {}, none))
        for key in people.TENANTS:
            trial.tell(inputs.UnsetQuota(*key, "root"))
        trial.tell(inputs.SetShare(people.SHARE, None, "root", hard=UNLIMITED))
        trial.tell(inputs.CancelReservation(people.RESERVATION, "root"))
        self._release_all()
        # Who was preempted to be held is held by then, and GPUs that were missing are back.
        self.clock.after(GONE_S, self._release_all)

    def _release_all(self) -> None:
        for node in self.trial.hosts:
            for gpu in range(GPUS):
                self.trial.tell(inputs.ResumeGpu(node, gpu, "root"))
        engine = self.trial.controller.engine
        for job in [*engine.state.live()]:
            self.trial.tell(inputs.Release(job.id, "root"))
            # One that came while nodes were not there may be too wide for those that its profile has.
            if job.state is JobState.QUEUED and engine.schedulers.of(job).placer.shape(job.ask) is None:
                self.trial.tell(inputs.Cancel(job.id, "root"))

    def node(self) -> str:
        """Any of them, and often the one that was struck last."""
        if not self._struck or self.dice.chance(0.6):
            self._struck = one_of(self.dice, [*self.trial.hosts])
        return self._struck


KINDS: Mapping[str, Kind] = {
    "short cut": Kind(2.0, Trouble.cut_short),
    "long cut": Kind(2.0, Trouble.cut_long),
    "agent restarted": Kind(1.5, Trouble.restart_agent),
    "host rebooted": Kind(1.0, Trouble.reboot),
    "host replaced": Kind(0.5, Trouble.replace_host),
    "GPU fell ill": Kind(1.0, Trouble.sicken_gpu),
    "host slow": Kind(0.5, Trouble.slow_down),
    "controller killed": Kind(1.2, Trouble.kill_controller),
    "job cancelled": Kind(2.0, people.cancel),
    "job held": Kind(1.5, people.hold),
    "job edited": Kind(1.5, people.edit),
    "job preempted": Kind(0.7, people.preempt),
    "node drained": Kind(0.7, people.drain),
    "node tainted": Kind(0.4, people.taint),
    "GPU cordoned": Kind(0.5, people.cordon),
    "node removed": Kind(0.4, people.remove),
    "quota set": Kind(0.4, people.limit),
    "share set": Kind(0.3, people.share),
    "stranger came": Kind(0.4, people.stranger),
    "node reserved": Kind(0.4, people.reserve),
    "GPUs idle": Kind(0.7, people.idle),
}
