"""Licences: counted resources of the whole cluster. Records how many of each licence are in use."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.core.model.decision.decision import Refusal
from controller.core.model.job import Job
from controller.core.model.request import LicenceCounts
from wire.text import printable


@dataclass(frozen=True, slots=True)
class LicenceShortage:
    """A licence that is short: fewer units of the licence are free than a job requests."""

    name: str
    wanted: int
    used: int
    total: int


class Licences:
    """The number of each licence that exists, and the number in use. A job uses its licences while the job
    runs or is nominated (resources are kept for the job).
    """

    def __init__(self) -> None:
        self.total: Mapping[str, int] = {}
        self.used: dict[str, int] = {}

    def copy(self) -> Licences:
        other = Licences()
        other.total, other.used = self.total, dict(self.used)
        return other

    def take(self, wanted: LicenceCounts) -> None:
        """Add the licences that a job requests to the used counts."""
        for name, count in wanted:
            self.used[name] = self.used.get(name, 0) + count

    def release(self, wanted: LicenceCounts) -> None:
        """Subtract the licences of a job from the used counts."""
        for name, count in wanted:
            self.used[name] -= count
            if not self.used[name]:
                del self.used[name]

    def free(self, name: str) -> int:
        """Return how many units of this licence are free; negative if the total in scheduler.toml was lowered
        below the number in use.
        """
        return self.total.get(name, 0) - self.used.get(name, 0)

    def insufficient(self, wanted: LicenceCounts) -> bool:
        """Return True if the job requests more of a licence than is free."""
        return any(count > self.free(name) for name, count in wanted)

    def shortages(self, wanted: LicenceCounts) -> Iterator[LicenceShortage]:
        """Yield a shortage for each licence of which the job requests more units than are free."""
        for name, count in wanted:
            if count > self.free(name):
                yield LicenceShortage(name, count, self.used.get(name, 0), self.total.get(name, 0))


def holds_licences(job: Job) -> bool:
    """Return whether the job holds its licences now: while it runs or is nominated (resources are kept for
    the job).
    """
    return bool(job.unended or job.claim)


def licences_in_use(jobs: Iterable[Job]) -> dict[str, int]:
    fresh = Licences()
    for job in jobs:
        if holds_licences(job):
            fresh.take(job.ask.licences)
    return fresh.used


def never_available(total: Mapping[str, int], wanted: LicenceCounts) -> Refusal | None:
    """Return the refusal for a job that requests an unknown licence or more than the cluster has in total;
    otherwise None.
    """
    for name, count in wanted:
        where = f"licences.{name}"
        if name not in total:
            return Refusal(
                "invalid", f"there is no licence {printable(name)!r}", where, _nearest(total, name)
            )
        if count > total[name]:
            message = f"asks for {count} of licence {name}, and there are {total[name]}"
            return Refusal("never_fits", message, where, "'corral licences' shows what there is.")
    return None


def _nearest(total: Mapping[str, int], name: str) -> str:
    if not total:
        return "This cluster has no licences: an operator lists them in [licences] of scheduler.toml."
    folded = {known.casefold(): known for known in total}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f"Did you mean {folded[close[0]]!r}?" if close else f"There are: {', '.join(sorted(total)[:20])}."
