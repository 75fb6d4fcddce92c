"""Changes a configuration to a different number of nodes, with limits in proportion."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import cycle, islice
from math import ceil
from typing import Any

import tomli_w

from controller.config import Config
from controller.config.load import load_text, render

_COUNTS = ("gpus", "running", "queued")
"""The keys of a quota whose values are numbers of GPUs or of jobs."""
_QUEUE_COUNTS = ("keep_free_gpus", "max_gpus_per_user")


def with_nodes(config: Config, count: int, name: str) -> Config:
    """Return the configuration with `count` nodes. `name` is the name of the file in messages.

    1. Repeat the nodes of the configuration in their order. The second copy of gpu01 is gpu01-2. If `count`
       is smaller than the number of nodes, keep the first nodes.
    2. Multiply the numbers of GPUs and jobs of all quotas, and the GPUs that queues keep free or allow each
       user, by the same ratio, and round up. The benchmark has the same users for every number of nodes, so
       each user submits more jobs on a larger cluster.

    Example: 12 instead of 6 nodes. Each node occurs twice, and a quota of 24 GPUs becomes 48 GPUs.
    """
    data = tomllib.loads(render(config))
    nodes, ratio = data["nodes"], count / len(data["nodes"])
    data["nodes"] = dict(islice(_copies(nodes), count))
    for kind in ("users", "projects", "queues"):
        for quota in data["quota"].get(kind, {}).values():
            _multiply(quota, _COUNTS, ratio)
    for queue in data["queues"].values():
        _multiply(queue, _QUEUE_COUNTS, ratio)
    return load_text(tomli_w.dumps(data), name)


def _copies(nodes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and table of each node, then of the second copy of each node, and so on without end."""
    for number, (name, table) in enumerate(cycle(nodes.items())):
        copy = number // len(nodes) + 1
        yield name if copy == 1 else f"{name}-{copy}", table


def _multiply(table: dict[str, Any], keys: tuple[str, ...], ratio: float) -> None:
    for key in keys:
        if isinstance(table.get(key), int | float):  # Leave out a quota in percent, which is a text.
            table[key] = ceil(table[key] * ratio)
