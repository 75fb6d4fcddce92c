"""Routes of the store: verify the store in a separate process, and delete its old jobs and journal
entries."""

from __future__ import annotations

import asyncio

from aiohttp import web

from controller.api.server.access import admin
from controller.api.server.request import Call
from wire.api.service.store import Compacted, CompactRequest
from wire.program_parts import STORE_CHECK

VERIFY = admin("verify the store", changes=False)
COMPACT = admin("delete old jobs and entries")


async def verify(call: Call) -> web.StreamResponse:
    """Verify all journal entries and tables of the store. The answer has a JSON line for each step."""
    async with call.daemon.verify_turns.turn(call.caller.user):
        process = await asyncio.create_subprocess_exec(
            *STORE_CHECK.command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{call.daemon.config.store_url}\n".encode())
            process.stdin.close()
            response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
            await response.prepare(call.request)
            while line := await process.stdout.readline():
                await response.write(line)
            await response.write_eof()
            return response
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def compact(call: Call, request: CompactRequest) -> Compacted:
    """Delete the jobs and journal entries that are older than the limits in the request or in [retention]."""
    daemon = call.daemon
    limits = daemon.config.retention
    for name in ("jobs_days", "journal_days"):
        if getattr(request, name) is not None:
            limits = limits.model_copy(update={name: getattr(request, name)})
    deleted = await daemon.retention.enforce(limits, daemon.now())
    return Compacted(deleted.jobs, deleted.entries, daemon.store.begins)
