"""Route of the audit log: the changes and refusals that this controller has recorded."""

from __future__ import annotations

import asyncio

from controller.api.server.request import Call
from wire.api.service.access import AuditPage


async def show(call: Call) -> AuditPage:
    """List up to `limit` entries of the audit log with numbers above `after`."""
    return await asyncio.to_thread(call.audit.page, call.query["after"], call.query["limit"])
