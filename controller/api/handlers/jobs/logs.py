"""Reads and searches the output of a job on the node that stores the output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from aiohttp import web

from controller.api.handlers.jobs.reasons import why
from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.core.model.decision.decision import Refusal
from controller.core.model.job import Job
from controller.nodes.link import NodeAway
from controller.nodes.session import AgentSession
from wire.agent.orders import SearchLog
from wire.api.jobs import LogMatch
from wire.names import JobState

_PAGE = 1_000
"""Number of journal entries that are read at a time."""

LONGEST_TEXT = 1_000

FIRST_PIECE_S = 1.0
"""Seconds to wait for the first output before the HTTP header is sent. An error after this time can no longer
change the HTTP status.
"""


async def read(call: Call) -> web.StreamResponse:
    """Send a job's output from byte `offset` on.

    A negative offset counts from the end. With follow=1, the answer ends when the job has ended.
    """
    job, attempt, session = await _log_of(call)
    query = call.query
    pieces = session.read_log(job.id, attempt, query["stream"], query["offset"], query["follow"])
    first = asyncio.ensure_future(_next(pieces))
    try:
        done, _ = await asyncio.wait({first}, timeout=FIRST_PIECE_S)
        if done:
            # If the agent returned an error, raise this error now, because the HTTP header is not sent yet,
            # and the error can set the HTTP status.
            first.result()
        return await _send(call.request, first, pieces)
    finally:
        first.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await first
        await pieces.aclose()


async def search(call: Call) -> LogMatch:
    """Search a job's output for a text, on the node that stores the output.

    The search begins at byte `offset`. With back=1, it goes towards the beginning of the output. A text
    without capital letters also matches capital letters. After 1 GiB without a match, the answer has the byte
    from which to continue.
    """
    job, attempt, session = await _log_of(call)
    query, text = call.query, call.query["text"]
    if not text or len(text) > LONGEST_TEXT:
        raise rejected("invalid", f"must have 1 to {LONGEST_TEXT} characters", "text")
    order = SearchLog(0, job.id, attempt, text, query["stream"], query["offset"], query["back"])
    found = await session.search_log(order)
    return LogMatch(found.found, found.reached, found.size)


async def _log_of(call: Call) -> tuple[Job, int, AgentSession]:
    """Return the job of the request, the number of the attempt, and the connection to the node that stores
    the output. Raise Rejected if the attempt was never placed on nodes, or NodeAway if the node cannot be
    reached.
    """
    job = await call.job()
    attempt = call.query["attempt"] or job.attempt
    nodes = await _nodes_of(call, job, attempt)
    if not nodes:
        raise Rejected(await _nothing_written(call, job, attempt))
    name = _chosen(job, nodes, call.query["node"])
    link = call.daemon.agents.links.get(name)
    if link is None:
        raise NodeAway(f"node {name} is not in the configuration")
    return job, attempt, link.session()


def node_of(job: Job, wanted: str) -> str:
    """Return the node of the job that a request names: `wanted`, or the job's first node if `wanted` is
    empty.

    Raise Rejected if the job has not started or does not use the node `wanted`.
    """
    nodes = list(job.members)
    if not nodes:
        raise rejected("conflict", f"job {job.label} has not started: it is {job.state.value}", "job")
    return _chosen(job, nodes, wanted)


async def _nodes_of(call: Call, job: Job, attempt: int) -> list[str]:
    """Return the nodes on which an attempt ran; empty if there was no such attempt. Read the nodes of an
    earlier attempt from the journal, because the memory has only the nodes of the last attempt.
    """
    if attempt == job.attempt and job.members:
        return list(job.members)
    after, more = 0, attempt > 0
    while more:
        entries = await call.daemon.read(partial(call.daemon.store.journal, after, _PAGE, job.id))
        for entry in entries:
            facts = json.loads(entry.body) if entry.kind == "JobPlaced" else {}
            if facts.get("attempt") == attempt:
                return [each["node"] for each in facts["allocations"]]
        more = len(entries) == _PAGE
        after = entries[-1].seq if entries else after
    return []


async def _nothing_written(call: Call, job: Job, attempt: int) -> Refusal:
    """Return the refusal to a request for the output of an attempt that has never been placed on nodes."""
    if attempt > 0:
        made = "none" if not job.attempt else "1" if job.attempt == 1 else f"1 to {job.attempt}"
        return Refusal(
            "not_found", f"job {job.label} has no attempt {attempt}; its attempts: {made}", "attempt"
        )
    sentence = (await why(call, job)).sentence
    if job.state is not JobState.QUEUED:
        message = (
            f"job {job.label} has written nothing: it never started and is {job.state.value} ({sentence})"
        )
        return Refusal("conflict", message, "job")
    message = f"job {job.label} has written nothing yet: it has not started, it is QUEUED ({sentence})"
    return Refusal("conflict", message, "job", f"'corral explain {job.label}' shows when it starts.")


def _chosen(job: Job, nodes: list[str], wanted: str) -> str:
    if wanted and wanted not in nodes:
        message = f"job {job.label} is not on node {wanted!r}"
        raise rejected("not_found", message, "node", f"Its nodes are {', '.join(nodes)}.")
    return wanted or nodes[0]


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def _send(
    request: web.BaseRequest, first: asyncio.Future[bytes | None], pieces: AsyncIterator[bytes]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    await response.prepare(request)
    piece = await first
    while piece is not None:
        await response.write(piece)
        piece = await _next(pieces)
    await response.write_eof()
    return response
