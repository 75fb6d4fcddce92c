"""The engine that runs each job as one call of a serverless function. The facts about jobs are objects in a
storage, because a call can be lost, late or made twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Protocol

from controller.engines.contract import (
    AskRefused,
    EngineCaps,
    EngineScope,
    EngineUnavailable,
    ExecutionEngine,
    ForeignJob,
    ForeignLimit,
    ForeignNode,
    ForeignState,
    Outcome,
    Seen,
    Task,
)
from controller.engines.serverless.function_options import FunctionOptions
from controller.engines.serverless.http_session import HttpSession
from controller.engines.serverless.job_event import addresses, event_of, payload_of, size_refusal
from controller.engines.serverless.job_objects import (
    ASKED,
    PARTS,
    RESULT,
    REVOKED,
    SLACK_S,
    STARTED,
    STOP,
    JobKeys,
    is_revoked,
    jobs_of,
    outcome_of,
)
from controller.engines.serverless.object_store import ObjectStore
from wire.agent.reports import NodeFacts
from wire.job.spec import JobSpec

LONGEST_REPEAT = 16
"""The pause before an event is repeated grows up to this multiple of `repeat_s`."""
FAILED_PAUSE_S = 2.0
"""Seconds until the first event of a job is sent again if its call has failed."""
FOLLOW_PAUSE_S = 1.0
LOST = {"why": "supervisor_lost: the function was ended before it wrote the result"}


class Invoker(Protocol):
    """Calls one function. `where` names the function for users."""

    where: str

    async def invoke(self, payload: bytes, tag: str) -> None:
        """Send an event. Return when the platform has accepted it, which does not prove that the function
        will run. Raise AskRefused if nothing was started, and EngineUnavailable if this is not known.
        """

    def failure(self, tag: str) -> str:
        """Return why the last call for this tag failed after invoke() had returned; empty if it did not."""

    def forget(self, tag: str) -> None:
        """Forget the failure of the calls for this tag."""

    async def close(self) -> None:
        """Stop waiting for answers. Calls continue."""


class ServerlessEngine(ExecutionEngine):
    """Runs jobs in calls of one function, which must be Corral's handler (deploy/serverless). The name of a
    foreign job is its tag.

    Objects of a job below `jobs/TAG/`, each written once or by one writer
    1. ask() writes `asked`, and sends the event.
    2. The handler creates the object `claims/TAG` only if it does not exist (If-None-Match). So of two calls
       with one tag, only one runs the command. It then writes `started`, runs the command, and writes
       `stdout`, `stderr` and `result`. `result` is the proof.
    3. end() creates the claim itself if there is none; no call can then start the job. If there is one, end()
       writes `stop`, for which the handler looks every `poll_s` seconds.
    4. look() lists the objects. If a job has not started `repeat_s` seconds after its event was sent, ask()
       is to send the event again, because it may be lost. The pause doubles with each repetition.
    5. forget() deletes the objects, but not the claim, because a late event would run the command again. A
       claim is deleted when all events of its job are too late.

    Invariant: at most one run of the command for each tag, also if events are lost, late or doubled.

    Cost: one list for each look, about 4 requests for each job by the engine and 7 by the handler, and one
    request of the handler each `poll_s` seconds.
    """

    caps = EngineCaps(logs=True, walltime=True)

    def __init__(
        self, options: FunctionOptions, scope: EngineScope, invoker: Invoker, session: HttpSession
    ) -> None:
        self._options, self._prefix = options, scope.tag_prefix
        self._invoker, self._session = invoker, session
        self._store = ObjectStore(
            session, options.storage_endpoint, options.bucket, options.region, options.credentials_file
        )
        self._keys = JobKeys(options.prefix)
        self._live: set[str] = set()
        """The tags of the jobs that wait or run."""
        self._sent: dict[str, tuple[int, float]] = {}
        """How often the event of a waiting job was sent, and when last (monotonic)."""
        self._refused: dict[str, str] = {}
        """Why the last repetition of an event was refused."""
        self._checked = False
        self._swept = 0.0

    async def look(self) -> Seen:
        await self._check_storage()
        listed = await self._store.list(self._keys.part(self._prefix, "").rstrip("/"))
        found: list[ForeignJob] = []
        for each in jobs_of(listed, self._keys):
            state = each.state(self._options.longest_s)
            if state is ForeignState.WAITING:
                found.append(self._waiting(each.tag, each.ages[ASKED]))
            elif state is not None:
                found.append(ForeignJob(each.tag, each.tag, state, self._invoker.where))
                self._sent.pop(each.tag, None)
                self._refused.pop(each.tag, None)
        self._live = {each.tag for each in found if each.state is not ForeignState.ENDED}
        return Seen(True, tuple(found), (self._node(),))

    def _waiting(self, tag: str, age_s: float) -> ForeignJob:
        times, last = self._sent.get(tag, (1, None))
        waited = age_s if last is None else time.monotonic() - last
        failure = self._refused.get(tag) or self._invoker.failure(tag)
        pause = self._options.repeat_s * min(2 ** max(0, times - 1), LONGEST_REPEAT)
        if failure and times == 1:
            pause = min(pause, FAILED_PAUSE_S)
        reason = failure or "the function has not begun to run the job"
        where = self._invoker.where
        return ForeignJob(tag, tag, ForeignState.WAITING, where, reason, ask_again=waited >= pause)

    def _node(self) -> ForeignNode:
        options = self._options
        facts = NodeFacts(
            round(options.cpus * 1_000) * options.concurrency,
            options.memory_mib * options.concurrency,
            labels={"serverless": "true"},
        )
        return ForeignNode("calls", facts)

    def refusal(self, spec: JobSpec, user: str) -> str:
        return self._options.refusal(spec, user)

    async def ask(self, task: Task, tag: str, *, again: bool) -> str:
        event = event_of(task, tag, self._options)
        urls = addresses(self._store, self._keys, tag, self._options)
        payload = payload_of(event, time.time() + self._options.late_s, urls)
        refusal = self._options.refusal(task.order, task.order.user) or size_refusal(payload)
        await self._check_storage()
        asked = again and await self._store.get(self._keys.part(tag, ASKED)) is not None
        if not asked:
            return await self._ask_first(tag, payload, refusal)
        if not await self._settle_claim(tag):
            await self._ask_again(tag, payload, refusal)
        return tag

    async def _ask_first(self, tag: str, payload: bytes, refusal: str) -> str:
        if refusal:
            raise AskRefused(refusal, lasting=True)
        if tag not in self._live and len(self._live) >= self._options.concurrency:
            raise AskRefused(f"all {self._options.concurrency} calls of {self._invoker.where} are in use")
        self._live.add(tag)
        await self._store.put(self._keys.part(tag, ASKED), {})
        try:
            await self._send(tag, payload)
        except AskRefused:
            await self._store.delete(self._keys.part(tag, ASKED))
            self._live.discard(tag)
            raise
        return tag

    async def _ask_again(self, tag: str, payload: bytes, refusal: str) -> None:
        """Send the event again for a job that no call has claimed. An earlier event may still start the job,
        so raise a lasting refusal only after the job was revoked.
        """
        try:
            if refusal:
                raise AskRefused(refusal, lasting=True)
            await self._send(tag, payload)
        except AskRefused as refused:
            self._refused[tag] = refused.why
            if refused.lasting and await self._revoke(tag):
                raise

    async def _send(self, tag: str, payload: bytes) -> None:
        times = self._sent.get(tag, (0, 0.0))[0]
        self._sent[tag] = times + 1, time.monotonic()
        self._refused.pop(tag, None)
        await self._invoker.invoke(payload, tag)

    async def _settle_claim(self, tag: str) -> bool:
        """Return whether the job is claimed. If no call will write the result of a claimed job, write it
        here: the job is revoked, or the claim is older than a call can be.
        """
        claim = await self._store.get(self._keys.claim(tag))
        if claim is None:
            return False
        content, age_s = claim
        if is_revoked(content):
            await self._store.put(self._keys.part(tag, RESULT), REVOKED)
        elif age_s > self._options.longest_s + SLACK_S:
            await self._store.create(self._keys.part(tag, RESULT), LOST)
        return True

    async def _revoke(self, tag: str) -> bool:
        """Prevent the start of the job: write its claim and its result. Return False if a call has claimed
        the job before.
        """
        if not await self._store.create(self._keys.claim(tag), REVOKED):
            claim = await self._store.get(self._keys.claim(tag))
            if claim is None or not is_revoked(claim[0]):
                return False
        await self._store.put(self._keys.part(tag, RESULT), REVOKED)
        return True

    async def end(self, ref: str, grace_s: float) -> None:
        known = [await self._store.get(self._keys.part(ref, name)) for name in (STARTED, ASKED)]
        if not any(known):
            return
        if not await self._revoke(ref):
            await self._store.put(self._keys.part(ref, STOP), {"grace_s": grace_s})

    async def proof(self, ref: str, tag: str) -> Outcome | None:
        result = await self._store.get(self._keys.part(ref, RESULT))
        return None if result is None else outcome_of(result[0])

    async def forget(self, ref: str, tag: str) -> None:
        for name in PARTS:
            await self._store.delete(self._keys.part(ref, name))
        self._live.discard(ref)
        self._sent.pop(ref, None)
        self._refused.pop(ref, None)
        self._invoker.forget(ref)
        await self._delete_old_claims()

    async def _delete_old_claims(self) -> None:
        """Delete the claims of jobs whose events are all too late, at most once in `late_s`."""
        options = self._options
        if self._swept and time.monotonic() - self._swept < options.late_s:
            return
        self._swept = time.monotonic()
        old = 2 * options.late_s + options.longest_s + 10 * SLACK_S
        for each in await self._store.list(self._keys.claim(self._prefix)):
            if each.age_s > old and each.key.rpartition("/")[2] not in self._live:
                await self._store.delete(each.key)

    async def logs(self, ref: str, stream: str, *, follow: bool) -> AsyncIterator[bytes]:
        at, last = 0, False
        while not last:
            last = not follow or await self._store.get(self._keys.part(ref, RESULT)) is not None
            found = await self._store.get(self._keys.part(ref, stream))
            if found is not None and len(found[0]) > at:
                yield found[0][at:]
                at = len(found[0])
            await asyncio.sleep(0 if last else min(FOLLOW_PAUSE_S, self._options.poll_s))

    async def limits(self) -> tuple[ForeignLimit, ...]:
        return (ForeignLimit("concurrency", len(self._live), self._options.concurrency),)

    def script(self, task: Task, tag: str) -> str:
        return payload_of(event_of(task, tag, self._options), 0, {}).decode()

    async def close(self) -> None:
        await self._invoker.close()
        await self._session.close()

    async def _check_storage(self) -> None:
        """Check once that the storage creates an object only once. Without this, a doubled event would run a
        job twice.
        """
        if self._checked:
            return
        key = f"{self._options.prefix}checks/{self._prefix}storage"
        await self._store.create(key, {})
        if await self._store.create(key, {}):
            raise EngineUnavailable(
                "the storage replaces objects in spite of If-None-Match, so a job could run twice; use a "
                "storage with conditional writes"
            )
        self._checked = True
