"""Finds foreign jobs that bear a tag of this cluster although no attempt needs them."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.engines.contract import ForeignJob, ForeignState

LOOKS_BEFORE_END = 2
"""The number of looks that must show an orphan before it is ended."""


@dataclass(slots=True)
class OrphanSweep:
    """The orphans of one engine: foreign jobs with a tag of this cluster that no attempt needs.

    1. A foreign job in a look is an orphan if its attempt has ended. It is also an orphan if its tag has no
       record and the journal has no such attempt on a node of the engine.
    2. An orphan that is in two looks in a row is ended. The end is repeated in each look that still shows it.
    3. An orphan that has ended is forgotten at once, because nothing waits for its output.

    An orphan appears if a foreign job starts after Corral has given it up, such as a VM that boots late.
    """

    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of looks in a row that have shown an orphan, by tag and name of the foreign job."""
    ended: int = 0
    """How many orphans were ended since the controller's start."""

    def due(self, orphans: list[ForeignJob]) -> list[ForeignJob]:
        """Record the orphans of one look. Return those that must be ended or forgotten now."""
        self.seen = {(each.tag, each.ref): self.seen.get((each.tag, each.ref), 0) + 1 for each in orphans}
        return [
            each
            for each in orphans
            if each.state is ForeignState.ENDED or self.seen[each.tag, each.ref] >= LOOKS_BEFORE_END
        ]
