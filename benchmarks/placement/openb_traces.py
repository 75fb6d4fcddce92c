"""Reads nodes and pods of openb traces, which are CSV files with a heading line, plain or gzipped.

Columns may have any order; unknown columns are ignored. Columns of a node: `sn` (its name), `cpu_milli`,
`memory_mib`, `gpu` (number of GPUs) and `model`. Columns of a pod: `name`, `cpu_milli`, `memory_mib`,
`num_gpu`, `gpu_milli` (thousandths of each GPU) and `gpu_spec` (`A|B` allows only these two models).

A pod that requests parts of several GPUs gets whole GPUs, but counts with the thousandths that it requests. A
pod without CPU or memory gets the minimum: a thousandth of a CPU, one MiB.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from controller.sim.cluster import Cluster
from controller.sim.logs.log_file import LogFile, LogRefused
from wire.agent.reports import GpuFacts, NodeFacts
from wire.job.spec import JobSpec, spec_problems
from wire.names import WHOLE_GPU

_WHOLE = re.compile(r"(\d{1,15})(\.0*)?", re.ASCII)
_ANY = str(1 << 30)
_MOST_GPUS = 1_024

Columns = Mapping[str, str | None]
"""For each column, the value of an empty cell or a missing column. None means that the column is required."""
NODE: Columns = {"sn": None, "cpu_milli": None, "memory_mib": _ANY, "gpu": "0", "model": ""}
POD: Columns = {
    "name": "",
    "cpu_milli": None,
    "memory_mib": "0",
    "num_gpu": None,
    "gpu_milli": str(WHOLE_GPU),
    "gpu_spec": "",
}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, with the JobSpec that it is submitted as. `milli` is the pod's request on all its GPUs together,
    in thousandths of a GPU.
    """

    name: str
    spec: JobSpec
    milli: int

    @property
    def splits(self) -> bool:
        """Return whether the pod requests parts of several GPUs."""
        return self.spec.gpus > 1 and self.milli < self.spec.gpus * WHOLE_GPU


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a CSV file: its cells by column, and the file and line number for error messages."""

    file: str
    line: int
    cells: Mapping[str, str]

    def whole(self, column: str) -> int:
        """Return the integer in the cell of this column. The text 12000.0 is accepted, because some tools
        write integers with a decimal point.
        """
        match = _WHOLE.fullmatch(self.cells[column])
        if match is None:
            raise self.wrong(column, f"{self.cells[column]!r} is not a whole number that is zero or more")
        return int(match[1])

    def wrong(self, column: str, why: str) -> LogRefused:
        return LogRefused(self.file, f"{column}: {why}", "Correct it there.", self.line)


def read_nodes(path: Path) -> Cluster:
    """Return the cluster that a file with a list of nodes describes."""
    nodes: dict[str, NodeFacts] = {}
    for row in _rows(path, NODE):
        name, gpus = row.cells["sn"], row.whole("gpu")
        if name in nodes:
            raise row.wrong("sn", f"there is a node {name!r} already")
        if gpus > _MOST_GPUS:
            raise row.wrong("gpu", f"a node has {_MOST_GPUS:,} GPUs at most")
        model = _model(row.cells["model"])
        nodes[name] = NodeFacts(
            row.whole("cpu_milli"),
            row.whole("memory_mib"),
            tuple(GpuFacts(index, f"{name}-{index}", model, memory_mib=0) for index in range(gpus)),
        )
    if not any(facts.gpus for facts in nodes.values()):
        raise LogRefused(str(path), "there is no node with a GPU", "Is it the list of nodes?")
    return Cluster(nodes)


def read_pods(path: Path) -> list[Pod]:
    """Return the pods in a file with a list of pods, in the order of the file."""
    pods = [_pod(row) for row in _rows(path, POD)]
    if not any(pod.milli for pod in pods):
        raise LogRefused(str(path), "there is no pod that asks for a GPU", "Is it the list of pods?")
    return pods


def _pod(row: _Row) -> Pod:
    gpus, milli = row.whole("num_gpu"), row.whole("gpu_milli")
    if gpus and not 1 <= milli <= WHOLE_GPU:
        raise row.wrong("gpu_milli", f"{milli} of a GPU's {WHOLE_GPU:,} thousandths cannot be had")
    spec = _spec(
        row.whole("cpu_milli"),
        row.whole("memory_mib"),
        milli / WHOLE_GPU if gpus == 1 else gpus,
        tuple(sorted(_model(name) for name in row.cells["gpu_spec"].split("|") if name.strip())),
    )
    for field, why in spec_problems(spec):
        raise row.wrong({"gpus": "num_gpu", "gpu_models": "gpu_spec"}.get(field, field), why)
    return Pod(row.cells["name"], spec, gpus * milli)


@cache
def _spec(cpu_milli: int, memory_mib: int, gpus: float, models: tuple[str, ...]) -> JobSpec:
    return JobSpec(
        command=("true",),
        cpu_milli=max(1, cpu_milli),
        memory_mib=max(1, memory_mib),
        gpus=gpus,
        gpu_models=models if gpus else (),
        nodes=1,
    )


def _model(name: str) -> str:
    """Return the name of the GPU model as one word: A100_SXM for "A100 SXM". A trace means exactly this
    model, but the separate word A100 in a request would match all variants of A100.
    """
    return re.sub(r"\W", "_", name.strip())


def _rows(path: Path, columns: Columns) -> Iterator[_Row]:
    with LogFile(path) as file:
        heading: list[str] = []
        for number, text in file:
            if not text.strip():
                continue
            try:
                cells = [cell.strip() for cell in next(csv.reader([text], strict=True))]
            except csv.Error as error:
                raise LogRefused(file.name, f"is not CSV: {error}", "Correct it there.", number) from None
            if not heading:
                heading = _heading(file.name, number, cells, columns)
                continue
            if len(cells) != len(heading):
                message = f"has {len(cells)} columns, the heading has {len(heading)}"
                raise LogRefused(file.name, message, "Correct it there.", number)
            yield _row(_Row(file.name, number, dict(zip(heading, cells, strict=True))), columns)


def _heading(file: str, line: int, cells: list[str], columns: Columns) -> list[str]:
    heading = [cell.lower() for cell in cells]
    known = f"The first line names the columns; known are {', '.join(columns)}."
    for name, default in columns.items():
        if default is None and name not in heading:
            raise LogRefused(file, f"there is no column {name!r}", known, line)
        if heading.count(name) > 1:
            raise LogRefused(file, f"the column {name!r} occurs twice", known, line)
    return heading


def _row(row: _Row, columns: Columns) -> _Row:
    cells = {}
    for name, default in columns.items():
        cell = row.cells.get(name, "")
        if not cell or cell.lower() == "nan":
            if default is None:
                raise row.wrong(name, "is missing")
            cell = default
        cells[name] = cell
    return _Row(row.file, row.line, cells)
