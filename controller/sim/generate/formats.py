"""Writes a workload as lines of text: CSV, JSON lines, or the Standard Workload Format (SWF)."""

from __future__ import annotations

import csv
import enum
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict

from controller.sim.generate.jobs import GeneratedJob, Workload
from wire.job.spec import gpus_text


class Format(enum.StrEnum):
    """The file formats in which a workload can be written."""

    CSV = "csv"
    JSONL = "jsonl"
    SWF = "swf"


def lines(workload: Workload, form: Format) -> Iterator[str]:
    return {Format.CSV: _csv, Format.JSONL: _jsonl, Format.SWF: _swf}[form](workload)


def _csv(workload: Workload) -> Iterator[str]:
    line = io.StringIO()
    out = csv.writer(line, lineterminator="\n")
    for cells in (GeneratedJob.__slots__, *map(_cells, workload.rows)):
        out.writerow(cells)
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def _cells(row: GeneratedJob) -> list[object]:
    return [*(asdict(row) | {"gpus": gpus_text(row.gpus)}).values()]


def _jsonl(workload: Workload) -> Iterator[str]:
    for row in workload.rows:
        whole = row.gpus if row.gpus < 1 else int(row.gpus)
        yield json.dumps(asdict(row) | {"gpus": whole}, separators=(",", ":")) + "\n"


def _swf(workload: Workload) -> Iterator[str]:
    """Yield the lines of an SWF file in which each processor is a GPU. A part of a GPU counts as one
    processor.
    """
    users = {name: number for number, name in enumerate(dict.fromkeys(row.user for row in workload.rows), 1)}
    names = {name: number for number, name in enumerate(dict.fromkeys(row.name for row in workload.rows), 1)}
    cluster = workload.cluster
    yield "; Version: 2.2\n"
    yield "; Computer: synthetic\n"
    yield f"; MaxJobs: {len(workload.rows)}\n"
    yield f"; MaxRecords: {len(workload.rows)}\n"
    yield f"; MaxNodes: {len(cluster.nodes)}\n"
    yield f"; MaxProcs: {cluster.gpus}\n"
    yield "; Note: a processor is a GPU, and a share of one counts as one\n"
    for number, row in enumerate(workload.rows, 1):
        width = math.ceil(row.gpus)
        fields = [
            *(number, row.submit, -1, min(row.duration, row.estimate)),
            *(width, -1, -1, width, row.estimate, row.memory * 1024 * row.nodes // width),
            *(_status(row), users[row.user], -1, names[row.name], -1, -1, -1, -1),
        ]
        yield " ".join(map(str, fields)) + "\n"


def _status(row: GeneratedJob) -> int:
    """Return the status of a job in SWF: 1 for completed, 0 for failed, 5 for stopped at the time limit."""
    if row.duration > row.estimate:
        return 5
    return 0 if row.code else 1
