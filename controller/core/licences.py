"""Licences: who holds how many of what the whole cluster has only so many of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.core.inputs import Refusal
from controller.core.jobs import Job
from controller.core.requests import Wanted
from wire.text import plain


@dataclass(frozen=True, slots=True)
class Lack:
    """A licence of which fewer are free than wanted."""

    name: str
    wanted: int
    used: int
    total: int


class Licences:
    """Counted in apply: an attempt holds its own until all of it is over, and so does who has room kept."""

    def __init__(self) -> None:
        self.total: Mapping[str, int] = {}
        self.used: dict[str, int] = {}

    def copied(self) -> Licences:
        """The same counts, to go on counting by oneself."""
        other = Licences()
        other.total, other.used = self.total, dict(self.used)
        return other

    def take(self, wanted: Wanted) -> None:
        """Somebody holds these now."""
        for name, count in wanted:
            self.used[name] = self.used.get(name, 0) + count

    def give(self, wanted: Wanted) -> None:
        """They are free again."""
        for name, count in wanted:
            self.used[name] -= count
            if not self.used[name]:
                del self.used[name]

    def free(self, name: str) -> int:
        """How many more could be taken now; fewer than none if there are fewer than were given out."""
        return self.total.get(name, 0) - self.used.get(name, 0)

    def short(self, wanted: Wanted) -> bool:
        """Are fewer of any of these free?"""
        return any(count > self.free(name) for name, count in wanted)

    def lacks(self, wanted: Wanted) -> Iterator[Lack]:
        """All of which fewer are free."""
        for name, count in wanted:
            if count > self.free(name):
                yield Lack(name, count, self.used.get(name, 0), self.total.get(name, 0))


def holds(job: Job) -> bool:
    """Does the job hold its licences now?"""
    return bool(job.unended or job.claim)


def counted(jobs: Iterable[Job]) -> dict[str, int]:
    """What all of these hold, counted from nothing."""
    fresh = Licences()
    for job in jobs:
        if holds(job):
            fresh.take(job.ask.licences)
    return fresh.used


def unobtainable(total: Mapping[str, int], wanted: Wanted) -> Refusal | None:
    """Why no job can ever have these."""
    for name, count in wanted:
        where = f"licences.{name}"
        if name not in total:
            return Refusal("invalid", f"there is no licence {plain(name)!r}", where, _nearest(total, name))
        if count > total[name]:
            message = f"asks for {count} of licence {name}, and there are {total[name]}"
            return Refusal("never_fits", message, where, "'corral licences' shows what there is.")
    return None


def _nearest(total: Mapping[str, int], name: str) -> str:
    if not total:
        return "This cluster has none: they stand in [licences] of scheduler.toml."
    folded = {known.casefold(): known for known in total}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f"Did you mean {folded[close[0]]!r}?" if close else f"There are: {', '.join(sorted(total)[:20])}."
