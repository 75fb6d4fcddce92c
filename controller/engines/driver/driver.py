"""Runs the jobs of Corral on one execution engine: looks at the engine, compares the answer with the
attempts, and begins the requests that are due.
"""

from __future__ import annotations

import asyncio
import logging

from controller.engines.contract import ExecutionEngine, ForeignJob, ForeignState, Seen
from controller.engines.driver.attempt_requests import AttemptRequests
from controller.engines.driver.attempt_table import AttemptTable
from controller.engines.driver.driver_rules import DriverRules, Journal
from controller.engines.driver.engine_breaker import EngineBreaker
from controller.engines.driver.foreign_logs import ForeignLogs
from controller.engines.driver.foreign_nodes import ForeignNodes
from controller.engines.driver.node_frames import NodeChannels, NodeFrames
from controller.engines.driver.orphan_sweep import OrphanSweep
from controller.engines.driver.record_files import RecordFiles
from controller.engines.driver.request_runner import RequestRunner
from controller.engines.tags import parse_tag

log = logging.getLogger("corral.engines")


class EngineDriver:
    """Runs the attempts that Corral has placed on the nodes of one engine. Makes no request while another
    controller may lead, because this controller would take the foreign jobs of the other one for orphans.

    One round, every `interval_s` seconds. After each order, only step 5 is done.
    1. Look at the engine. A failure counts in the circuit breaker, and changes nothing else.
    2. Compare the answer with the attempts: see ForeignAttempt. If a foreign job has no record, and the
       journal has its attempt on a node of the engine, make a record for it. Report the attempts that have
       started.
    3. End the orphans, and further foreign jobs with the same tag: see OrphanSweep.
    4. Update the nodes: see ForeignNodes.
    5. Make the request that each attempt needs next: see AttemptRequests.

    Cost: one look per interval, whatever the number of jobs, and about four requests for each job.
    """

    def __init__(
        self,
        name: str,
        engine: ExecutionEngine,
        rules: DriverRules,
        files: RecordFiles,
        journal: Journal,
        nodes: ForeignNodes,
        tag_prefix: str,
        type_name: str = "",
    ) -> None:
        self.name = name
        self.type_name = type_name
        self.engine = engine
        self.rules = rules
        self.files = files
        self.nodes = nodes
        self.breaker = EngineBreaker(rules.breaker_failures)
        self.looked_at: float | None = None
        """When the last successful look began."""
        self.drained = files.drained
        self._journal = journal
        self._wake = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        logs = ForeignLogs(engine, files)
        self.attempts = AttemptTable(name, files, journal, tag_prefix)
        self.runner = RequestRunner(name, rules.timeout_s, journal.may_act, self._wake.set)
        self.sweep = OrphanSweep(engine, self.runner)
        self._channels = NodeChannels()
        self.requests = AttemptRequests(
            engine,
            rules,
            journal,
            self.attempts,
            logs,
            self.runner,
            nodes.foreign_name,
            self._channels.report,
        )
        self.frames = NodeFrames(
            name,
            engine.caps,
            journal.now,
            self.breaker,
            nodes,
            self.attempts,
            self.requests,
            logs,
            self._channels,
            self._wake.set,
        )

    def open(self) -> None:
        """Begin to look at the engine."""
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name=f"engine {self.name}")

    async def close(self) -> None:
        """Stop. Foreign jobs continue, and the next controller finds them again."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
        await self.runner.close()
        await self.frames.close()
        await self.engine.close()

    def drain(self, why: str) -> None:
        """Store the reason for which operators drain the engine; an empty reason ends the drain."""
        self.drained = why
        self.files.save_drain(why)
        self._wake.set()

    # --- the rounds ---

    async def _run(self) -> None:
        while True:
            try:
                if self.breaker.may_look(self._journal.now()):
                    await self.run_round()
                self.make_requests()
            except Exception:
                # Continue after an exception. For example, the controller refuses inputs while its store
                # cannot be written. The next round tries again.
                log.exception("engine %s: a round failed", self.name)
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), self.rules.interval_s)
            except TimeoutError:
                continue
            # An order, a drain or the end of a request has ended the wait. Make the requests that are due
            # now, and look only when the interval is over.
            due = (self.looked_at or 0.0) + self.rules.interval_s
            while self._journal.now() < due:
                self._wake.clear()
                self.make_requests()
                left = due - self._journal.now()
                try:
                    await asyncio.wait_for(self._wake.wait(), max(0.0, left))
                except TimeoutError:
                    break

    async def run_round(self) -> None:
        """Do steps 1 to 4 of a round: look at the engine, and compare the answer with the attempts and
        nodes.
        """
        if not self._journal.may_act():
            return
        began = self._journal.now()
        seen = await self._look()
        if seen is None or not self._journal.may_act():
            return
        self._compare(seen, began - seen.age_s)
        self.looked_at = began
        self.frames.complete = self.frames.complete or seen.complete
        await self.nodes.update(seen.nodes, self.drained, self.attempts.occupied_nodes())
        self._channels.cut_unusable(self.frames.problem)

    def make_requests(self) -> None:
        """Make the requests that are due (step 5)."""
        self.requests.make_due(breaker_open=self.breaker.is_open)

    async def _look(self) -> Seen | None:
        try:
            async with asyncio.timeout(self.rules.timeout_s):
                seen = await self.engine.look()
        except Exception as error:
            self._count_failure(self.runner.reason(error, "look"))
            return None
        # Count at most one failed ask() for each look, because one short failure of the engine can make many
        # of them fail.
        failed = self.requests.take_failed_ask()
        if failed:
            self._count_failure(failed)
        else:
            self.breaker.succeed()
        return seen

    def _count_failure(self, why: str) -> None:
        """Count a failure of the engine. If the breaker opens, disconnect the nodes of the engine."""
        was_open = self.breaker.is_open
        self.breaker.fail(why, self._journal.now())
        if self.breaker.is_open and not was_open:
            times = self.breaker.failures
            log.error("engine %s: %d failures in a row, no jobs start there: %s", self.name, times, why)
            self._channels.cut_unusable(self.frames.problem)

    def _compare(self, seen: Seen, began: float) -> None:
        """Compare a look that began at `began` with the attempts (steps 2 and 3)."""
        listed = {self.nodes.node_name(each.name) for each in seen.nodes}
        by_tag: dict[str, list[ForeignJob]] = {}
        for each in seen.jobs:
            if parse_tag(each.tag, self.attempts.prefix) is not None:
                by_tag.setdefault(each.tag, []).append(each)
        orphans: list[ForeignJob] = []
        for text, found in by_tag.items():
            attempt = self.attempts.get(text) or self.attempts.adopt(text, listed)
            if attempt is None:
                orphans += found
            elif attempt.record.ended_at is not None:
                # The foreign job still exists, although its attempt counts as lost or was stopped.
                orphans += [each for each in found if each.state is not ForeignState.ENDED]
            else:
                before = attempt.record
                if attempt.present(found, began):
                    self.attempts.save_soon(attempt)
                if before.started_at is None and attempt.record.started_at is not None:
                    self._channels.report(attempt)
        for attempt in self.attempts:
            if seen.complete and attempt.record.tag not in by_tag:
                attempt.absent(began)
            if attempt.stop_at_time_limit(self._journal.now()):
                self.attempts.save_soon(attempt)
        self.sweep.sweep(orphans)
        for attempt in self.attempts:
            self.sweep.end_duplicates(attempt)
