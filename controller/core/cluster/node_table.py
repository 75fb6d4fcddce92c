"""The node table: numpy columns with one row for each node, sorted by node name. The module also has
functions for sets of rows. A set of rows is an integer with one bit for each row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wire.job.placement.affinity import Taint

if TYPE_CHECKING:
    from controller.core.cluster.dataset_reads import DatasetReads
    from controller.core.cluster.gpus.gpu_requirements import GpuNeeds, GpuType
    from controller.core.cluster.gpus.gpu_topology import GpuTopology
    from controller.core.cluster.gpus.gpu_value import GpuValue
    from controller.core.cluster.job_affinity import JobAffinityIndex
    from controller.core.model.request import PerNodeRequest

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp] | slice

ALL_ROWS: slice = slice(None)
ABSENT = -1
"""The value in `gpu_free` for an index without a GPU, or with a GPU on which no new job may start."""


@dataclass(slots=True)
class NodeTable:
    """The columns from which plugins (filters, scorers, pickers) read the state of nodes. Plugins must not
    change the columns.

    Every column has one entry for each row (node). CPU is in thousandths of a CPU. Memory and scratch are in
    MiB. GPUs are in thousandths of a GPU.
    """

    labels: list[dict[str, str]]
    models: list[str]
    open: Bools
    """True for each node on which new jobs may start: the node is up and not drained."""
    cpu_total: Ints
    cpu_free: Ints
    memory_total: Ints
    memory_free: Ints
    scratch_total: Ints
    scratch_free: Ints
    gpu_free: Ints
    """The free thousandths of each GPU, by row and GPU index. ABSENT if there is no GPU with this index, or
    if no new job may start on this GPU.
    """
    gpu_model: Ints
    """The type of each GPU, by row and GPU index, as an index into `gpu_types`. ABSENT if there is no GPU
    with this index.
    """
    gpu_count: Ints
    gpu_types: list[GpuType] = field(default_factory=list)
    """The different types of GPU; `models` has their model names in the same order."""
    last_placement: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """For each node, the number of its last placement. Placements are counted from the controller's start; 0
    means none.
    """
    dataset_reads: Callable[[], DatasetReads] | None = None
    """A function that returns the data sets that jobs have read on each node. The field is None in a table
    without jobs.
    """
    job_affinity: Callable[[], JobAffinityIndex] | None = None
    """A function that returns the index of the nodes on which labelled jobs run. The field is None in a table
    without jobs.
    """
    domain_cache: dict[str, Ints] = field(default_factory=dict)
    gpu_needs_cache: dict[PerNodeRequest, GpuNeeds] = field(default_factory=dict)
    """A cache of GPU needs by request; emptied when labels, taints or hardware of a node change."""
    gpu_topology: Callable[[], GpuTopology] | None = None
    """A function that returns the NUMA and NVLink groups of the GPUs. The field is None in a table without
    this data.
    """
    taints: list[tuple[Taint, ...]] = field(default_factory=list)
    runtimes: list[str] = field(default_factory=list)
    """The container runtime of each node; empty if the node has none."""
    image_gpus: list[str] = field(default_factory=list)
    """For each node, the reason why containers cannot use its GPUs; empty if containers can use the GPUs."""
    row_cache: dict[str, int] = field(default_factory=dict)
    gpu_value: Callable[[], GpuValue] | None = None
    """A function that returns the present value of the free GPUs. The field is None if no value is computed
    for this table.
    """

    @property
    def height(self) -> int:
        """The number of rows (nodes)."""
        return len(self.labels)

    @property
    def row_of(self) -> dict[str, int]:
        """The row number of each node, by node name."""
        if len(self.row_cache) != len(self.labels):
            self.row_cache.clear()
            self.row_cache.update((labels.get("node", ""), row) for row, labels in enumerate(self.labels))
        return self.row_cache

    def copy(self) -> NodeTable:
        """Return a copy with its own columns. The fields that are functions, such as `gpu_value`, are None in
        the copy, because `Nodes` sets them.
        """
        return replace(
            self,
            **{name: getattr(self, name).copy() for name in _COPIED},
            dataset_reads=None,
            job_affinity=None,
            gpu_topology=None,
            gpu_value=None,
        )

    def domain(self, label: str) -> Ints:
        """Return one number for each node. Nodes with the same value of the label have the same number. Nodes
        without the label have -1.
        """
        found = self.domain_cache.get(label)
        if found is None:
            values = [labels.get(label) for labels in self.labels]
            numbers = {value: number for number, value in enumerate(dict.fromkeys(filter(None, values)))}
            found = np.array([numbers.get(value or "", -1) for value in values], dtype=np.int64)
            self.domain_cache[label] = found
        return found

    def groups(self, numa: bool, linked: bool) -> Bools:
        """Return an array by node, group and GPU. It is True if the GPU is in the group. A group is the GPUs
        of one NUMA node (`numa`), GPUs that are all linked by NVLink (`linked`), or GPUs with both
        properties.
        """
        if self.gpu_topology is None:
            return np.zeros((self.height, 0, self.gpu_free.shape[1]), dtype=np.bool_)
        return self.gpu_topology().groups(numa, linked)

    def model_codes(self, names: tuple[str, ...]) -> list[int]:
        """Return the indices in `gpu_types` of the GPU types whose model contains one of these names as whole
        words.
        """
        return [
            code for code, model in enumerate(self.models) if any(names_model(name, model) for name in names)
        ]


_COPIED = tuple(
    each.name
    for each in fields(NodeTable)
    if each.name not in ("dataset_reads", "job_affinity", "gpu_topology", "gpu_value")
)
"""The fields that `NodeTable.copy` copies: the arrays, lists and dictionaries."""


def either_mask(one: Bools | None, other: Bools | None) -> Bools | None:
    """Return a mask (boolean array by node) that is True where at least one of two masks is True. None stands
    for a mask in which nothing is True.
    """
    if one is None or other is None:
        return other if one is None else one
    return one | other


def empty_table(height: int, width: int) -> NodeTable:
    """Return a table for `height` nodes with at most `width` GPUs each. All nodes have zero resources."""
    return NodeTable(
        labels=[{} for _ in range(height)],
        models=[],
        open=np.zeros(height, dtype=np.bool_),
        cpu_total=np.zeros(height, dtype=np.int64),
        cpu_free=np.zeros(height, dtype=np.int64),
        memory_total=np.zeros(height, dtype=np.int64),
        memory_free=np.zeros(height, dtype=np.int64),
        scratch_total=np.zeros(height, dtype=np.int64),
        scratch_free=np.zeros(height, dtype=np.int64),
        gpu_free=np.full((height, width), ABSENT, dtype=np.int64),
        gpu_model=np.full((height, width), ABSENT, dtype=np.int64),
        gpu_count=np.zeros(height, dtype=np.int64),
        taints=[()] * height,
        runtimes=[""] * height,
        image_gpus=[""] * height,
        last_placement=np.zeros(height, dtype=np.int64),
    )


_WORD = re.compile(r"\w+")


@lru_cache(maxsize=4_096)
def _words(name: str) -> str:
    """Return the words of a name in lower case, with a blank before and after each word. A search can then
    find whole words.
    """
    return f" {' '.join(_WORD.findall(name.casefold()))} "


def names_model(name: str, model: str) -> bool:
    """Return whether the GPU model contains the name as whole words.

    Example: `NVIDIA H100 PCIe` contains `H100`; `NVIDIA A100` does not contain `A10`.
    """
    return _words(name) in _words(model)


def most_specific(names: Iterable[str], model: str) -> str | None:
    """Return the most specific of the names that the GPU model contains. Return None if the model contains
    none of the names.

    The name with the most words is the most specific. Among names with equally many words, it is the longest.

    Example: for the model `NVIDIA H100 80GB HBM3`, `H100 80GB` is returned and not `H100`.
    """
    return max(
        (name for name in names if names_model(name, model)),
        key=lambda name: (_words(name).count(" "), len(name), name),
        default=None,
    )


RowSet = int
"""A set of rows as an integer. Row r is bit `1 << r`, so the union of two sets is a single operation."""
NO_ROWS: RowSet = 0


def row_set(rows: Iterable[int]) -> RowSet:
    """Return the set of these row numbers as an integer. Bit r of the integer stands for row r."""
    found = NO_ROWS
    for row in rows:
        found |= 1 << row
    return found


def rows_where(mask: Bools) -> RowSet:
    """Return the set of the row numbers for which the mask is true."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def rows_in(bits: RowSet) -> Iterator[int]:
    """Yield the row numbers of the set in ascending order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def first_rows(bits: RowSet, count: int) -> RowSet:
    """Return the `count` lowest row numbers of a set, as a set. If the set has fewer rows, return the whole
    set.
    """
    low, high = count, bits.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (bits & ((1 << middle) - 1)).bit_count() >= count:
            high = middle
        else:
            low = middle + 1
    return bits & ((1 << low) - 1)
