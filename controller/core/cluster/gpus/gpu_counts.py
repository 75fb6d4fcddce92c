"""Counts the GPUs of all known nodes by model, for quotas that are a percentage of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.core.cluster.node_table import names_model
from wire.agent.reports import GpuFacts


class GpuCounts:
    """The number of GPUs in the cluster, in total and by model.

    The GPUs of a node count from the first report of its agent until the node is removed. Drained, cordoned,
    faulty and disconnected GPUs count too, so that a quota does not shrink while a node is repaired. A MIG
    instance counts as one GPU, as in the usage of quotas.

    Cost: O(GPUs of the node) when a node is added, removed, or reports other hardware.
    """

    def __init__(self, by_model: Mapping[str, int] | None = None) -> None:
        self.by_model: dict[str, int] = dict(by_model or {})
        self.total = sum(self.by_model.values())
        self.version = 0
        """Increases with every change of a count."""

    def change(self, before: Sequence[GpuFacts], after: Sequence[GpuFacts]) -> None:
        """Replace the GPUs `before` of a node by the GPUs `after` in the counts."""
        if [gpu.model for gpu in before] == [gpu.model for gpu in after]:
            return
        for gpus, sign in ((before, -1), (after, 1)):
            for gpu in gpus:
                self.by_model[gpu.model] = self.by_model.get(gpu.model, 0) + sign
        self.total += len(after) - len(before)
        self.version += 1

    def of_model(self, name: str) -> int:
        """Return the number of GPUs whose model contains `name` as whole words. Example: `H100` matches
        `NVIDIA H100 PCIe`.
        """
        return sum(count for model, count in self.by_model.items() if count and names_model(name, model))
