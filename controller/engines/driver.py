"""Runs the jobs of Corral on one execution engine: looks at the engine, starts foreign jobs, and reports
their states.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from controller.engines.contract import (
    AskRefused,
    EngineUnavailable,
    ExecutionEngine,
    ForeignJob,
    ForeignNode,
    ForeignState,
    Outcome,
    Seen,
    Task,
)
from controller.engines.engine_breaker import EngineBreaker
from controller.engines.engine_links import DelegateChannel
from controller.engines.foreign_attempts import AttemptRecord, ForeignAttempt, LossRules, NextStep, Presence
from controller.engines.foreign_logs import ForeignLogs
from controller.engines.foreign_nodes import ForeignNodes
from controller.engines.orphan_sweep import OrphanSweep
from controller.engines.record_files import MOST_SETTLED, RecordFiles
from controller.engines.tags import Tag, parse_tag
from controller.engines.unsupported_requests import unsupported_requests
from wire import VERSION
from wire.agent.frames import ControllerFrame
from wire.agent.orders import (
    CheckGpu,
    Go,
    OpenShell,
    Ping,
    ReadLog,
    ResetGpu,
    SearchLog,
    Settle,
    Start,
    Stop,
    StopReading,
    TimeLimit,
)
from wire.agent.reports import AttemptStatus, GpuChecked, GpuReset, Hello, Pong, Report, ShellEnded

MOST_REQUESTS = 8
"""The most requests about single foreign jobs that run at the same time."""
COLLECT_S = 120.0
"""Seconds in which the logs of one ended attempt must be read from the engine."""

_WRITE = "write records"
"""The key under which records are written. It is no tag."""
T = TypeVar("T")
log = logging.getLogger("corral.engines")


@dataclass(frozen=True, slots=True)
class DriverRules:
    """The settings of [engines.NAME] that hold for all engines."""

    interval_s: float = 10.0
    timeout_s: float = 30.0
    lost_after_s: float = 300.0
    breaker_failures: int = 3
    ask_patience_s: float = 600.0
    """Seconds for which the driver repeats a refused ask(). After them the job goes to another node."""

    @property
    def losses(self) -> LossRules:
        return LossRules(self.interval_s, self.lost_after_s)


@dataclass(frozen=True, slots=True)
class Journal:
    """The functions with which the driver reads the state of the controller."""

    now: Callable[[], float]
    """Seconds since 1970; never goes back."""
    node_of: Callable[[int, int, int], str | None]
    """Return the node of (job, attempt, rank) if this attempt has not ended there; otherwise None."""
    may_act: Callable[[], bool] = lambda: True
    """Return whether this controller may send orders. False if another controller may lead."""


class EngineDriver:
    """Runs the attempts that Corral has placed on the nodes of one engine. Makes no request while another
    controller may lead, because the jobs of that controller would be orphans here.

    One round (`run_round`), every `interval_s` seconds and after each order
    1. Look at the engine. A failure counts in the circuit breaker, and changes nothing else.
    2. Compare the answer with the attempts: see ForeignAttempt. If the journal wants a foreign job that has
       no record, make a record for it. Report what has changed.
    3. Update the nodes: see ForeignNodes.
    4. End the orphans: see OrphanSweep. End foreign jobs that bear the tag of another one.
    5. Make the request that each attempt needs next: ask, end, prove or forget. At most MOST_REQUESTS run at
       the same time, and at most one for each attempt.

    The record of an attempt is on disk before ask() is called. The logs and the end of an attempt are on disk
    before the end is reported. So a controller that is killed at any moment starts no job twice and loses no
    end.

    Invariant: after an ask() that may have had an effect, ask() is called only with `again`. No foreign job
    without a tag of this cluster is ever changed.

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
        self.sweep = OrphanSweep()
        self.attempts: dict[str, ForeignAttempt] = {}
        """The attempts by tag. Settled attempts are kept for their logs."""
        self.looked_at: float | None = None
        """When the last successful look began."""
        self.complete = False
        """True after the first complete look. Before it, no node says hello, because an attempt that a hello
        does not name counts as lost.
        """
        self.drained = files.drained
        self._prefix = tag_prefix
        self._journal = journal
        self._logs = ForeignLogs(engine, files)
        self._channels: dict[str, DelegateChannel] = {}
        self._listed: set[str] = set()
        """Corral's names of the nodes in the last look."""
        self._unsaved: set[str] = set()
        """The tags of records that have changed in memory only."""
        self._busy: set[str] = set()
        """The tags of the attempts for which a request is under way."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._readings: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._requests = asyncio.Semaphore(MOST_REQUESTS)
        self._wake = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._first_refusal: dict[str, float] = {}
        self._failed_ask = ""
        """Why an ask() failed since the last look; empty if none failed, or if a later ask() succeeded."""
        now = journal.now()
        for record in files.load():
            self.attempts[record.tag] = ForeignAttempt.of(record, now)

    # --- start and stop ---

    def open(self) -> None:
        """Begin to look at the engine."""
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name=f"engine {self.name}")

    async def close(self) -> None:
        """Stop. Foreign jobs continue, and the next controller finds them again."""
        tasks = [*self._tasks, *self._readings.values(), *([self._loop_task] if self._loop_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.engine.close()

    async def _run(self) -> None:
        while True:
            try:
                if self.breaker.may_look(self._journal.now()):
                    await self.run_round()
                self.request_all()
            except Exception:
                # The controller refuses inputs while its store cannot be written. The next round tries again.
                log.exception("engine %s: a round failed", self.name)
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), self.rules.interval_s)
            except TimeoutError:
                continue
            # An order has arrived: make its request at once, and look when the interval is over.
            due = (self.looked_at or 0.0) + self.rules.interval_s
            while self._journal.now() < due:
                self._wake.clear()
                self.request_all()
                left = due - self._journal.now()
                try:
                    await asyncio.wait_for(self._wake.wait(), max(0.0, left))
                except TimeoutError:
                    break

    async def run_round(self) -> None:
        """Look at the engine once, and draw the conclusions (steps 1 to 4)."""
        if not self._journal.may_act():
            return
        began = self._journal.now()
        seen = await self._look()
        if seen is None or not self._journal.may_act():
            return
        self._compare(seen, began - seen.age_s)
        self.looked_at = began
        self.complete = self.complete or seen.complete
        await self.nodes.update(seen.nodes, self.drained)
        for name, channel in list(self._channels.items()):
            gone = self.problem(name)
            if gone:
                channel.cut(gone)

    async def _look(self) -> Seen | None:
        try:
            async with asyncio.timeout(self.rules.timeout_s):
                seen = await self.engine.look()
        except Exception as error:
            self._count_failure(self._reason(error, "look"))
            return None
        # Count at most one failed ask() for each look, because many may fail within one bad minute.
        failed, self._failed_ask = self._failed_ask, ""
        if failed:
            self._count_failure(failed)
        else:
            self.breaker.succeed()
        return seen

    def _reason(self, error: Exception, what: str) -> str:
        """Return the reason of a failed request, as a sentence for operators."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self.rules.timeout_s:g} s"
        if isinstance(error, EngineUnavailable):
            return str(error)
        log.error("engine %s: %s failed", self.name, what, exc_info=error)
        return f"{type(error).__name__}: {error}"

    def _count_failure(self, why: str) -> None:
        """Count a failure of the engine. If the breaker opens, disconnect the nodes of the engine."""
        was_open = self.breaker.is_open
        self.breaker.fail(why, self._journal.now())
        if self.breaker.is_open and not was_open:
            times = self.breaker.failures
            log.error("engine %s: %d failures in a row, no jobs start there: %s", self.name, times, why)
            for channel in list(self._channels.values()):
                channel.cut(self._unavailable())

    # --- what a look shows ---

    def _compare(self, seen: Seen, began: float) -> None:
        self._listed = {self.nodes.node_name(each.name) for each in seen.nodes}
        by_tag: dict[str, list[ForeignJob]] = {}
        for each in seen.jobs:
            if parse_tag(each.tag, self._prefix) is not None:
                by_tag.setdefault(each.tag, []).append(each)
        orphans: list[ForeignJob] = []
        for text, found in by_tag.items():
            attempt = self.attempts.get(text) or self._adopt(text)
            if attempt is None:
                orphans += found
            elif attempt.record.ended_at is not None:
                # The foreign job still exists, although its attempt counts as lost or was stopped.
                orphans += [each for each in found if each.state is not ForeignState.ENDED]
            else:
                before = attempt.record
                if attempt.present(found, began):
                    self._save(attempt)
                if before.started_at is None and attempt.record.started_at is not None:
                    self._report(attempt)
        for text, attempt in self.attempts.items():
            if seen.complete and text not in by_tag:
                attempt.absent(began)
            self._check_time_limit(attempt)
        for orphan in self.sweep.due(orphans):
            self._spawn(f"{orphan.tag} {orphan.ref}", self._end_orphan(orphan))
        for attempt in self.attempts.values():
            for ref in attempt.duplicates:
                log.warning(
                    "engine %s: ending %s, because it has the same tag as %s",
                    self.name,
                    ref,
                    attempt.record.ref,
                )
                ended = self._answer(self.engine.end(ref, attempt.record.grace_s))
                self._spawn(f"{attempt.record.tag} {ref}", ended)
            attempt.duplicates.clear()

    def _adopt(self, text: str) -> ForeignAttempt | None:
        """Return a new attempt for a foreign job that the journal wants and that has no record; None
        if the journal does not want it.
        """
        tag = parse_tag(text, self._prefix)
        assert tag is not None
        node = self._journal.node_of(tag.job, tag.attempt, tag.rank)
        if node is None or node not in self._listed:
            return None
        log.warning(
            "engine %s: %s had no record; its tag names a job, so it gets a new record", self.name, text
        )
        record = AttemptRecord(text, node, tag.job, tag.attempt, tried=True)
        attempt = self.attempts[text] = ForeignAttempt.of(record, self._journal.now())
        return attempt

    def _check_time_limit(self, attempt: ForeignAttempt) -> None:
        """Stop an attempt whose time limit is over. Engines with `walltime` usually end it first."""
        record = attempt.record
        limit = record.order.time_limit_s if record.order is not None else None
        if limit is None or record.started_at is None or record.ended_at is not None or record.stop_why:
            return
        if self._journal.now() >= record.started_at + limit:
            self._stop(attempt, "time_limit", record.order.grace_s if record.order else 10.0)

    async def _end_orphan(self, orphan: ForeignJob) -> None:
        if orphan.state is not ForeignState.ENDED:
            log.warning(
                "engine %s: ending %s (%s), because no job wants it", self.name, orphan.ref, orphan.tag
            )
            await self._answer(self.engine.end(orphan.ref, 10.0))
            self.sweep.ended += 1
        else:
            await self._answer(self.engine.forget(orphan.ref, orphan.tag))

    # --- requests about single attempts ---

    def request_all(self) -> None:
        """Make the request that each attempt needs next (step 5), and write records that have changed."""
        if not self._journal.may_act():
            return
        now, losses = self._journal.now(), self.rules.losses
        for tag, attempt in list(self.attempts.items()):
            if tag in self._busy:
                continue
            verdict = attempt.verdict(None, losses, now)
            step = attempt.next_step(losses, now)
            if verdict is not None and step is None:
                self._spawn(tag, self._finish(attempt, verdict))
            elif self.breaker.is_open:
                continue
            elif step is NextStep.ASK:
                self._spawn(tag, self._ask(attempt))
            elif step is NextStep.END:
                self._spawn(tag, self._end(attempt))
            elif step is NextStep.PROVE:
                self._spawn(tag, self._prove(attempt))
            elif step is NextStep.FORGET:
                self._spawn(tag, self._forget(attempt))
        if self._unsaved:
            self._spawn(_WRITE, self._write_unsaved())

    def _spawn(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        if key in self._busy:
            work.close()
            return
        self._busy.add(key)
        task = asyncio.get_running_loop().create_task(self._limited(key, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _limited(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._requests:
                await work
        except Exception as error:
            why = self._reason(error, "a request")
            attempt = self.attempts.get(key)
            if attempt is None:
                log.warning("engine %s: %s: %s", self.name, key, why)
            elif attempt.presence is Presence.WANTED:
                self._failed_ask = why
                attempt.delayed(why, self._journal.now())
            else:
                attempt.retry_at = self._journal.now() + self.rules.interval_s
        finally:
            work.close()
            self._busy.discard(key)
            self._wake.set()

    async def _answer(self, request: Coroutine[Any, Any, T]) -> T:
        """Return the answer to one request. Raise TimeoutError after `timeout_s`."""
        if not self._journal.may_act():
            request.close()
            raise EngineUnavailable("another controller may lead, so this controller makes no requests")
        async with asyncio.timeout(self.rules.timeout_s):
            return await request

    async def idle(self) -> None:
        """Wait until no request is under way. For tests."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, attempt: ForeignAttempt) -> None:
        record, order = attempt.record, attempt.record.order
        foreign = self.nodes.foreign_name(record.node)
        if order is None or foreign is None:
            return
        if self._journal.node_of(record.job, record.attempt, order.rank) != record.node:
            # The record may be older than the journal, because another controller has led meanwhile.
            await self._finish_as(attempt, "refused: the job does not want this attempt any more")
            return
        again = record.tried
        if not again:
            attempt.record = record = replace(record, tried=True)
            await asyncio.to_thread(self.files.save, record)
        now = self._journal.now()
        try:
            ref = await self._answer(self.engine.ask(Task(foreign, order), record.tag, again=again))
        except AskRefused as refused:
            first = self._first_refusal.setdefault(record.tag, now)
            if refused.lasting:
                await self._finish_as(attempt, f"launch_failed: {refused.why}")
            elif now - first >= self.rules.ask_patience_s:
                await self._finish_as(attempt, f"node_unfit: {refused.why}")
            else:
                attempt.delayed(refused.why, self._journal.now())
            return
        self._first_refusal.pop(record.tag, None)
        self._failed_ask = ""
        attempt.accepted(ref, self._journal.now())
        await asyncio.to_thread(self.files.save, attempt.record)

    async def _end(self, attempt: ForeignAttempt) -> None:
        # Repeat the end after the grace, because an engine may accept it and let the job go on.
        grace = attempt.record.grace_s
        attempt.end_at = self._journal.now() + max(grace, self.rules.interval_s)
        await self._answer(self.engine.end(attempt.record.ref, grace))

    async def _prove(self, attempt: ForeignAttempt) -> None:
        outcome = await self._answer(self.engine.proof(attempt.record.ref, attempt.record.tag))
        verdict = attempt.verdict(outcome, self.rules.losses, self._journal.now())
        if verdict is not None:
            await self._finish(attempt, verdict)

    async def _finish_as(self, attempt: ForeignAttempt, why: str) -> None:
        await self._finish(attempt, Outcome(why=why))

    async def _finish(self, attempt: ForeignAttempt, outcome: Outcome) -> None:
        """Store the logs and the end of an attempt, then report the end."""
        try:
            async with asyncio.timeout(COLLECT_S):
                await self._logs.collect(attempt)
        except (EngineUnavailable, TimeoutError) as error:
            log.warning("engine %s: the output of %s is lost: %s", self.name, attempt.record.tag, error)
        attempt.finish(outcome, self._journal.now())
        await asyncio.to_thread(self.files.save, attempt.record)
        self._report(attempt)

    async def _forget(self, attempt: ForeignAttempt) -> None:
        if attempt.record.ref:
            await self._answer(self.engine.forget(attempt.record.ref, attempt.record.tag))
        attempt.record = replace(attempt.record, forgotten=True, order=None)
        await asyncio.to_thread(self.files.save, attempt.record)
        forgotten = [tag for tag, each in self.attempts.items() if each.record.forgotten]
        for tag in forgotten[: max(0, len(forgotten) - MOST_SETTLED)]:
            del self.attempts[tag]
            await asyncio.to_thread(self.files.delete, tag)

    def _save(self, attempt: ForeignAttempt) -> None:
        """Let the record be written soon. The caller does not wait for the disk, because the controller or
        the engine repeats the changed facts if they are lost.
        """
        self._unsaved.add(attempt.record.tag)

    async def _write_unsaved(self) -> None:
        tags, self._unsaved = self._unsaved, set()
        for tag in tags:
            attempt = self.attempts.get(tag)
            if attempt is not None and tag not in self._busy:
                await asyncio.to_thread(self.files.save, attempt.record)
            elif attempt is not None:
                # Write the record later, because the request that is under way may write it without this
                # change.
                self._unsaved.add(tag)

    def _report(self, attempt: ForeignAttempt) -> None:
        channel = self._channels.get(attempt.record.node)
        if channel is not None:
            channel.send(Report(attempt.record.status))

    # --- frames of the controller ---

    def problem(self, node: str) -> str:
        """Return the reason for which a node cannot be used now; empty if it can."""
        if self.breaker.is_open:
            return self._unavailable()
        if not self.complete:
            return f"engine {self.name} has not given a complete answer yet"
        return self.nodes.problem(node)

    def _unavailable(self) -> str:
        return f"engine {self.name} failed {self.breaker.failures} times in a row: {self.breaker.why}"

    def hello(self, node: str) -> Hello:
        """Return the hello of a node: its resources, and all attempts that are not settled."""
        statuses = tuple(
            each.record.status
            for each in self.attempts.values()
            if each.record.node == node and not each.record.settled
        )
        facts = self.nodes.facts(node)
        return Hello(node, VERSION, f"engine:{self.name}", f"engine:{self.name}", facts, statuses)

    def greet(self, channel: DelegateChannel) -> Hello:
        self._channels[channel.node] = channel
        return self.hello(channel.node)

    def leave(self, channel: DelegateChannel) -> None:
        if self._channels.get(channel.node) is channel:
            del self._channels[channel.node]
        for key in [key for key in self._readings if key[0] == channel.node]:
            self._readings.pop(key).cancel()

    def handle(self, channel: DelegateChannel, frame: ControllerFrame) -> None:
        match frame:
            case Start():
                self._start(channel, frame)
            case Go(job, attempt_number):
                for attempt in self._of(channel.node, job, attempt_number):
                    if not attempt.record.go:
                        attempt.record = replace(attempt.record, go=True)
                        self._save(attempt)
            case Stop(job, attempt_number, grace_s, why):
                self._stop_or_deny(channel, job, attempt_number, why, grace_s)
            case TimeLimit(job, attempt_number, limit):
                for attempt in self._of(channel.node, job, attempt_number):
                    order = attempt.record.order
                    if order is not None:
                        attempt.record = replace(attempt.record, order=replace(order, time_limit_s=limit))
                        self._save(attempt)
            case Settle(job, attempt_number):
                for attempt in self._of(channel.node, job, attempt_number):
                    if attempt.record.ended_at is not None and not attempt.record.settled:
                        attempt.record = replace(attempt.record, settled=True)
                        self._save(attempt)
            case Ping(beat, heard):
                channel.send(Pong(beat, heard))
            case CheckGpu(uuid):
                channel.send(GpuChecked(uuid, True))
            case ResetGpu(uuid):
                channel.send(GpuReset(uuid, False, f"engine {self.name} cannot reset GPUs"))
            case OpenShell(request):
                why = f"engine {self.name} cannot run commands in jobs"
                channel.send(ShellEnded(request, error=why))
            case ReadLog(request, job, attempt_number):
                found = next(self._of(channel.node, job, attempt_number), None)
                self._read(channel, request, self._logs.read(frame, found, channel.send))
            case SearchLog(request, job, attempt_number):
                found = next(self._of(channel.node, job, attempt_number), None)
                self._read(channel, request, self._logs.search(frame, found, channel.send))
            case StopReading(request):
                reading = self._readings.pop((channel.node, request), None)
                if reading is not None:
                    reading.cancel()
            case _:
                return
        self._wake.set()

    def _start(self, channel: DelegateChannel, order: Start) -> None:
        """Record a new attempt. A repeated order has no effect. An order for an attempt is refused if the
        engine knows a later attempt of the job.
        """
        tag = str(Tag(self._prefix.split("-")[1], order.job, order.attempt, order.rank))
        known = self.attempts.get(tag)
        if known is not None:
            self._report_if_news(channel, known)
            return
        newest = max(
            (each.record.attempt for each in self.attempts.values() if each.record.job == order.job),
            default=0,
        )
        record = AttemptRecord(
            tag, channel.node, order.job, order.attempt, order, go=not order.barrier, grace_s=order.grace_s
        )
        # The record is written before the ask. Without it, the controller repeats this order after a restart.
        attempt = self.attempts[tag] = ForeignAttempt.of(record, self._journal.now())
        refused = unsupported_requests(order, self.engine.caps)
        if newest > order.attempt:
            self._spawn(tag, self._finish_as(attempt, f"refused: attempt {newest} of the job is known"))
        elif refused:
            why = f"launch_failed: engine {self.name} does not support {', '.join(refused)}"
            self._spawn(tag, self._finish_as(attempt, why))
        elif not record.go:
            self._report(attempt)

    def _report_if_news(self, channel: DelegateChannel, attempt: ForeignAttempt) -> None:
        record = attempt.record
        if record.started_at is not None or record.ended_at is not None or not record.go:
            channel.send(Report(record.status))

    def _stop_or_deny(
        self, channel: DelegateChannel, job: int, number: int, why: str, grace_s: float
    ) -> None:
        attempt = next(self._of(channel.node, job, number), None)
        if attempt is None:
            ended = AttemptStatus(job, number, ended_at=self._journal.now(), why=why)
            channel.send(Report(ended))
        elif attempt.record.ended_at is not None:
            channel.send(Report(attempt.record.status))
        else:
            self._stop(attempt, why, grace_s)

    def _stop(self, attempt: ForeignAttempt, why: str, grace_s: float) -> None:
        if not attempt.record.stop_why or attempt.record.grace_s > grace_s:
            attempt.record = replace(attempt.record, stop_why=attempt.record.stop_why or why, grace_s=grace_s)
            attempt.end_at = self._journal.now()
            self._save(attempt)

    def _read(self, channel: DelegateChannel, request: int, work: Coroutine[Any, Any, None]) -> None:
        key = channel.node, request
        task = asyncio.get_running_loop().create_task(work)
        self._readings[key] = task
        task.add_done_callback(lambda _: self._readings.pop(key, None))

    def _of(self, node: str, job: int, number: int) -> Iterator[ForeignAttempt]:
        return iter(
            [
                each
                for each in self.attempts.values()
                if (each.record.node, each.record.job, each.record.attempt) == (node, job, number)
            ]
        )

    # --- what users ask ---

    def waiting_reason(self, job: int, number: int) -> str:
        """Return why the foreign jobs of an attempt wait, such as `slurm:gpu: QOSGrpGRES`; empty if none
        waits.
        """
        for each in self.attempts.values():
            record = each.record
            if (record.job, record.attempt) == (job, number) and record.ended_at is None and each.reason:
                where = f"{self.name}:{each.where}" if each.where else self.name
                return f"{where}: {each.reason}"
        return ""

    def live_attempts(self) -> list[ForeignAttempt]:
        """Return the attempts whose foreign jobs may exist."""
        return [each for each in self.attempts.values() if each.live]

    def drain(self, why: str) -> None:
        """Store the reason for which operators drain the engine; an empty reason ends the drain."""
        self.drained = why
        self.files.save_drain(why)
        self._wake.set()

    def node_list(self) -> tuple[ForeignNode, ...]:
        return self.nodes.listed
