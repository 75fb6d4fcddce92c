"""The data sets that a job reads (--data NAME[:SIZE])."""

from __future__ import annotations

from typing import Iterator

from wire.cluster.hosts import checked_memory, memory_mib
from wire.job.placement.affinity import KEY

MOST = 64
"""The most data sets of one job."""


def parse_dataset(text: str) -> tuple[str, int]:
    """Return the name of a data set and its size in MiB (0 if the text has no size) from a text such as
    `imagenet` or `imagenet:150G`. Raise ValueError for any other text.
    """
    name, colon, size = text.partition(":")
    if not KEY.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of letters, digits, '.', '_', '/' and '-'")
    return name, memory_mib(checked_memory(size)) if colon else 0


def dataset_problems(datasets: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Validate the data sets of a job. Yield each mistake as (field name, sentence for users)."""
    if len(datasets) > MOST:
        yield "datasets", f"must be at most {MOST} data sets"
    names = set()
    for text in datasets[:MOST]:
        try:
            name, _ = parse_dataset(text)
        except ValueError as error:
            yield "datasets", str(error)
            continue
        if name in names:
            yield "datasets", f"names {name!r} twice"
        names.add(name)
