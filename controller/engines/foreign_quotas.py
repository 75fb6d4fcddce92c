"""Takes the quotas of projects from an execution engine, such as the resource quotas of Kubernetes or the
accounts of Slurm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from controller.core.model.decision.decision import Refusal, Reply
from controller.core.model.inputs import policy_inputs
from controller.core.model.inputs.input import Input
from controller.engines.contract import EngineUnavailable, ForeignQuota
from controller.plugins.quotas.from_engine import EngineQuotas
from wire.cluster.quota import AMOUNTS, Limits, Quota
from wire.text import duration, printable

TAKEN = ("cpu_milli", "memory_mib", "gpus", "running")
"""The limits that the engine sets. Operators set all others."""
log = logging.getLogger("corral.engines")


@dataclass(frozen=True, slots=True)
class Reading:
    """The quota that was last read for a project, and when. `problem` is why the latest try failed; empty if
    it did not fail.
    """

    found: ForeignQuota | None = None
    at: float = 0.0
    problem: str = ""


class ForeignQuotas:
    """The quotas of projects that come from an execution engine.

    1. Every `interval_s` seconds, and for each request of an operator, the quota of a project is read.
    2. If one of the limits TAKEN differs from the limit of Corral, Corral sets the limit, as an operator
       does with `corral quota set`. So the limits are in the journal, and apply after a restart too.
    3. A limit that is not set in the engine any more is removed in Corral.
    4. If the engine does not answer, the last known limits stay in force. `text` shows their age and the
       cause.

    Invariant: a failure changes no limit. Cost: one request for each project and interval.
    """

    def __init__(
        self,
        source: EngineQuotas,
        read: Callable[[str], Awaitable[ForeignQuota]],
        edits: Callable[[str], Quota],
        ask: Callable[[Input], Awaitable[Reply]],
        may_act: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        """`read` returns the quota with this name in the engine, and `edits` the limits of a project that
        operators or this object have set.
        """
        self.source = source
        self._read = read
        self._edits = edits
        self._ask = ask
        self._may_act = may_act
        self._now = now
        self._readings: dict[str, Reading] = {}
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to read the quotas every `interval_s` seconds."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="foreign quotas")

    async def close(self) -> None:
        """Stop reading. The limits stay in force."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def has(self, scope: str, name: str) -> bool:
        """Return whether the limits of the tenant `name` come from the engine."""
        return scope == "project" and name in self.source.foreign_names

    async def sync(self, project: str) -> str:
        """Read the quota of a project, and set its limits. Return why this failed; empty if it did not."""
        before = self._readings.get(project, Reading())
        try:
            found = await self._read(self.source.foreign_names[project])
            refused = await self._set(project, found.hard)
        except (EngineUnavailable, TimeoutError) as error:
            problem = str(error) or "no answer in time"
            if problem != before.problem:
                log.warning("the quota of project %s cannot be read: %s", project, problem)
            self._readings[project] = replace(before, problem=problem)
            return problem
        self._readings[project] = Reading(found, self._now(), refused)
        return refused

    def text(self, project: str, used: Limits) -> str:
        """Return a text for operators: where the limits of a project come from, how old they are, and where
        the amounts in use differ between the engine and Corral (`used`).
        """
        reading = self._readings.get(project, Reading())
        where = f"{self.source.engine}:{self.source.foreign_names[project]}"
        if reading.found is None:
            age = "not read since the start of the controller"
        else:
            age = f"read {duration(max(0.0, self._now() - reading.at))} ago"
            drift = [
                f"{each.word} {each.text(there)} there and {each.text(here)} here"
                for each in AMOUNTS
                if each.field in TAKEN
                and (there := getattr(reading.found.used, each.field)) is not None
                and there != (here := getattr(used, each.field) or 0)
            ]
            age += f"; used: {', '.join(drift)}" if drift else ""
        return f"{where}, {age}" + (f"; {printable(reading.problem, 300)}" if reading.problem else "")

    async def _run(self) -> None:
        while True:
            if self._may_act():
                for project in self.source.foreign_names:
                    try:
                        await self.sync(project)
                    except Exception:
                        # Continue after an exception. For example, the controller refuses inputs while its
                        # store cannot be written.
                        log.exception("the quota of project %s cannot be set", project)
            await asyncio.sleep(self.source.interval_s)

    async def _set(self, project: str, hard: Limits) -> str:
        """Set the limits of a project, if they differ (steps 2 and 3). Return why Corral refused this; empty
        if it did not.
        """
        edits, by = self._edits(project), f"quotas of {self.source.engine}"
        taken = {each: getattr(hard, each) for each in TAKEN}
        wanted = replace(edits, hard=replace(edits.hard, **taken, gpus_percent=None))
        if wanted == edits:
            return ""
        # A limit cannot be removed alone, so remove all and set the others again.
        if any(getattr(edits.hard, each) is not None and value is None for each, value in taken.items()):
            await self._ask(policy_inputs.UnsetQuota("project", project, by))
        reply: Reply | None = None
        if wanted != Quota():
            reply = await self._ask(policy_inputs.SetQuota("project", project, wanted, by))
        return reply.message if isinstance(reply, Refusal) else ""
