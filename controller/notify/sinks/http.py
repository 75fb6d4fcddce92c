"""Delivers messages by HTTP: signed webhooks, and the formats of Slack, Mattermost and ntfy."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from controller.config.tables.notify import SinkSection
from controller.notify.messages import Message, text_of
from controller.notify.sinks.delivery_error import DeliveryFailed, secret_of, url_of
from wire.text import printable

FORMAT = 1
"""The version number in the JSON body of webhooks."""
MAX_TEXT = 3_500
"""The most characters of a text for a chat service. Slack allows 4,000 characters, ntfy 4,096 bytes."""
MAX_WAIT_S = 3_600.0
"""The longest pause in seconds that a server can request by the header Retry-After."""
TEMPORARY = (408, 425, 429)
"""The HTTP statuses from 400 to 499 after which a message is tried again, because another try may succeed."""


async def post(sink: SinkSection, message: Message, cluster: str, link: str) -> None:
    """Send a message by HTTP. Raise DeliveryFailed if the answer has no status from 200 to 299.

    Redirects are not followed, so that only the configured host gets the signature and the token.
    """
    url = await asyncio.to_thread(url_of, sink)
    secret = await asyncio.to_thread(secret_of, sink.secret_file, sink.secret_env)
    url, body, headers = _request(sink, message, cluster, link, url, secret)
    host = host_of(url)
    timeout = aiohttp.ClientTimeout(total=sink.timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.post(
                url, data=body, headers=headers, allow_redirects=False, ssl=_tls(sink) or True
            ) as answer,
        ):
            if 200 <= answer.status < 300:
                return
            said = printable((await answer.content.read(300)).decode("utf-8", "replace").strip())
            raise _refusal(host, answer.status, said, answer.headers.get("Retry-After", ""))
    except TimeoutError:
        raise DeliveryFailed(f"{host} did not answer within {sink.timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise DeliveryFailed(f"the TLS connection to {host} failed: {error.reason}") from None
    except aiohttp.InvalidURL:
        raise DeliveryFailed("the URL of the sink is not valid") from None
    except aiohttp.ClientConnectorCertificateError:
        raise DeliveryFailed(f"the TLS certificate of {host} is not valid") from None
    except aiohttp.ClientConnectorError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else "there is no such host"
        raise DeliveryFailed(f"cannot connect to {host}: {why}") from None
    except (aiohttp.ClientError, OSError) as error:
        # Name only the class of the error, because its text may contain the URL.
        raise DeliveryFailed(f"the connection to {host} failed: {type(error).__name__}") from None


def host_of(url: str) -> str:
    """Return the host of a URL, or "?" for a URL without a host."""
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"


def signature(secret: str, name: str, timestamp: str, body: bytes) -> str:
    """Return the value of the header webhook-signature: "v1," and the HMAC-SHA256 of ID.TIMESTAMP.BODY in
    Base64.

    The key of the HMAC is the secret. If the secret begins with "whsec_", the key is the decoded Base64 text
    after it.
    """
    key = secret.encode()
    if secret.startswith("whsec_"):
        try:
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            raise DeliveryFailed("the secret of the sink is not Base64 after whsec_") from None
    signed = f"{name}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _request(
    sink: SinkSection, message: Message, cluster: str, link: str, url: str, secret: str
) -> tuple[str, bytes, dict[str, str]]:
    """Return (URL, body, headers) of the request for this kind of sink."""
    if sink.kind == "ntfy":
        return _ntfy(sink, message, cluster, link, url, secret)
    if sink.kind == "webhook":
        body = json.dumps(_payload(message, cluster, link), ensure_ascii=False).encode()
        stamp = str(int(time.time()))
        headers = {"webhook-id": message.id, "webhook-timestamp": stamp}
        if secret:
            headers["webhook-signature"] = signature(secret, message.id, stamp, body)
    else:
        text = _shortened(f"[{cluster}] {message.subject}\n{text_of(message, link)}")
        if sink.kind == "slack":
            text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        else:
            # Put a zero-width space after each @, so that a word such as @all does not notify all members of
            # a channel.
            text = text.replace("@", "@\u200b")
        body, headers = json.dumps({"text": text}, ensure_ascii=False).encode(), {}
    return url, body, {"Content-Type": "application/json", "User-Agent": "corral", **headers}


def _ntfy(
    sink: SinkSection, message: Message, cluster: str, link: str, url: str, secret: str
) -> tuple[str, bytes, dict[str, str]]:
    body: dict[str, Any] = {
        "topic": message.to or sink.topic,
        "title": f"[{cluster}] {message.subject}",
        "message": _shortened(text_of(message, link)),
    }
    headers = {"Content-Type": "application/json", "User-Agent": "corral", "X-Corral-Id": message.id}
    if secret:
        headers["Authorization"] = f"Bearer {secret}"
    return url, json.dumps(body, ensure_ascii=False).encode(), headers


def _payload(message: Message, cluster: str, link: str) -> Mapping[str, Any]:
    """Return the JSON body of a webhook. docs/notify.md describes the JSON body."""
    notices = []
    for notice in message.notices:
        facts = asdict(notice)
        facts["link"] = link.replace("{job}", notice.job) if link and notice.job else ""
        notices.append(facts)
    return {
        "format": FORMAT,
        "id": message.id,
        "cluster": cluster,
        "made_at": message.made_at,
        "to": message.to,
        "user": message.user,
        "subject": message.subject,
        "notices": notices,
        "more": message.more,
    }


def _refusal(host: str, status: int, said: str, wait: str) -> DeliveryFailed:
    answered = f"{host} answered {status}{': ' if said else ''}{said}"
    wait_s = min(float(wait), MAX_WAIT_S) if wait.isascii() and wait.isdigit() else 0.0
    return DeliveryFailed(answered, final=300 <= status < 500 and status not in TEMPORARY, wait_s=wait_s)


def _tls(sink: SinkSection) -> ssl.SSLContext | None:
    """Return the TLS settings of a sink that has the key `ca_file`. Return None for other sinks, which use
    the certificates of the system."""
    if sink.ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=sink.ca_file)
    except (OSError, ssl.SSLError):
        raise DeliveryFailed(f"{sink.ca_file} holds no certificates that can be read") from None


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
