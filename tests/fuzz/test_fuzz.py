"""A few seconds of the fuzzer, and a check that it finds defects."""

from __future__ import annotations

import asyncio
import json
import random

from aiohttp import web

from tests.fuzz.__main__ import fuzz
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.values import Values, body_of

DOCUMENT = {
    "paths": {"/v1/things/{thing}": {"get": {"parameters": []}}},
    "components": {"schemas": {"Loop": {"type": "object", "properties": {"next": {"$ref": "x/Loop"}}}}},
}


def test_no_role_gets_a_wrong_answer() -> None:
    findings, problems = fuzz(5.0, 3)
    assert (findings.bad, problems) == ([], [])
    assert {200, 400, 401, 403, 404} <= {*findings.requests}


async def test_wrong_answers_are_found() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=500, text="Traceback")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        server = web.TCPSite(runner, "127.0.0.1", 0)
        await server.start()
        [address] = runner.addresses
        found = await Fuzzer(f"http://127.0.0.1:{address[1]}", DOCUMENT, {"nobody": ""}, 1).run(30.0)
        assert len(found.bad) >= 50
        assert "500" in found.bad[0]
    finally:
        await asyncio.shield(runner.cleanup())


def test_values_of_a_recursive_schema_end() -> None:
    rng = random.Random(1)
    values = Values(DOCUMENT, rng)
    for _ in range(200):
        body_of(values.of({"$ref": "x/Loop"}), rng)
    json.dumps(values.of({"type": "array", "items": {"type": "string"}}))
