"""The smallest change to a waiting job with which it starts now: each that is told has been tried on a copy.

A concession is looked at twice. Whether it finds a place and breaks no quota is cheap to ask, and throws out
most. Whether it also gets its turn is asked of a copy of everything: there the job is changed as
`corral job set` would change it, one cycle is run, and the job has started or it has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from controller.core.concessions import Concession, Scale, concessions, undemanding
from controller.core.edits import changed
from controller.core.engine import Engine
from controller.core.forecast import fork
from controller.core.inputs import Edit, Refusal, Tick
from controller.core.requests import relaxed
from wire.codec import encode
from wire.spec import JobSpec, problems
from wire.words import JobState

MOST_TOLD = 3
MOST_TRIED = 16
"""Copies made for one job."""
MOST_COPIED = 50_000
"""Jobs copied for one job, over all copies: the larger the queue, the fewer are made."""


@dataclass(frozen=True, slots=True)
class Eased:
    """What would start the job in the next cycle, in words, and as the fields of its spec to change."""

    sentence: str
    changes: dict[str, Any]


def easings(ahead: Engine, job: int, now: float) -> tuple[Eased, ...]:
    """The smallest changes that start the job now, one of a kind; nothing if it starts without, or cannot.

    `ahead` is a copy that nothing was done to, and nothing is.
    """
    trial = Trial(ahead, job, now)
    asked = ahead.state.jobs[job]
    if not asked.ready or trial.starts(asked.spec):
        return ()
    found: list[Eased] = []
    for scale in concessions(asked.spec, ahead.placer):
        least = trial.least(scale)
        if least is not None:
            found.append(Eased(least.sentence, trial.changes(least.spec)))
        if len(found) == MOST_TOLD or not trial.left:
            break
    if not found:
        found += _both(trial, asked.spec)
    return tuple(found)


def _both(trial: Trial, spec: JobSpec) -> Iterator[Eased]:
    """No single change is enough: then without all demands, and if need be with less of something as well."""
    bare = undemanding(spec)
    if bare is None:
        return
    for scale in ((bare,), *concessions(bare.spec, trial.ahead.placer)):
        least = trial.least(scale)
        if least is not None:
            both = bare.sentence + (f", and {least.sentence}" if least is not bare else "")
            yield Eased(both, trial.changes(least.spec))
            return


class Trial:
    """Tries changes to one job, as many as there are copies to spare."""

    def __init__(self, ahead: Engine, job: int, now: float) -> None:
        self.ahead = ahead
        self._job = ahead.state.jobs[job]
        self._now = now
        self.left = max(1, min(MOST_TRIED, MOST_COPIED // max(1, len(ahead.state.jobs))))

    def least(self, scale: Scale) -> Concession | None:
        """The smallest that starts the job: the first, or found by halving, as more is of more help."""
        fitting = [each for each in scale if self._finds_a_place(each.spec)]
        low, high = 0, len(fitting) - 1
        if not fitting or self.starts(fitting[low].spec):
            return fitting[low] if fitting else None
        if high == low or not self.starts(fitting[high].spec):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self.starts(fitting[middle].spec):
                high = middle
            else:
                low = middle
        return fitting[high]

    def changes(self, spec: JobSpec) -> dict[str, Any]:
        """The fields in which a spec differs from what the job asks for, as JSON has them."""
        told = encode(spec)
        return {name: told[name] for name in changed(self._job.spec, spec)}

    def _finds_a_place(self, spec: JobSpec) -> bool:
        """Would it fit, and break no quota? Without that, nobody need try whether it gets its turn."""
        if problems(spec):
            return False
        state, cycle = self.ahead.state, self.ahead.schedulers.of(self._job)
        ask = state.ask(relaxed(spec, self._job.from_queue) if self._job.wait.relaxed else spec)
        changed_job = replace(self._job, spec=spec, ask=ask)
        if cycle.allowance.over(changed_job, self._now) is not None or state.licences.short(ask.licences):
            return False
        barred = state.barred(changed_job, self._now)
        placer = cycle.placer
        return placer.find(ask, barred) is not None or placer.find_fewer(ask, barred) is not None

    def starts(self, spec: JobSpec) -> bool:
        """Does it start in the next cycle if it asks for this? A copy tells; no, once there is none left."""
        if not self.left:
            return False
        self.left -= 1
        copy, job, now = fork(self.ahead), self._job.id, self._now
        changes = self.changes(spec)
        if changes and isinstance(copy.handle(Edit(job, "", changes), now).reply, Refusal):
            return False
        copy.handle(Tick(), now)
        return copy.state.jobs[job].state is not JobState.QUEUED
