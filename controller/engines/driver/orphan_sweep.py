"""Ends foreign jobs that bear a tag of this cluster although no attempt needs them."""

from __future__ import annotations

import logging

from controller.engines.contract import ExecutionEngine, ForeignJob, ForeignState
from controller.engines.driver.foreign_attempts import ForeignAttempt
from controller.engines.driver.request_runner import RequestRunner

LOOKS_BEFORE_END = 2
"""The number of looks that must show an orphan before it is ended."""
GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL for an orphan."""

log = logging.getLogger("corral.engines")


class OrphanSweep:
    """The orphans of one engine: foreign jobs with a tag of this cluster that no attempt needs.

    1. A foreign job in a look is an orphan if its attempt has ended. It is also an orphan if its tag has no
       record and the journal has no such attempt on a node of the engine.
    2. An orphan that is in two looks in a row is ended. The end is repeated in each look that still shows it.
    3. An orphan that has ended is forgotten at once, because nothing waits for its output.
    4. A further foreign job with the tag of an attempt is ended at once.

    An orphan appears if a foreign job starts after its attempt was recorded as ended, such as a VM that boots
    late.

    Invariant: no foreign job without a tag of this cluster is ever changed.
    """

    def __init__(self, engine: ExecutionEngine, runner: RequestRunner) -> None:
        self.ended = 0
        """How many orphans were ended since the controller's start."""
        self._engine = engine
        self._runner = runner
        self._seen: dict[tuple[str, str], int] = {}
        """The number of looks in a row that have shown an orphan, by tag and name of the foreign job."""

    def sweep(self, orphans: list[ForeignJob]) -> None:
        """Record the orphans of one look, and do steps 2 and 3 for them."""
        self._seen = {(each.tag, each.ref): self._seen.get((each.tag, each.ref), 0) + 1 for each in orphans}
        for each in orphans:
            if each.state is ForeignState.ENDED or self._seen[each.tag, each.ref] >= LOOKS_BEFORE_END:
                self._runner.run(f"{each.tag} {each.ref}", self._end(each))

    def end_duplicates(self, attempt: ForeignAttempt) -> None:
        """End the further foreign jobs with the tag of an attempt."""
        record = attempt.record
        for ref in attempt.duplicates:
            log.warning(
                "engine %s: ending %s, because it has the same tag as %s", self._runner.name, ref, record.ref
            )
            ended = self._runner.answer(self._engine.end(ref, record.grace_s))
            self._runner.run(f"{record.tag} {ref}", ended)
        attempt.duplicates.clear()

    async def _end(self, orphan: ForeignJob) -> None:
        if orphan.state is ForeignState.ENDED:
            await self._runner.answer(self._engine.forget(orphan.ref, orphan.tag))
            return
        name, ref, tag = self._runner.name, orphan.ref, orphan.tag
        log.warning("engine %s: ending %s (%s), because no job wants it", name, ref, tag)
        await self._runner.answer(self._engine.end(ref, GRACE_S))
        self.ended += 1
