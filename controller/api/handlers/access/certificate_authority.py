"""Route of the certificate authority, which clients read before they trust the controller."""

from __future__ import annotations

from aiohttp import web

from controller.api.server.errors import rejected
from controller.api.server.request import Call


async def show(call: Call) -> web.Response:
    """Send the certificate of the controller's own authority ([api] tls = "auto")."""
    if not call.authority:
        hint = 'Only a controller with [api] tls = "auto" has one.'
        raise rejected("not_found", "this controller has no certificate authority of its own", hint=hint)
    return web.Response(body=call.authority, content_type="application/x-pem-file")
