"""Sends requests to the EC2 API of one region, and reads the answers."""

from __future__ import annotations

import configparser
import os
import time
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote
from xml.etree.ElementTree import Element, ParseError, XMLParser

import aiohttp

from controller.engines.contract import EngineUnavailable
from controller.engines.pools.ec2.sigv4 import Credentials, signed_headers
from wire import trusted_paths
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
        credentials = read_credentials(self._credentials_file)
        headers = signed_headers(self._url, body, CONTENT, self.region, "ec2", credentials, time.time())
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status = answer.status
                text = await _read(answer)
        except (aiohttp.ClientError, OSError) as error:
            raise EngineUnavailable(f"EC2 in {self.region} cannot be reached: {error}") from None
        root = _parsed(text)
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
        """Yield the answers with all pages of a list."""
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


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer. Raise EngineUnavailable if it is too long."""
    text = bytearray()
    async for piece in answer.content.iter_any():
        text += piece
        if len(text) > MOST_ANSWER_BYTES:
            raise EngineUnavailable(f"EC2 has sent an answer of more than {MOST_ANSWER_BYTES >> 20} MiB")
    return bytes(text)


def text_of(element: Element, path: str) -> str:
    """Return the text of the element at a path; empty if there is none."""
    found = element.find(path)
    return "" if found is None or found.text is None else found.text.strip()


def read_credentials(file: str) -> Credentials:
    """Return the access key in a file with the form of ~/.aws/credentials, or in the environment of the
    controller. Raise EngineUnavailable if there is none.
    """
    found: Mapping[str, str] = os.environ
    if file:
        try:
            with open(trusted_paths.open_file(file), encoding="utf-8") as opened:
                parser = configparser.ConfigParser(interpolation=None)
                parser.read_string(opened.read())
            found = {key.upper(): value for key, value in parser["default"].items()}
        except (OSError, KeyError, configparser.Error, trusted_paths.UntrustedPath) as error:
            raise EngineUnavailable(f"the credentials in {file} cannot be read: {error}") from None
    key_id, secret = found.get("AWS_ACCESS_KEY_ID", ""), found.get("AWS_SECRET_ACCESS_KEY", "")
    if not key_id or not secret:
        raise EngineUnavailable(
            "there is no access key for EC2: name a file in credentials_file, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY for the controller"
        )
    return Credentials(key_id, secret, found.get("AWS_SESSION_TOKEN", ""))


def _parsed(text: bytes) -> Element | None:
    """Return the root element without namespaces; None if the text is no XML. Documents with a DTD are
    refused, because their entities can grow without limit.
    """
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        return None
    parser = XMLParser()  # noqa: S314 - documents with entities are refused above
    try:
        parser.feed(text)
        root: Element = parser.close()
    except ParseError:
        return None
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
