"""The plan of a trial by seed: a small cluster, jobs with edge cases, a policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from controller.config import Config
from controller.sim.cluster import Cluster, nodes_of
from controller.sim.generate.random_numbers import RandomStream, WeightedChoice
from controller.sim.run import with_order_and_backfill
from controller.sim.trace_job import TraceJob
from tests.simulation.random_config import drawn_rules
from tests.simulation.random_job_features import with_wishes
from wire.job.spec import JobSpec

T = TypeVar("T")

GPUS = 4
"""GPUs per node, with four CPUs and 32 GiB each."""
SCRATCH_MIB = 102_400
ORDERS = ("priority", "aging", "deadline", "fair", "fifo", "multifactor", "shortest")
BACKFILLS = ("none", "easy", "easy-sjbf", "conservative", "aggressive", "greedy")
SIZES = WeightedChoice(
    [
        *((0.0, 2.0), (0.25, 2.0), (0.5, 2.0), (1.0, 4.0), (2.0, 2.0), (3.0, 1.0)),
        *((4.0, 1.0), (6.0, 0.5), (8.0, 0.5)),
    ]
)
USERS = WeightedChoice([("ada", 4.0), ("bo", 2.0), ("cy", 1.0)])
PRIORITIES = WeightedChoice([(50, 6.0), (25, 1.0), (75, 1.0), (0, 1.0), (100, 0.5)])
CODES = WeightedChoice([(0, 8.0), (1, 1.0), (3, 0.5), (137, 0.5)])
SLOTS = ("", "", "%1", "%2")
GRACES = WeightedChoice([(0.0, 1.0), (10.0, 3.0), (60.0, 1.0)])


def one_of(rng: RandomStream, things: Sequence[T]) -> T:
    """A random one."""
    return things[int(rng.uniform() * len(things))]


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """The size of a trial; everything else follows from its seed."""

    hours: float = 4.0
    nodes: int = 4
    jobs: int = 40
    config: Config | None = None
    """The policy; None: every seed draws one."""

    @property
    def seconds(self) -> float:
        """Seconds during which jobs arrive and faults happen."""
        return self.hours * 3_600

    def cluster(self) -> Cluster:
        """Small nodes, so that jobs compete."""
        found = nodes_of(self.nodes, GPUS, 4 * GPUS, 32_768 * GPUS, "H100")
        return Cluster({name: replace(facts, storage_mib=SCRATCH_MIB) for name, facts in found.nodes.items()})

    def policy(self, seed: int) -> Config:
        """The policy of a trial; orders and backfill kinds are drawn by seed."""
        if self.config is not None:
            return self.config
        rng = RandomStream(seed, "policy")
        order, backfill = one_of(rng, ORDERS), one_of(rng, BACKFILLS)
        rules = Config.model_validate(drawn_rules(RandomStream(seed, "rules")))
        return with_order_and_backfill(rules, order, backfill).model_copy(update={"profiles": rules.profiles})

    def work(self, seed: int) -> Iterator[TraceJob]:
        """The jobs in the order of their numbers, not of submit."""
        rng, wishes = RandomStream(seed, "work"), RandomStream(seed, "wishes")
        licences = self.policy(seed).licences
        for number in range(1, self.jobs + 1):
            work = self._job(rng, number)
            asked = with_wishes(wishes, work.spec, number - 1, work.submit_s, self.seconds, licences)
            yield replace(work, spec=asked)

    def _job(self, rng: RandomStream, number: int) -> TraceJob:
        gpus, runtime = SIZES.draw(rng), self._runtime(rng)
        wide = gpus > GPUS or (gpus in (0.0, 2.0, 4.0) and rng.chance(0.4))
        spec = JobSpec(
            command=("true",),
            name=f"j{number}",
            priority=PRIORITIES.draw(rng),
            cpu_milli=1_000 * (1 + int(rng.uniform() * 4)),
            memory_mib=1_024 * (1 + int(rng.uniform() * 16)),
            gpus=gpus,
            nodes=min(self._width(rng, gpus), self.nodes) if wide else None if rng.chance(0.5) else 1,
            # Some limits come too early, some exactly at the end.
            time_limit_s=None if rng.chance(0.3) else max(1.0, runtime * rng.between(0.5, 4.0)),
            grace_s=GRACES.draw(rng),
            array=f"0-{1 + int(rng.uniform() * 3)}{one_of(rng, SLOTS)}" if rng.chance(0.08) else None,
            hold=rng.chance(0.05),
        )
        # Half of the jobs arrive in one of three bursts.
        rush = self.seconds * (0.05 + 0.3 * int(rng.uniform() * 3))
        submit = rush + rng.uniform() if rng.chance(0.5) else self.seconds * 0.9 * rng.uniform()
        return TraceJob(number, submit, spec, runtime, USERS.draw(rng), CODES.draw(rng))

    def _width(self, rng: RandomStream, gpus: float) -> int:
        return 3 if gpus in (0.0, 6.0) and rng.chance(0.5) else 2

    def _runtime(self, rng: RandomStream) -> float:
        if rng.chance(0.1):
            return 0.0 if rng.chance(0.5) else rng.uniform()
        return rng.lognormal(self.seconds / 20, 1.0)
