"""The device authorisation grant (RFC 8628): the user confirms a code on a page of the identity provider."""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cli.exit_codes import FAILED, NOT_ALLOWED, CommandError
from wire.api.service.access import LoginOffer
from wire.text import printable

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TIMEOUT_S = 30.0
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class DeviceCode:
    """A login that has begun: the page and the code for the user, and the code for the polls."""

    device_code: str
    user_code: str
    page: str
    page_with_code: str
    every_s: float
    ends_at: float
    nonce: str
    token_endpoint: str


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any) -> None:
        return None


def begin(offer: LoginOffer) -> DeviceCode:
    """Ask the identity provider for a code."""
    about = _get(f"{offer.issuer.rstrip('/')}/.well-known/openid-configuration")
    if about.get("issuer") != offer.issuer:
        raise CommandError(f"{offer.issuer} is not the issuer that it claims to be", "", FAILED)
    begins, ends = about.get("device_authorization_endpoint"), about.get("token_endpoint")
    if not isinstance(begins, str) or not isinstance(ends, str):
        hint = "An admin must allow it for this client, or give you a token: corral token create --user"
        raise CommandError(f"{offer.issuer} has no login by device code", hint, FAILED)
    nonce = secrets.token_urlsafe(16)
    form = {"client_id": offer.client_id, "scope": " ".join(offer.scopes), "nonce": nonce}
    status, answer = _post(begins, form)
    try:
        return DeviceCode(
            str(answer["device_code"]),
            str(answer["user_code"]),
            str(answer["verification_uri"]),
            str(answer.get("verification_uri_complete", "")),
            max(0.2, float(answer.get("interval", 5))),
            time.monotonic() + float(answer["expires_in"]),
            nonce,
            ends,
        )
    except (KeyError, TypeError, ValueError):
        raise _refused(offer.issuer, status, answer) from None


def wait_for_id_token(
    offer: LoginOffer, code: DeviceCode, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Poll until the user has confirmed the login, and return the ID token.

    1. Wait `every_s` seconds, then ask for the token.
    2. While the user has not confirmed: repeat. If the provider says slow_down, wait 5 s longer each time.
    3. Any other answer without an ID token ends the login.
    """
    every_s = code.every_s
    form = {"grant_type": GRANT, "device_code": code.device_code, "client_id": offer.client_id}
    while time.monotonic() < code.ends_at:
        sleep(every_s)
        status, answer = _post(code.token_endpoint, form)
        if isinstance(token := answer.get("id_token"), str):
            return token
        problem = answer.get("error")
        if problem == "slow_down":
            every_s += 5.0
        elif problem != "authorization_pending":
            raise _refused(offer.issuer, status, answer)
    raise CommandError("the code has expired", "Begin again: corral login", NOT_ALLOWED)


def _refused(issuer: str, status: int, answer: Mapping[str, Any]) -> CommandError:
    why = str(answer.get("error_description") or answer.get("error") or f"status {status}")
    return CommandError(f"{issuer} refuses the login: {printable(why, 300)}", "", NOT_ALLOWED)


def _get(url: str) -> Mapping[str, Any]:
    return _send(url, None)[1]


def _post(url: str, form: Mapping[str, str]) -> tuple[int, Mapping[str, Any]]:
    return _send(url, urllib.parse.urlencode(form).encode())


def _send(url: str, body: bytes | None) -> tuple[int, Mapping[str, Any]]:
    """Send a request, and return the status and the JSON object of the answer. Only https and loopback
    addresses are used, and redirects are not followed.
    """
    from controller.config.tables.access import is_confidential

    if not is_confidential(url):
        raise CommandError(f"{url} is not an https address", "An admin must correct [access.oidc].", FAILED)
    request = urllib.request.Request(url, body, {"Accept": "application/json"})  # noqa: S310 - see above
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            status, content = answer.status, answer.read(MOST_BYTES)
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read(MOST_BYTES)
    except OSError as error:
        raise CommandError(f"{url} does not answer: {error}", "", FAILED) from None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CommandError(f"{url} does not answer with a JSON object (status {status})", "", FAILED)
    return status, found
