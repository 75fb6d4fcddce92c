"""Injects faults into a trial and repairs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.core.model.inputs import job_inputs, node_inputs, policy_inputs
from controller.sim.generate.random_numbers import RandomStream
from tests.simulation import random_actions
from tests.simulation.controller import CrashPoint
from tests.simulation.flaky_link import SILENCE_S, Direction
from tests.simulation.random_job_features import TAINT
from tests.simulation.trial_plan import GPUS, one_of
from wire.agent.reports import GpuTrouble
from wire.cluster.quota import UNLIMITED
from wire.names import JobState, TroubleKind

if TYPE_CHECKING:
    from tests.simulation.trial import FaultTrial

FAULT_RATES = (0.3, 1.0, 2.0, 4.0)
"""Factors of all fault rates; one is drawn per seed."""
AFTERSHOCKS = 0.4
GONE_S = 1_000.0
"""Seconds after which a stopped process on a healthy node has ended."""
CUT_DIRECTIONS = ((Direction.UP,), (Direction.DOWN,), (Direction.UP, Direction.DOWN))
GPU_FAULTS = (
    (TroubleKind.SILENT, None),
    (TroubleKind.LOST, None),
    (TroubleKind.UNCLEAN, None),
    (TroubleKind.XID, 13),
    (TroubleKind.XID, 48),
    (TroubleKind.XID, 63),
)


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault: its rate per hour, and what it does."""

    per_hour: float
    strike: Callable[[FaultInjector], None]


class FaultInjector:
    """Injects faults into hosts, links and the controller, and actions of users and operators."""

    def __init__(self, trial: FaultTrial, seed: int) -> None:
        self.trial = trial
        self.clock = trial.clock
        self.rng = RandomStream(seed, "trouble")
        self.seen: dict[str, int] = dict.fromkeys(FAULT_KINDS, 0)
        self._struck = ""
        self._until = 0.0

    def arrange(self, seconds: float) -> None:
        """Schedule all faults until this time."""
        factor = one_of(self.rng, FAULT_RATES)
        for name, kind in FAULT_KINDS.items():
            at, pause_s = 0.0, 3_600 / (kind.per_hour * factor)
            while (at := at - math.log(1 - self.rng.uniform()) * pause_s) < seconds:
                self.clock.at(at, lambda name=name: self._strike(name))  # type: ignore[misc]
        self._until = seconds

    def _strike(self, name: str) -> None:
        if self.clock.now >= self._until:
            return
        self.seen[name] += 1
        self.trial.note(name)
        FAULT_KINDS[name].strike(self)
        if self.rng.chance(AFTERSHOCKS):
            # A second fault often follows, mostly on the same node.
            another = one_of(self.rng, [*FAULT_KINDS])
            self.clock.after(self.rng.between(0.0, 40.0), lambda: self._strike(another))

    # --- links ---

    def cut_short(self) -> None:
        """A cut that is too short to be noticed: frames arrive late, in order."""
        self._cut(self.rng.between(0.0, SILENCE_S * 0.9))

    def cut_long(self) -> None:
        """A cut that ends the connection; frames on the way are lost."""
        self._cut(self.rng.between(SILENCE_S, 1_200.0))

    def _cut(self, seconds: float) -> None:
        node = self.node()
        line = self.trial.lines[node]
        ways = one_of(self.rng, CUT_DIRECTIONS)

        def cut() -> None:
            if not line.cut:
                line.cut_off(ways)
                self.clock.after(seconds, lambda: self._heal(node))

        self._at_worst(node, cut)

    def _heal(self, node: str) -> None:
        self.trial.lines[node].heal()
        self.trial.reach(node)

    def _at_worst(self, node: str, strike: Callable[[], None]) -> None:
        """Inject the fault now, or just before the next frame is sent."""
        if self.rng.chance(0.5):
            self.trial.lines[node].arm(strike)
        else:
            strike()

    # --- hosts ---

    def restart_agent(self) -> None:
        """The agent is down for some seconds; jobs go on."""
        node = self.node()

        def die() -> None:
            host = self.trial.hosts[node]
            if host.up:
                host.up = False
                self.trial.lines[node].close("the agent ended")
                self.clock.after(self.rng.between(0.1, 30.0), lambda: self._wake(node))

        self._at_worst(node, die)

    def reboot(self) -> None:
        """All processes end; the spool stays."""
        self._reboot(wiped=False)

    def replace_host(self) -> None:
        """All processes end and the spool is lost, because the disk is new."""
        self._reboot(wiped=True)

    def _reboot(self, *, wiped: bool) -> None:
        node = self.node()

        def die() -> None:
            host, line = self.trial.hosts[node], self.trial.lines[node]
            if not host.up:
                return
            host.reboot(wiped=wiped)
            if self.rng.chance(0.2):  # an operator has seen that it is off
                self.clock.after(self.rng.between(1.0, SILENCE_S), lambda: self._declare_lost(node))
            host.missing = int(self.rng.uniform() * 2) if self.rng.chance(0.3) else 0
            # A host without power closes no connection.
            line.close("the agent has been silent", after_s=self.rng.between(0.0, SILENCE_S))
            self.clock.after(self.rng.between(SILENCE_S, 1_800.0), lambda: self._wake(node))

        self._at_worst(node, die)

    def _declare_lost(self, node: str) -> None:
        if not self.trial.hosts[node].up:
            self.trial.tell(node_inputs.DeclareLost(node, "root"))

    def _wake(self, node: str) -> None:
        self.trial.hosts[node].wake()
        self.trial.reach(node)

    def sicken_gpu(self) -> None:
        """A GPU has a fault for a while; jobs on it go on."""
        node = self.node()
        host = self.trial.hosts[node]
        uuid = one_of(self.rng, [gpu.uuid for gpu in host.facts.gpus])
        host.sick.add(uuid)
        self.clock.after(self.rng.between(10.0, 3_600.0), lambda: host.sick.discard(uuid))
        if host.up:
            kind, xid = one_of(self.rng, GPU_FAULTS)
            self.trial.lines[node].send(Direction.UP, GpuTrouble(uuid, kind, "virtual", xid))

    def slow_down(self) -> None:
        """Starts on a node take longer for a while."""
        host = self.trial.hosts[self.node()]
        host.slowness = self.rng.between(1.0, 8.0)

        def recover() -> None:
            host.slowness = 1.0

        self.clock.after(self.rng.between(60.0, 7_200.0), recover)

    # --- the controller ---

    def kill_controller(self) -> None:
        """kill -9, around its next commit."""
        self.trial.controller.doom = one_of(self.rng, [*CrashPoint])

    # --- operators ---

    def add(self, node: str) -> None:
        """Add and connect a node if it was removed."""
        if node not in self.trial.controller.engine.state.nodes.by_name:
            self.trial.tell(node_inputs.AddNode(node, by="root"))
            self.clock.after(self.rng.between(0.0, 10.0), lambda: self.trial.reach(node))

    # --- the end ---

    def heal_all(self) -> None:
        """Repair everything: from now on every job must end."""
        trial = self.trial
        trial.controller.doom = None
        trial.revive()
        for node, host in trial.hosts.items():
            host.missing, host.slowness = 0, 1.0
            host.sick.clear()
            host.wake()
            trial.tell(node_inputs.AddNode(node, by="root"))
            line = trial.lines[node]
            line.disarm()
            line.heal()
            line.close("for a last new one")
            trial.reach(node)
            trial.tell(node_inputs.Resume(node, "root"))
            none = {f"{TAINT}:{effect}": None for effect in ("NoExecute", "NoSchedule")}
            trial.tell(node_inputs.MarkNode(node, "root", {}, none))
        for key in random_actions.TENANTS:
            trial.tell(policy_inputs.UnsetQuota(*key, "root"))
        trial.tell(policy_inputs.SetShare(random_actions.SHARE, None, "root", hard=UNLIMITED))
        trial.tell(policy_inputs.CancelReservation(random_actions.RESERVATION, "root"))
        self._release_all()
        # By then preempted jobs are held, and missing GPUs are back.
        self.clock.after(GONE_S, self._release_all)

    def _release_all(self) -> None:
        for node in self.trial.hosts:
            for gpu in range(GPUS):
                self.trial.tell(node_inputs.ResumeGpu(node, gpu, "root"))
        engine = self.trial.controller.engine
        for job in [*engine.state.live()]:
            self.trial.tell(job_inputs.Release(job.id, "root"))
            # A job submitted while nodes were missing may be too wide for the nodes of its profile.
            if job.state is JobState.QUEUED and engine.profile_cycles.of(job).placer.shape(job.ask) is None:
                self.trial.tell(job_inputs.Cancel(job.id, "root"))

    def node(self) -> str:
        """A random node, often the last one."""
        if not self._struck or self.rng.chance(0.6):
            self._struck = one_of(self.rng, [*self.trial.hosts])
        return self._struck


FAULT_KINDS: Mapping[str, FaultKind] = {
    "short cut": FaultKind(2.0, FaultInjector.cut_short),
    "long cut": FaultKind(2.0, FaultInjector.cut_long),
    "agent restarted": FaultKind(1.5, FaultInjector.restart_agent),
    "host rebooted": FaultKind(1.0, FaultInjector.reboot),
    "host replaced": FaultKind(0.5, FaultInjector.replace_host),
    "GPU fell ill": FaultKind(1.0, FaultInjector.sicken_gpu),
    "host slow": FaultKind(0.5, FaultInjector.slow_down),
    "controller killed": FaultKind(1.2, FaultInjector.kill_controller),
    "job cancelled": FaultKind(2.0, random_actions.cancel),
    "job held": FaultKind(1.5, random_actions.hold),
    "job edited": FaultKind(1.5, random_actions.edit),
    "job preempted": FaultKind(0.7, random_actions.preempt),
    "node drained": FaultKind(0.7, random_actions.drain),
    "node tainted": FaultKind(0.4, random_actions.taint),
    "GPU cordoned": FaultKind(0.5, random_actions.cordon),
    "node removed": FaultKind(0.4, random_actions.remove),
    "quota set": FaultKind(0.4, random_actions.limit),
    "share set": FaultKind(0.3, random_actions.share),
    "process past the queue": FaultKind(0.4, random_actions.offqueue_process),
    "node reserved": FaultKind(0.4, random_actions.reserve),
    "GPUs idle": FaultKind(0.7, random_actions.idle),
}
