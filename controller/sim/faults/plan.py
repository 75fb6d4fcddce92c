"""What a trial is made of: a small cluster, jobs that look for edges, and a policy; all of it by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from controller.config import Config
from controller.core.plugin import Backfill
from controller.sim.cluster import Cluster, nodes_of
from controller.sim.faults.rules import drawn_rules
from controller.sim.faults.wishes import with_wishes
from controller.sim.generate.dice import Dice, Odds
from controller.sim.run import varied
from controller.sim.workload import Work
from wire.spec import JobSpec

T = TypeVar("T")

GPUS = 4
"""Of each node, with four CPUs and 32 GiB each."""
SCRATCH_MIB = 102_400
ORDERS = ("priority", "aging", "deadline", "fair", "fifo", "multifactor", "shortest")
SIZES = Odds(
    [
        *((0.0, 2.0), (0.25, 2.0), (0.5, 2.0), (1.0, 4.0), (2.0, 2.0), (3.0, 1.0)),
        *((4.0, 1.0), (6.0, 0.5), (8.0, 0.5)),
    ]
)
USERS = Odds([("ada", 4.0), ("bo", 2.0), ("cy", 1.0)])
PRIORITIES = Odds([(50, 6.0), (25, 1.0), (75, 1.0), (0, 1.0), (100, 0.5)])
CODES = Odds([(0, 8.0), (1, 1.0), (3, 0.5), (137, 0.5)])
SLOTS = ("", "", "%1", "%2")
GRACES = Odds([(0.0, 1.0), (10.0, 3.0), (60.0, 1.0)])


def one_of(dice: Dice, things: Sequence[T]) -> T:
    """Any of them."""
    return things[int(dice.roll() * len(things))]


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a trial is; everything else follows from its seed."""

    hours: float = 4.0
    nodes: int = 4
    jobs: int = 40
    config: Config | None = None
    """Whose policy is tried; None: every seed draws one."""

    @property
    def seconds(self) -> float:
        """How long jobs and faults keep coming."""
        return self.hours * 3_600

    def cluster(self) -> Cluster:
        """Small hosts, so that jobs get in each other's way."""
        found = nodes_of(self.nodes, GPUS, 4 * GPUS, 32_768 * GPUS, "H100")
        return Cluster({name: replace(facts, storage_mib=SCRATCH_MIB) for name, facts in found.nodes.items()})

    def policy(self, seed: int) -> Config:
        """The policy of a trial: every order and every backfill has its turn."""
        if self.config is not None:
            return self.config
        dice = Dice(seed, "policy")
        order, backfill = one_of(dice, ORDERS), one_of(dice, [*Backfill]).value
        rules = Config.model_validate(drawn_rules(Dice(seed, "rules")))
        return varied(rules, order, backfill).model_copy(update={"profiles": rules.profiles})

    def work(self, seed: int) -> Iterator[Work]:
        """The jobs, in the order of their numbers and not of time."""
        dice, wishes = Dice(seed, "work"), Dice(seed, "wishes")
        licences = self.policy(seed).licences
        for number in range(1, self.jobs + 1):
            work = self._job(dice, number)
            asked = with_wishes(wishes, work.spec, number - 1, work.submit_s, self.seconds, licences)
            yield replace(work, spec=asked)

    def _job(self, dice: Dice, number: int) -> Work:
        gpus, runtime = SIZES.draw(dice), self._runtime(dice)
        wide = gpus > GPUS or (gpus in (0.0, 2.0, 4.0) and dice.chance(0.4))
        spec = JobSpec(
            command=("true",),
            name=f"j{number}",
            priority=PRIORITIES.draw(dice),
            cpu_milli=1_000 * (1 + int(dice.roll() * 4)),
            memory_mib=1_024 * (1 + int(dice.roll() * 16)),
            gpus=gpus,
            nodes=min(self._width(dice, gpus), self.nodes) if wide else None if dice.chance(0.5) else 1,
            # Some limits come too early, some at the very second.
            time_limit_s=None if dice.chance(0.3) else max(1.0, runtime * dice.between(0.5, 4.0)),
            grace_s=GRACES.draw(dice),
            array=f"0-{1 + int(dice.roll() * 3)}{one_of(dice, SLOTS)}" if dice.chance(0.08) else None,
            hold=dice.chance(0.05),
        )
        # Half of the jobs come in one of three rushes.
        rush = self.seconds * (0.05 + 0.3 * int(dice.roll() * 3))
        submit = rush + dice.roll() if dice.chance(0.5) else self.seconds * 0.9 * dice.roll()
        return Work(number, submit, spec, runtime, USERS.draw(dice), CODES.draw(dice))

    def _width(self, dice: Dice, gpus: float) -> int:
        return 3 if gpus in (0.0, 6.0) and dice.chance(0.5) else 2

    def _runtime(self, dice: Dice) -> float:
        if dice.chance(0.1):
            return 0.0 if dice.chance(0.5) else dice.roll()
        return dice.lognormal(self.seconds / 20, 1.0)
