"""The jobs of a busy cluster: small and large, good and bad, single, in gangs and in arrays."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.oracle.oracle import Oracle
from wire.job.spec import JobSpec

SIZES: tuple[dict[str, object], ...] = (
    {"gpus": 0},
    {"gpus": 0.5},
    {"gpus": 0.25},
    {"gpus": 1},
    {"gpus": 1},
    {"gpus": 2},
    {"gpus": 8, "cpu_milli": 8_000},
    {"gpus": 4, "nodes": 2},
    {"gpus": 1, "array": "0-3"},
)
OUTCOMES = (0, 0, 0, 0, 0, 1, 3, 255, -9, -11)


def mix(random: random.Random, oracle: Oracle) -> Iterator[JobSpec]:
    """Watched jobs without end."""
    while True:
        yield oracle.spec(
            random.choice((0, 1, 2, 4)),
            random.choice(OUTCOMES),
            priority=random.choice((0, 50, 50, 100)),
            **random.choice(SIZES),
        )
