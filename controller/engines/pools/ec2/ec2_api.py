"""Sends requests to the EC2 API of one region, and reads the answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote
from xml.etree.ElementTree import Element

import aiohttp

from controller.engines.aws.access_keys import read_credentials
from controller.engines.aws.answers import parsed_xml, read_body, text_of
from controller.engines.aws.signing import Signer
from controller.engines.contract import EngineUnavailable
from wire.text import printable

VERSION = "2016-11-15"
CONTENT = "application/x-www-form-urlencoded; charset=utf-8"
MOST_ANSWER_BYTES = 64 << 20
MOST_PAGES = 1_000


class Ec2Refused(Exception):
    """Raised if EC2 has refused a request, so nothing has changed. `code` is EC2's reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Ec2Api:
    """The EC2 API of one region. A request that EC2 refuses raises Ec2Refused. A request whose effect is
    unknown raises EngineUnavailable.
    """

    def __init__(self, region: str, endpoint: str, credentials_file: str) -> None:
        self.region = region
        self._url = (endpoint or "https://ec2.{region}.amazonaws.com").format(region=region).rstrip("/") + "/"
        self._credentials_file = credentials_file
        self._session: aiohttp.ClientSession | None = None

    async def call(self, action: str, parameters: Mapping[str, str]) -> Element:
        """Send one request, and return the root element of the answer."""
        fields = {"Action": action, "Version": VERSION, **parameters}
        body = "&".join(f"{quote(key)}={quote(value, safe='-_.~')}" for key, value in fields.items()).encode()
        signer = Signer(read_credentials(self._credentials_file), self.region, "ec2")
        headers = signer.headers("POST", self._url, body, time.time(), {"content-type": CONTENT})
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status = answer.status
                text = await read_body(answer, MOST_ANSWER_BYTES)
        except (aiohttp.ClientError, OSError) as error:
            raise EngineUnavailable(f"EC2 in {self.region} cannot be reached: {error}") from None
        root = parsed_xml(text)
        if root is not None and status < 300:
            return root
        code = "" if root is None else text_of(root, "Errors/Error/Code")
        message = "" if root is None else printable(text_of(root, "Errors/Error/Message"), 300)
        if code and 400 <= status < 500:
            raise Ec2Refused(code, message)
        raise EngineUnavailable(
            f"EC2 in {self.region} answers {action} with status {status} {code} {message}"
        )

    async def pages(self, action: str, parameters: Mapping[str, str]) -> AsyncIterator[Element]:
        """Yield the pages of a list, each as the root element of one answer."""
        more = dict(parameters)
        for _ in range(MOST_PAGES):
            page = await self.call(action, more)
            yield page
            token = text_of(page, "nextToken")
            if not token:
                return
            more["NextToken"] = token
        raise EngineUnavailable(f"EC2 in {self.region} answers {action} with more than {MOST_PAGES} pages")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
