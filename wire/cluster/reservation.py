"""Reservations of nodes for users or projects, or for maintenance."""

from __future__ import annotations

from dataclasses import field
from typing import Mapping, Optional

from wire.dataclass import dataclass

MAX_NAME = 100
LONGEST_S = 10 * 365 * 86_400.0


@dataclass(frozen=True)
class ReservationSpec:
    """A reservation of the named `nodes`, of `count` nodes, or of whole nodes that together have `gpus` GPUs.

    The reservation begins at `starts_at`, lasts `duration_s` seconds, and repeats every `every_s`
    seconds. Only jobs of `users` and `projects` may run on the reserved nodes. If both are empty, the
    reservation is for maintenance, and no job may run there.
    """

    name: str
    starts_at: float
    duration_s: float
    nodes: tuple[str, ...] = ()
    count: Optional[int] = None
    gpus: Optional[int] = None
    selector: Mapping[str, str] = field(default_factory=dict)
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    every_s: Optional[float] = None
    why: str = ""

    @property
    def maintenance(self) -> bool:
        """Return whether the reservation is for maintenance: no user and no project may use its nodes."""
        return not self.users and not self.projects


def reservation_problems(spec: ReservationSpec) -> list[tuple[str, str]]:
    """Validate a reservation. Return each mistake as (field name, sentence for users)."""
    found: list[tuple[str, str]] = []

    def need(good: bool, where: str, sentence: str) -> None:
        if not good:
            found.append((where, sentence))

    named = bool(spec.name) and len(spec.name) <= MAX_NAME and spec.name.isprintable()
    need(
        named and "/" not in spec.name,
        "name",
        f"must be printable, without '/', at most {MAX_NAME} characters",
    )
    need(0 < spec.starts_at < 1e11, "starts_at", "must be a moment in seconds since 1970")
    need(0 < spec.duration_s <= LONGEST_S, "duration_s", "must be positive and at most ten years")
    need(
        spec.every_s is None or spec.duration_s < spec.every_s <= LONGEST_S,
        "every_s",
        "must be longer than the reservation itself, and at most ten years",
    )
    ways = bool(spec.nodes) + (spec.count is not None) + (spec.gpus is not None)
    need(ways == 1, "nodes", "name nodes, or give a number of nodes or of GPUs; set exactly one of these")
    need(not (spec.nodes and spec.selector), "selector", "cannot be combined with node names")
    need(spec.count is None or 1 <= spec.count <= 100_000, "count", "must be positive")
    need(spec.gpus is None or 1 <= spec.gpus <= 1_000_000, "gpus", "must be positive")
    need(len(spec.why) <= 500, "why", "must be at most 500 characters")
    for where, names in (("users", spec.users), ("projects", spec.projects)):
        good = all(name and len(name) <= 200 and name.isprintable() for name in names)
        need(good, where, "must be printable names of at most 200 characters")
    return found
