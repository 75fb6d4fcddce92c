"""Reads and writes objects in one bucket of an S3-compatible storage."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from controller.engines.aws.access_keys import read_credentials
from controller.engines.aws.answers import parsed_xml, read_body, text_of
from controller.engines.aws.signing import Signer
from controller.engines.contract import EngineUnavailable
from controller.engines.serverless.http_session import HttpSession
from wire.text import printable

ONLY_NEW = {"if-none-match": "*"}
"""The header with which the storage creates an object only if there is none with this key."""
MOST_OBJECT_BYTES = 64 << 20
MOST_PAGES = 1_000
_CONFLICT_TRIES = 5


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a list. `age_s` is its age in seconds, by the clock of the storage."""

    key: str
    age_s: float


class ObjectStore:
    """One bucket. The storage must create objects atomically, show new objects in lists immediately, and
    support If-None-Match.

    All methods raise EngineUnavailable if the storage does not do what it was asked for. It is then unknown
    whether the request had an effect.
    """

    def __init__(
        self, session: HttpSession, endpoint: str, bucket: str, region: str, credentials_file: str
    ) -> None:
        self._session = session
        self._base = f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/{bucket}"
        self._region, self._credentials_file = region, credentials_file

    async def create(self, key: str, body: Mapping[str, Any]) -> bool:
        """Create an object with JSON if there is none with this key. Return whether it was created.

        The storage answers 409 if another request for the key is under way. Then send the request again.
        """
        for _ in range(_CONFLICT_TRIES):
            status, answer, _ = await self._send("PUT", key, json.dumps(body).encode(), ONLY_NEW)
            if status in (200, 412):
                return status == 200
            if status != 409:
                break
        raise self._problem("PUT", key, status, answer)

    async def put(self, key: str, body: Mapping[str, Any]) -> None:
        """Write an object with JSON."""
        status, answer, _ = await self._send("PUT", key, json.dumps(body).encode())
        if status != 200:
            raise self._problem("PUT", key, status, answer)

    async def get(self, key: str) -> tuple[bytes, float] | None:
        """Return the content of an object and its age in seconds; None if there is no object."""
        status, answer, headers = await self._send("GET", key)
        if status == 404:
            return None
        if status != 200:
            raise self._problem("GET", key, status, answer)
        modified = parsedate_to_datetime(headers["Last-Modified"]) if "Last-Modified" in headers else None
        return answer, max(0.0, _now(headers) - modified.timestamp()) if modified else 0.0

    async def delete(self, key: str) -> None:
        """Delete an object. An object that does not exist is no error."""
        status, answer, _ = await self._send("DELETE", key)
        if status not in (200, 204, 404):
            raise self._problem("DELETE", key, status, answer)

    async def list(self, prefix: str) -> list[StoredObject]:
        """Return all objects whose key begins with the prefix."""
        found: list[StoredObject] = []
        more: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            query = {"list-type": "2", "prefix": prefix, **more}
            status, answer, headers = await self._send("GET", "", query=query)
            root = parsed_xml(answer) if status == 200 else None
            if root is None or root.tag != "ListBucketResult":
                raise self._problem("GET", prefix, status, answer)
            now = _now(headers)
            for each in root.iterfind("Contents"):
                modified = datetime.fromisoformat(text_of(each, "LastModified"))
                at = modified if modified.tzinfo else modified.replace(tzinfo=UTC)
                found.append(StoredObject(text_of(each, "Key"), max(0.0, now - at.timestamp())))
            token = text_of(root, "NextContinuationToken")
            if text_of(root, "IsTruncated") != "true":
                return found
            if not token:
                raise EngineUnavailable(f"{self._base}: a list ends without its next page")
            more = {"continuation-token": token}
        raise EngineUnavailable(f"{self._base}: a list has more than {MOST_PAGES} pages")

    def presigned(
        self, method: str, key: str, valid_s: float, headers: Mapping[str, str] | None = None
    ) -> str:
        """Return an address with which a function can read or write one object for `valid_s` seconds."""
        return self._signer().presigned(method, f"{self._base}/{key}", int(valid_s), time.time(), headers)

    def _signer(self) -> Signer:
        return Signer(read_credentials(self._credentials_file), self._region, "s3")

    async def _send(
        self,
        method: str,
        key: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        url = f"{self._base}/{key}" if key else self._base
        if query:
            url += f"?{urlencode(query, quote_via=quote, safe='-_.~')}"
        signed = self._signer().headers(method, url, body, time.time(), headers)
        try:
            async with self._session.get().request(
                method, URL(url, encoded=True), data=body, headers=signed, allow_redirects=False
            ) as answer:
                return answer.status, await read_body(answer, MOST_OBJECT_BYTES), answer.headers
        except (aiohttp.ClientError, OSError) as error:
            host = urlsplit(self._base).netloc
            raise EngineUnavailable(f"the storage {host} cannot be reached: {error}") from None

    def _problem(self, method: str, key: str, status: int, answer: bytes) -> EngineUnavailable:
        root = parsed_xml(answer)
        why = "" if root is None else f" {text_of(root, 'Code')} {printable(text_of(root, 'Message'), 300)}"
        return EngineUnavailable(f"{self._base} answers {method} {key} with status {status}{why}")


def _now(headers: Mapping[str, str]) -> float:
    """Return the time by the clock of the storage (header Date), because the ages of objects are computed
    from this clock.
    """
    return parsedate_to_datetime(headers["Date"]).timestamp() if "Date" in headers else time.time()
