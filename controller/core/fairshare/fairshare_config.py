"""The settings of fair share: weights, limits, the decay of usage and the charges for resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.core.cluster.node_table import most_specific
from controller.core.fairshare.decayed_usage import DecayedUsage, WindowedUsage
from controller.core.model.allocation import Allocation
from wire.agent.orders import GpuHold
from wire.agent.reports import NodeFacts
from wire.cluster.quota import UNLIMITED
from wire.job.spec import is_storable
from wire.names import WHOLE_GPU

NO_ALLOCATION = Allocation("", 0, 0)


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
    """Units per hour for a CPU (`cpu`), a GiB (`memory`), a GPU (`gpu`), or a GPU of one model (`gpu.H100`).

    The model name must match whole words, as with --gpu-model.
    """
    dominant: bool = False
    """True: a job is charged only for its most expensive resource. False: a job is charged for the sum of its
    resources.
    """
    held_hours: float = 1.0
    """The use of resources is counted in advance for this many hours."""
    organisations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the projects in each organisation."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights by organisation, project, or `project/user`; the default is 1."""
    soft: Mapping[str, float] = field(default_factory=dict)
    """Soft limits in units. When a tenant has used more, its jobs come after all others in the queue."""
    hard: Mapping[str, float] = field(default_factory=dict)
    """Hard limits in units. When a tenant has used this much, none of its jobs starts."""
    off_queue: str = ""
    """The project that is charged for GPU usage outside of jobs, through the tenants of its users. Empty: no
    charge.
    """

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
        """Return the charge for one allocation, in billing units per hour. `models` has the GPU models of its
        node by UUID.
        """
        billing, gpu = self.billing, 0.0
        price = billing.get("gpu", 0.0)
        for hold in allocation.gpus:
            if self.by_model:
                price = self._price(models.get(hold.uuid, ""))
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
        dearest = max(models, key=self._price, default="") if self.by_model else ""
        hold = GpuHold("", gpu_milli)
        return self.charge(Allocation("", cpu_milli, memory_mib, (hold,)), {"": dearest})

    def _price(self, model: str) -> float:
        """Return the charge for a GPU of this model, in billing units per hour. The most specific key
        `gpu.MODEL` in `billing` that matches the model decides. If no key matches, the key `gpu` decides;
        without a key `gpu`, the charge is 0.
        """
        key = most_specific((name[4:] for name in self.billing if name.startswith("gpu.")), model)
        return self.billing["gpu" if key is None else f"gpu.{key}"] if key or "gpu" in self.billing else 0.0


MAX_WEIGHT = 1_000_000.0


MAX_UNITS = 1e12


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
