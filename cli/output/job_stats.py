"""The table of `corral job stats`: the resources that jobs requested and used."""

from __future__ import annotations

from cli.output.formats import Column, Table
from wire.api.service.job_stats import JobStats, ResourceStats
from wire.text import duration, memory

Row = tuple[JobStats, ResourceStats]
_TITLES = {"gpu_memory": "gpu memory"}


def stats_table(*, several: bool) -> Table[Row]:
    """Return the table of the resources that jobs requested and used. With `several`, the table has a column
    for the job.
    """
    job: list[Column[Row]] = [Column("JOB", lambda row: row[0].label, right=True)] if several else []
    return Table(
        [
            *job,
            Column("RESOURCE", lambda row: _TITLES.get(row[1].resource, row[1].resource)),
            Column("ASKED", lambda row: _amount(row[1], row[1].asked), right=True),
            Column("USED", lambda row: _amount(row[1], row[1].used), right=True),
            Column(
                "PART", lambda row: "-" if row[1].percent is None else f"{row[1].percent:.0f}%", right=True
            ),
            Column("ADVICE", lambda row: _advice(row[1]), rank=1, narrow=12),
        ],
        name=lambda row: f"{row[0].label}/{row[1].resource}",
    )


def _amount(each: ResourceStats, value: float | None) -> str:
    if value is None:
        return "-"
    if each.unit == "MiB":
        return memory(round(value))
    if each.unit == "s":
        return duration(value)
    return f"{value:.1f}Wh" if each.unit == "Wh" else f"{value:.4g}"


def _advice(each: ResourceStats) -> str:
    return f"{each.flags}: {each.advice}" if each.flags else each.advice
