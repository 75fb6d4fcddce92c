"""An S3-compatible storage in memory that checks signatures, expiries and conditions of requests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape

from aiohttp import web

from controller.engines.aws.signing import Credentials, Signer

KEY = Credentials("test-key", "test-secret")
BUCKET = "results"
PAGE = 3
"""The objects on one page of a list, so few that all lists have several pages."""


@dataclass
class ObjectServer:
    """The storage. The next `fails` writes get the status 503 and have no effect."""

    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    conditional: bool = True
    """Whether the storage obeys If-None-Match."""
    offset_s: float = 0.0
    """How much the clock of the storage is ahead."""
    fails: int = 0
    lost_answers: int = 0
    """The next claims have an effect, and their answers are lost."""
    requests: list[str] = field(default_factory=list)
    address: str = ""
    _runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=1 << 27)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def keys(self, part: str = "") -> list[str]:
        return sorted(key for key in self.objects if part in key)

    def age(self, part: str, seconds: float) -> None:
        """Make objects older."""
        for key in self.keys(part):
            content, at = self.objects[key]
            self.objects[key] = content, at - seconds

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        problem = self._refusal(request, body)
        date = {"Date": format_datetime(datetime.fromtimestamp(self._now(), UTC), usegmt=True)}
        if problem:
            return web.Response(
                status=403, text=f"<Error><Code>{problem}</Code><Message/></Error>", headers=date
            )
        if self.fails and request.method == "PUT":
            self.fails -= 1
            return web.Response(status=503, headers=date)
        key = request.path.removeprefix(f"/{BUCKET}").lstrip("/")
        self.requests.append(f"{request.method} {key}")
        answer = self._act(request, key, body)
        if self.lost_answers and "claims" in key and request.method == "PUT":
            self.lost_answers -= 1
            return web.Response(status=500, headers=date)
        answer.headers.update(date)
        return answer

    def _act(self, request: web.Request, key: str, body: bytes) -> web.Response:
        if request.method == "PUT":
            # moto stores the body of a form as an empty object
            assert request.content_type != "application/x-www-form-urlencoded"
            if self.conditional and request.headers.get("If-None-Match") == "*" and key in self.objects:
                return web.Response(status=412)
            self.objects[key] = body, self._now()
            return web.Response()
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return web.Response(status=204)
        if not key:
            return self._list(request)
        if key not in self.objects:
            return web.Response(status=404)
        content, at = self.objects[key]
        modified = format_datetime(datetime.fromtimestamp(at, UTC), usegmt=True)
        return web.Response(body=content, headers={"Last-Modified": modified})

    def _list(self, request: web.Request) -> web.Response:
        after = request.query.get("continuation-token", "")
        found = [key for key in self.keys() if key.startswith(request.query["prefix"]) and key > after]
        page, more = found[:PAGE], found[PAGE:]
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>"
            f"{datetime.fromtimestamp(self.objects[key][1], UTC).strftime('%Y-%m-%dT%H:%M:%S.000Z')}"
            "</LastModified></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        return web.Response(
            text='<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{items}</ListBucketResult>"
        )

    def _now(self) -> float:
        return time.time() + self.offset_s

    def _refusal(self, request: web.Request, body: bytes) -> str:
        url = f"{self.address}{request.raw_path}"
        signer = Signer(KEY, "us-east-1", "s3")
        if "X-Amz-Signature" not in request.query:
            at = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            names = request.headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0]
            own = ("host", "x-amz-date", "x-amz-content-sha256")
            given = {name: request.headers[name] for name in names.split(";") if name not in own}
            wanted = signer.headers(request.method, url, body, at.timestamp(), given)["authorization"]
            return "" if wanted == request.headers["Authorization"] else "SignatureDoesNotMatch"
        query = dict(parse_qsl(urlsplit(url).query))
        at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if time.time() > at.timestamp() + int(query["X-Amz-Expires"]):
            return "AccessDenied"
        names = [name for name in query["X-Amz-SignedHeaders"].split(";") if name != "host"]
        given = {name: request.headers.get(name, "") for name in names}
        wanted = signer.presigned(
            request.method, url.partition("?")[0], int(query["X-Amz-Expires"]), at.timestamp(), given
        )
        return "" if wanted == url else "SignatureDoesNotMatch"
