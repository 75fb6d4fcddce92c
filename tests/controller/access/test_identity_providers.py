"""The keys of an identity provider, read from a real HTTP server."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.access import identity_providers
from controller.access.identity_providers import ProviderUnreachable, _read_keys

KEYS = {"keys": [{"kid": "a", "n": "x" * 4_000}, {"kid": "b"}]}


async def provider() -> TestServer:
    """Start a provider that sends its keys in two pieces."""

    async def about(request: web.Request) -> web.Response:
        issuer = f"http://127.0.0.1:{server.port}"
        return web.json_response({"issuer": issuer, "jwks_uri": f"{issuer}/keys"})

    async def keys(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        text = json.dumps(KEYS).encode()
        await answer.write(text[:1_000])
        await asyncio.sleep(0.05)
        await answer.write(text[1_000:])
        return answer

    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", about)
    app.router.add_get("/keys", keys)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    return server


async def test_keys_that_arrive_in_pieces_are_read_whole() -> None:
    server = await provider()
    try:
        assert await _read_keys(f"http://127.0.0.1:{server.port}") == KEYS["keys"]
    finally:
        await server.close()


async def test_an_answer_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_providers, "MOST_BYTES", 2_000)
    server = await provider()
    try:
        with pytest.raises(ProviderUnreachable, match="more than 2000 bytes"):
            await _read_keys(f"http://127.0.0.1:{server.port}")
    finally:
        await server.close()
