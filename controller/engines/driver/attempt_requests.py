"""Makes the request that each attempt needs next: ask, end, prove or forget. Stores the ends of attempts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from controller.engines.contract import AskRefused, EngineUnavailable, ExecutionEngine, Outcome, Task
from controller.engines.driver.attempt_table import AttemptTable
from controller.engines.driver.driver_rules import DriverRules, Journal
from controller.engines.driver.foreign_attempts import ForeignAttempt, NextStep, Presence
from controller.engines.driver.foreign_logs import ForeignLogs
from controller.engines.driver.request_runner import RequestRunner

COLLECT_S = 120.0
"""The most seconds for reading the logs of one ended attempt from the engine. After them, its logs are lost.
"""

_WRITE = "write records"
"""The key of the task that writes records. All other tasks have the tag of an attempt as key."""
log = logging.getLogger("corral.engines")


class AttemptRequests:
    """Makes the requests to one engine that are about single attempts.

    The record of an attempt is on disk before ask() is called. The logs and the end of an attempt are on disk
    before the end is reported. So a controller that is killed at any moment starts no job twice and loses no
    end.

    Invariant: after an ask() that may have had an effect, ask() is called only with `again`.
    """

    def __init__(
        self,
        engine: ExecutionEngine,
        rules: DriverRules,
        journal: Journal,
        attempts: AttemptTable,
        logs: ForeignLogs,
        runner: RequestRunner,
        foreign_name: Callable[[str], str | None],
        report: Callable[[ForeignAttempt], None],
    ) -> None:
        """`foreign_name` returns the engine's name of a node, and `report` reports an attempt to the
        controller.
        """
        self._engine = engine
        self._rules = rules
        self._journal = journal
        self._attempts = attempts
        self._logs = logs
        self._runner = runner
        self._foreign_name = foreign_name
        self._report = report
        self._first_refusal: dict[str, float] = {}
        self._failed_ask = ""

    def make_due(self, *, breaker_open: bool) -> None:
        """Make the request that each attempt needs next, and write records that have changed. While the
        circuit breaker is open, make no request and end no attempt: the engine cannot give the logs of an
        attempt, its nodes are disconnected, and it may later prove how the attempt has ended.
        """
        if not self._journal.may_act():
            return
        now, losses = self._journal.now(), self._rules.losses
        for attempt in self._attempts if not breaker_open else ():
            if self._runner.is_busy(attempt.record.tag):
                continue
            verdict = attempt.verdict(None, losses, now)
            step = attempt.next_step(losses, now)
            if verdict is not None and step is None:
                self._run(attempt, self._finish(attempt, verdict))
            elif step is NextStep.ASK:
                self._run(attempt, self._ask(attempt))
            elif step is NextStep.END:
                self._run(attempt, self._end(attempt))
            elif step is NextStep.PROVE:
                self._run(attempt, self._prove(attempt))
            elif step is NextStep.FORGET:
                self._run(attempt, self._forget(attempt))
        if self._attempts.has_unsaved:
            self._runner.run(_WRITE, self._attempts.write_unsaved(self._runner.is_busy))

    def refuse(self, attempt: ForeignAttempt, why: str) -> None:
        """Record the end of an attempt for which ask() was not called. `why` is the reason."""
        self._run(attempt, self._finish(attempt, Outcome(why=why)))

    def take_failed_ask(self) -> str:
        """Return why an ask() failed since the last call; empty if none failed, or if a later ask()
        succeeded.
        """
        failed, self._failed_ask = self._failed_ask, ""
        return failed

    def _run(self, attempt: ForeignAttempt, work: Coroutine[Any, Any, None]) -> None:
        def failed(why: str) -> None:
            if attempt.presence is Presence.WANTED:
                self._failed_ask = why
                attempt.delayed(why, self._journal.now())
            else:
                attempt.retry_at = self._journal.now() + self._rules.interval_s

        self._runner.run(attempt.record.tag, work, failed)

    async def _ask(self, attempt: ForeignAttempt) -> None:
        record, order = attempt.record, attempt.record.order
        foreign = self._foreign_name(record.node)
        if order is None or foreign is None:
            return
        if self._journal.node_of(record.job, record.attempt, order.rank) != record.node:
            # In the journal, this attempt has ended. The record does not show this if another controller led
            # when it ended.
            why = "refused: the job does not want this attempt any more"
            await self._finish(attempt, Outcome(why=why))
            return
        again = record.tried
        if not again:
            attempt.record = record = replace(record, tried=True)
            await self._attempts.save(attempt)
        now = self._journal.now()
        try:
            ref = await self._runner.answer(self._engine.ask(Task(foreign, order), record.tag, again=again))
        except AskRefused as refused:
            first = self._first_refusal.setdefault(record.tag, now)
            if refused.lasting:
                await self._finish(attempt, Outcome(why=f"launch_failed: {refused.why}"))
            elif now - first >= self._rules.ask_patience_s:
                await self._finish(attempt, Outcome(why=f"node_unfit: {refused.why}"))
            else:
                attempt.delayed(refused.why, self._journal.now())
            return
        self._first_refusal.pop(record.tag, None)
        self._failed_ask = ""
        attempt.accepted(ref, self._journal.now())
        await self._attempts.save(attempt)

    async def _end(self, attempt: ForeignAttempt) -> None:
        # Call end() again after the grace time, because an engine may accept the request and not end the job.
        now, record = self._journal.now(), attempt.record
        left = record.grace_s if record.kill_at is None else max(0.0, record.kill_at - now)
        attempt.end_at = now + max(left, self._rules.interval_s)
        await self._runner.answer(self._engine.end(record.ref, left))

    async def _prove(self, attempt: ForeignAttempt) -> None:
        outcome = await self._runner.answer(self._engine.proof(attempt.record.ref, attempt.record.tag))
        verdict = attempt.verdict(outcome, self._rules.losses, self._journal.now())
        if verdict is not None:
            await self._finish(attempt, verdict)

    async def _finish(self, attempt: ForeignAttempt, outcome: Outcome) -> None:
        """Store the logs and the end of an attempt, then report the end."""
        try:
            async with asyncio.timeout(COLLECT_S):
                await self._logs.collect(attempt)
        except (EngineUnavailable, TimeoutError) as error:
            tag = attempt.record.tag
            log.warning("engine %s: the output of %s is lost: %s", self._runner.name, tag, error)
        attempt.finish(outcome, self._journal.now())
        await self._attempts.save(attempt)
        self._report(attempt)

    async def _forget(self, attempt: ForeignAttempt) -> None:
        if attempt.record.ref:
            await self._runner.answer(self._engine.forget(attempt.record.ref, attempt.record.tag))
        await self._attempts.forget(attempt)
