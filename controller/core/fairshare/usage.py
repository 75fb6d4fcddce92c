"""How fair share counts usage: the settings [fair_share], the charge for resources, and counters in which old
usage counts less. A counter needs no timer: its value is computed at each read and at each change of its
rate.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from controller.core.cluster.node_table import most_specific
from controller.core.model.allocation import Allocation
from wire.agent.orders import GpuHold
from wire.agent.reports import NodeFacts
from wire.cluster.quota import UNLIMITED
from wire.job.spec import is_storable
from wire.names import WHOLE_GPU

NO_ALLOCATION = Allocation("", 0, 0)
HOUR_S = 3600.0
MAX_WEIGHT = 1_000_000.0
MAX_UNITS = 1e12
"""The largest limit of a tenant, in billing units."""
BUCKETS = 60
"""A sliding window is divided into this many parts."""
ROUNDING = 1e-9
"""A rate of use below this number is set to 0: it is only a rounding error, which remains after all charges
were subtracted.
"""


@dataclass(slots=True)
class DecayedUsage:
    """A usage counter with a half-life: a unit that was used one half-life ago counts half.

    At the time `at` the total is `amount`, and since then the rate of use is `rate`. The total at a later
    time t is amount * k + rate * longest_h * (1 - k), where k = 2 ** -((t - at) / half-life).
    """

    half_life_s: float
    amount: float = 0.0
    at: float = 0.0
    rate: float = 0.0
    longest_h: float = field(init=False, repr=False, compare=False)
    """The amount that a constant rate of one unit per hour reaches after a very long time."""

    def __post_init__(self) -> None:
        self.longest_h = self.half_life_s / HOUR_S / math.log(2.0)

    def total(self, now: float) -> float:
        if now <= self.at:
            return self.amount
        values = math.exp2((self.at - now) / self.half_life_s)
        return self.amount * values + self.rate * self.longest_h * (1.0 - values)

    def falls_to(self, amount: float, now: float) -> float:
        """Return the time at which the total falls to `amount`. The rate of use is assumed to stay the same.
        Return infinity if the total never falls this far.
        """
        lasting, total = self.rate * self.longest_h, self.total(now)
        if total <= amount:
            return now
        if amount <= lasting:
            return math.inf
        return now + self.half_life_s * math.log2((total - lasting) / (amount - lasting))

    def change(self, rate: float, now: float) -> None:
        """Add `rate` (units per hour; may be negative) to the rate of use, from now on."""
        self.amount, self.at = self.total(now), max(now, self.at)
        self.rate = total if (total := self.rate + rate) > ROUNDING else 0.0

    def dump(self) -> list[float]:
        """Return the values of this counter for its database row."""
        return [self.amount, self.at, self.rate]

    def load(self, values: list[float]) -> Self:
        self.amount, self.at, self.rate = values
        return self


@dataclass(slots=True)
class WindowedUsage:
    """A usage counter with a sliding time window: use that is older than the window does not count.

    The window is divided into BUCKETS equal parts. If only a fraction of the oldest part is still in the
    window, the same fraction of its use counts.
    """

    window_s: float
    buckets: deque[tuple[int, float]] = field(default_factory=deque)
    at: float = 0.0
    rate: float = 0.0

    @property
    def longest_h(self) -> float:
        """The length of the window in hours. The total after a constant use of one unit per hour is the same
        number.
        """
        return self.window_s / HOUR_S

    def total(self, now: float) -> float:
        """Return how many units were used in the window that ends at `now`."""
        width = self.window_s / BUCKETS
        begin = now - self.window_s
        counted = 0.0
        for number, units in self.buckets:
            counted += units * min(1.0, max(0.0, (number + 1) - begin / width))
        return counted + self.rate * max(0.0, min(now - self.at, self.window_s)) / HOUR_S

    def falls_to(self, amount: float, now: float) -> float:
        """Return the time at which the total falls to `amount`. The rate of use is assumed to stay the same.
        Return infinity if the total never falls this far.
        """
        width = self.window_s / BUCKETS
        before, total = now, self.total(now)
        first = int(now // width) + 1
        edges = [number * width for number in range(first, first + BUCKETS + 2)]
        for moment in sorted([*edges, max(now, self.at + self.window_s)]):
            if total <= amount:
                return before
            then = self.total(moment)
            if then <= amount:
                # Interpolate between the two times `before` and `moment`. Between them, the total falls
                # linearly, because no edge of a bucket (part of the window) leaves the window.
                return before + (moment - before) * (total - amount) / (total - then)
            before, total = moment, then
        return math.inf

    def change(self, rate: float, now: float) -> None:
        """Add `rate` (units per hour; may be negative) to the rate of use, from now on."""
        self._settle(now)
        self.rate = total if (total := self.rate + rate) > ROUNDING else 0.0

    def _settle(self, now: float) -> None:
        """Add the use from the time `at` until `now` to the buckets (parts of the window) in which the use
        happened.
        """
        width = self.window_s / BUCKETS
        begin = max(self.at, now - self.window_s)
        while self.rate and begin < now:
            number = int(begin // width)
            end = min(now, (number + 1) * width)
            if end <= begin:
                # Rounding can put `begin` at the end of its bucket. Count the use in the next bucket then.
                number, end = number + 1, min(now, (number + 2) * width)
            self._add(number, self.rate * (end - begin) / HOUR_S)
            begin = end
        self.at = max(now, self.at)
        oldest = int((self.at - self.window_s) // width)
        while self.buckets and self.buckets[0][0] < oldest:
            self.buckets.popleft()

    def _add(self, number: int, units: float) -> None:
        if self.buckets and self.buckets[-1][0] == number:
            self.buckets[-1] = (number, self.buckets[-1][1] + units)
        else:
            self.buckets.append((number, units))

    def dump(self) -> list[float]:
        """Return the values of this counter for its database row."""
        flat = [value for bucket in self.buckets for value in bucket]
        return [self.at, self.rate, *flat]

    def load(self, values: list[float]) -> Self:
        self.at, self.rate = values[:2]
        self.buckets = deque(
            (int(number), units) for number, units in zip(values[2::2], values[3::2], strict=True)
        )
        return self


HALF_LIFE_S = 604_800.0
"""The default of `half_life_s`: use that is a week old counts half."""


@dataclass(frozen=True, slots=True)
class FairshareConfig:
    """The table [fair_share] of scheduler.toml: how use is counted, and the weights and limits of tenants."""

    half_life_s: float = HALF_LIFE_S
    window_s: float | None = None
    """The length of a time window in seconds, used instead of the half-life. Use within the window counts
    fully, older use does not count. None: the half-life applies.
    """
    billing: Mapping[str, float] = field(default_factory=lambda: {"gpu": 1.0})
    """Billing units per hour for a CPU (`cpu`), a GiB of memory (`memory`), a GPU (`gpu`), or a GPU of one
    model (`gpu.H100`).

    The model name must match whole words, as with --gpu-model.
    """
    dominant: bool = False
    """True: a job is charged only for its most expensive resource. False: a job is charged for the sum of its
    resources.
    """
    held_hours: float = 1.0
    """Running jobs are charged in advance for the use of this many further hours."""
    organisations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the projects in each organisation."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights by organisation, project, or `project/user`; the default is 1."""
    soft: Mapping[str, float] = field(default_factory=dict)
    """Soft limits in billing units. Jobs of a tenant that has used more come after all others in the
    queue.
    """
    hard: Mapping[str, float] = field(default_factory=dict)
    """Hard limits in billing units. When a tenant has used this much, none of its jobs starts."""
    off_queue: str = ""
    """The project whose users are charged when they use GPUs outside of jobs. Empty: no charge."""

    by_model: bool = field(init=False)
    """True if the charge depends on the GPU model."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_model", any(name.startswith("gpu.") for name in self.billing))

    def usage(self) -> DecayedUsage | WindowedUsage:
        return DecayedUsage(self.half_life_s) if self.window_s is None else WindowedUsage(self.window_s)

    def charge_whole(self, facts: NodeFacts) -> float:
        """Return the charge for a whole node with this hardware, in billing units per hour."""
        held = tuple(GpuHold(gpu.uuid, WHOLE_GPU) for gpu in facts.gpus)
        models = {gpu.uuid: gpu.model for gpu in facts.gpus}
        return self.charge(Allocation("", facts.cpu_milli, facts.memory_mib, held), models)

    def charges(
        self, allocations: Iterable[Allocation], models: Callable[[str], Mapping[str, str]]
    ) -> Iterator[float]:
        """Yield the charge for each allocation, in billing units per hour. `models` returns the GPU models of
        a node by UUID.

        A gang may have hundreds of equal allocations in a row. For equal allocations without GPUs, the charge
        is computed only once.
        """
        last, charge = NO_ALLOCATION, 0.0
        for allocation in allocations:
            alike = (allocation.cpu_milli, allocation.memory_mib) == (last.cpu_milli, last.memory_mib)
            if not alike or allocation.gpus or last.gpus:
                charge = self.charge(allocation, models(allocation.node) if self.by_model else {})
            last = allocation
            yield charge

    def charge(self, allocation: Allocation, models: Mapping[str, str]) -> float:
        """Return the charge for one allocation, in billing units per hour. `models` contains the GPU models
        of its node by UUID.
        """
        billing, gpu = self.billing, 0.0
        price = billing.get("gpu", 0.0)
        for hold in allocation.gpus:
            if self.by_model:
                price = self.gpu_price(models.get(hold.uuid, ""))
            gpu += price * hold.milli / WHOLE_GPU
        parts = (
            billing.get("cpu", 0.0) * allocation.cpu_milli / 1000,
            billing.get("memory", 0.0) * allocation.memory_mib / 1024,
            gpu,
        )
        return max(parts) if self.dominant else sum(parts)

    def dearest(self, cpu_milli: int, memory_mib: int, gpu_milli: int, models: Iterable[str]) -> float:
        """Return the highest charge for these resources, in billing units per hour. The GPUs are assumed to
        be of the most expensive model in `models`.
        """
        dearest = max(models, key=self.gpu_price, default="") if self.by_model else ""
        hold = GpuHold("", gpu_milli)
        return self.charge(Allocation("", cpu_milli, memory_mib, (hold,)), {"": dearest})

    def gpu_price(self, model: str) -> float:
        """Return the charge for a GPU of this model, in billing units per hour. The most specific key
        `gpu.MODEL` in `billing` that matches the model decides. If no key matches, the key `gpu` decides;
        without a key `gpu`, the charge is 0.
        """
        key = most_specific((name[4:] for name in self.billing if name.startswith("gpu.")), model)
        return self.billing["gpu" if key is None else f"gpu.{key}"] if key or "gpu" in self.billing else 0.0


def share_problem(
    name: str, weight: float | None, soft: float | None, hard: float | None
) -> tuple[str, str] | None:
    """Return the first invalid field of a change to a tenant, with an error message; None if the change is
    valid.
    """
    if weight is not None and not 0 < weight <= MAX_WEIGHT:
        return "weight", f"must be above 0 and at most {MAX_WEIGHT:,.0f}"
    for where, limit in (("soft", soft), ("hard", hard)):
        if limit is not None and limit != UNLIMITED and not 0 <= limit <= MAX_UNITS:
            return where, f"must be units between 0 and {MAX_UNITS:,.0f}"
    if weight is None and soft is None and hard is None:
        return "weight", "is missing, and so are a soft and a hard limit: nothing would change"
    parts = name.split("/")
    if not is_storable(name) or len(name) > 400 or len(parts) > 2 or not all(parts):
        return "share", "must be an organisation, a project, or a project/user"
    return None
