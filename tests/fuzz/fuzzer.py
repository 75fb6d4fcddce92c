"""Sends random requests of every role to every route, and checks the controller after each."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.parse
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from tests.fuzz.values import Values, body_of

FAILURES = frozenset({500, 501, 502, 504, 505, 506})
ANSWER_S = 60.0
QUIET_ROUTES = frozenset({"/v1/store/verify"})
"""Routes that are asked rarely, because each answer takes long."""


@dataclass
class Findings:
    """What the fuzzer has seen."""

    requests: Counter[int] = field(default_factory=Counter)
    """Requests by status; 0: no answer."""
    routes: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    """Requests with a wrong answer, each with the request and the answer."""


class Fuzzer:
    """Sends requests over TCP with the tokens of all roles.

    1. Take a random operation of the OpenAPI document and a random role.
    2. Fill the path, the query and the body with random values (values.py). Remember ids in answers, and use
       them later.
    3. An answer with a status of 500 and more is a finding, except 503 and 507, which name a resource that is
       away. So is an answer that is no JSON object of a problem, and a request without any answer.
    """

    def __init__(self, url: str, document: Mapping[str, Any], tokens: Mapping[str, str], seed: int) -> None:
        self._url = url
        self._tokens = tokens
        self._rng = random.Random(seed)
        self._values = Values(document, self._rng)
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        self.findings = Findings()

    async def run(self, seconds: float, at_once: int = 4) -> Findings:
        """Send requests for this time."""
        ends = time.monotonic() + seconds
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:

            async def send() -> None:
                while time.monotonic() < ends and len(self.findings.bad) < 50:
                    await self._one(session)

            await asyncio.gather(*(send() for _ in range(at_once)))
        return self.findings

    async def _one(self, session: aiohttp.ClientSession) -> None:
        rng, found = self._rng, self.findings
        method, path, operation = rng.choice(self._operations)
        if path in QUIET_ROUTES and rng.random() < 0.98:
            return
        role, token = rng.choice([*self._tokens.items()])
        target = self._target(path, operation)
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        body = body_of(self._values.of(content["schema"]), rng) if content else None
        headers = self._headers(token)
        what = f"{role}: {method} {target} {(body or b'')[:2_000]!r}"
        try:
            url = URL(f"{self._url}{target}", encoded=True)
            async with session.request(method, url, data=body, headers=headers, allow_redirects=False) as got:
                answer = await asyncio.wait_for(
                    got.content.read(1 << 20), 2.0 if _is_endless(path) else ANSWER_S
                )
                status, kind = got.status, got.content_type
        except TimeoutError:
            if not _is_endless(path):
                found.bad.append(f"{what}\n  no answer in {ANSWER_S:g} s")
            return
        except (aiohttp.ClientError, ValueError) as error:
            if not isinstance(error, aiohttp.ServerDisconnectedError):
                found.bad.append(f"{what}\n  {type(error).__name__}: {error}")
            found.requests[0] += 1
            return
        found.requests[status] += 1
        found.routes[f"{method} {path}"] += 1
        if status in FAILURES or status > 507:
            found.bad.append(f"{what}\n  {status} {answer[:1_000]!r}")
        elif status >= 400 and kind != "application/json" and path != "/readyz":
            found.bad.append(f"{what}\n  {status} {kind} {answer[:300]!r}")
        elif status < 300 and kind == "application/json":
            self._remember(answer)

    def _target(self, path: str, operation: Mapping[str, Any]) -> str:
        rng, values = self._rng, self._values
        for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
            path = path.replace(f"{{{name}}}", urllib.parse.quote(_text(values.word()), safe=""))
        query = [
            (each["name"], _text(values.of(each["schema"])))
            for each in operation.get("parameters", ())
            if each["in"] == "query" and rng.random() < 0.4
        ]
        if rng.random() < 0.02:
            query.append((_text(values.word()), _text(values.strange())))
        return f"{path}?{urllib.parse.urlencode(query)}" if query else path

    def _headers(self, token: str) -> dict[str, str]:
        rng = self._rng
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if rng.random() < 0.05:
            headers["Corral-Scope"] = rng.choice(("read", "write", "admin", ""))
        if rng.random() < 0.05:
            headers["Corral-What-If"] = rng.choice(("x", "1" * 300, "0" * 16))
        return headers

    def _remember(self, answer: bytes) -> None:
        """Keep ids and names in the answer for later requests."""
        try:
            self._collect(json.loads(answer), 0)
        except ValueError:
            return
        known = self._values.known
        while len(known) > 300:
            known.pop(self._rng.randrange(20, len(known)))

    def _collect(self, value: Any, depth: int) -> None:
        if depth > 4:
            return
        if isinstance(value, dict):
            for name, each in value.items():
                if name in ("id", "label", "name", "uuid") and isinstance(each, str | int):
                    self._values.known.append(str(each)[:100])
                elif isinstance(each, dict | list):
                    self._collect(each, depth + 1)
        elif isinstance(value, list):
            for each in value[:5]:
                self._collect(each, depth + 1)


def _is_endless(path: str) -> bool:
    return path in ("/v1/stream", "/v1/jobs/{job}/logs", "/v1/shells/{shell}")


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode()
