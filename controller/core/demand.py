"""What people ask for, as far as it has been seen: the ground on which GPU waste is judged."""

from __future__ import annotations

from controller.core.requests import Part

HALVE_AT = 20_000
"""Arrivals after which all counts are halved: what was asked long ago counts less and less."""
REVIEW_EVERY = 10_000
FORGET_BELOW = 0.5


class Demand:
    """Arrivals by part. `edition` grows when they have grown enough to look at the nodes anew."""

    def __init__(self) -> None:
        self.seen: dict[Part, float] = {}
        self.total = 0.0
        self.edition = 0
        self._due = 1.0

    def resume(self, other: Demand) -> None:
        """Go on from what another has counted."""
        self.seen, self.total = dict(other.seen), other.total
        self.edition, self._due = other.edition, other._due

    def arrive(self, part: Part) -> bool:
        """Count a job; True when a new edition is due: at every doubling, later at even steps."""
        self.seen[part] = self.seen.get(part, 0.0) + 1.0
        self.total += 1.0
        if self.total < self._due:
            return False
        if self.total >= HALVE_AT:
            self.seen = {part: count / 2 for part, count in self.seen.items() if count / 2 >= FORGET_BELOW}
            self.total = sum(self.seen.values())
        self._due = self.total + min(self.total, REVIEW_EVERY) + 1
        self.edition += 1
        return True
