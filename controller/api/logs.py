"""The output of a job, from the node that has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web

from controller.api.call import Call
from controller.api.errors import Rejected
from controller.core.inputs import Refusal
from controller.core.jobs import Job
from controller.nodes.link import NodeAway

FIRST_PIECE_S = 1.0
"""How long an error may take to be told by status; after that the answer begins, and silence is silence."""


async def read(call: Call) -> web.StreamResponse:
    """The bytes a job has written, from `offset` on (negative: from the end); follow=1 until it has ended."""
    job = await call.own_job("read the output of")
    name = node_of(job, call.query["node"])
    link = call.daemon.links.get(name)
    if link is None:
        raise NodeAway(f"node {name} is not in the configuration")
    pieces = link.read_log(
        job.id, job.attempt, call.query["stream"], call.query["offset"], call.query["follow"]
    )
    first = asyncio.ensure_future(_next(pieces))
    try:
        done, _ = await asyncio.wait({first}, timeout=FIRST_PIECE_S)
        if done:
            first.result()  # not there, or nobody to ask: still time to say so
        return await _send(call.request, first, pieces)
    finally:
        first.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await first
        await pieces.aclose()


def node_of(job: Job, asked: str) -> str:
    """The node that is asked for, or the first."""
    nodes = list(job.members)
    if not nodes:
        raise Rejected(
            Refusal("conflict", f"job {job.label} has not started: it is {job.state.value}", "job")
        )
    if asked and asked not in nodes:
        message = f"job {job.label} has no part on {asked!r}"
        raise Rejected(Refusal("not_found", message, "node", f"It is on {', '.join(nodes)}."))
    return asked or nodes[0]


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
