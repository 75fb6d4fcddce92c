"""Checks the way from this client to the controller: address, token, clock, version and certificate."""

from __future__ import annotations

import os
import ssl
import stat
import time
from pathlib import Path

from cli.doctor.findings import FAIL, OK, WARN, Finding
from wire import VERSION
from wire.http import contexts, discovery, pins
from wire.http.client import Client, Refused, Unreachable
from wire.text import duration, printable

SKEW_S = 5.0
"""A larger difference between two clocks is a warning."""
TOKEN_DAYS, CERTIFICATE_DAYS = 7.0, 21.0
"""A token or a certificate that ends within this many days is a warning."""
DAY_S = 86_400.0
TIMEOUT_S = 10.0


class NoController(Exception):
    """Raised if no controller has answered, or if it has refused this user. `findings` has the finished
    checks, and `failure` the failed one. `down` is True if no controller has answered.
    """

    def __init__(self, findings: list[Finding], failure: Finding, *, down: bool) -> None:
        super().__init__()
        self.findings = findings
        self.failure = failure
        self.down = down


def check_connection(client: Client) -> list[Finding]:
    """Return the findings about the way to the controller. Raise NoController if no controller answers this
    user.
    """
    found = [_address(client)]
    try:
        asked = time.time()
        health = client.health()
        now, answered = client.cluster().now, time.time()
        who = client.whoami()
    except Unreachable as failure:
        reason = Finding("controller", FAIL, str(failure), failure.hint)
        raise NoController(found, reason, down=True) from None
    except Refused as refused:
        name = "token" if refused.status == 401 else "controller"
        hint = refused.problem.hint or "Make a token: corral token create. Set it in $CORRAL_TOKEN."
        raise NoController(found, Finding(name, FAIL, refused.problem.message, hint), down=False) from None
    found.append(
        Finding("controller", OK, f"version {printable(health.version)}, up for {duration(health.uptime_s)}")
    )
    found.append(_version(health.version))
    found.append(_clock(max(0.0, asked - now, now - answered)))
    caller = f"{printable(who.user)} ({who.role})"
    found.append(_token(client, who.token, caller) if who.token else Finding("caller", OK, caller))
    found += _token_file(client.url)
    if client.url.startswith("https:"):
        host, _, port = pins.key_of(client.url).rpartition(":")
        pem = ssl.get_server_certificate((host, int(port)), timeout=TIMEOUT_S)
        found.append(check_certificate(pem.encode(), f"at {printable(client.url)}"))
    if health.status != "ok":
        remedy = "The controller's log says more. Make room on the disk, or start the database server."
        found.append(Finding("store", FAIL, f"it cannot be written: {printable(health.status)}", remedy))
    remedy = "Look at the controller's log, its load, and the speed of the disk of its store."
    found += [Finding("alarm", WARN, printable(each), remedy) for each in health.alarms]
    return found


def check_certificate(pem: bytes, where: str) -> Finding:
    """Return the finding about the end of a certificate."""
    from cryptography import x509

    left_s = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp() - time.time()
    remedy = 'Renew the files of [api] certificate and key. With tls = "auto", restart the controller.'
    if left_s <= 0:
        message = f"the certificate {where} ended {duration(-left_s)} ago"
        return Finding("certificate", FAIL, message, remedy)
    message = f"the certificate {where} ends in {duration(left_s)}"
    if left_s < CERTIFICATE_DAYS * DAY_S:
        return Finding("certificate", WARN, message, remedy)
    return Finding("certificate", OK, message)


def _address(client: Client) -> Finding:
    return Finding(
        "address", OK, f"{printable(client.url)} ({printable(discovery.find_controller().source)})"
    )


def _version(version: str) -> Finding:
    if version == VERSION:
        return Finding("version", OK, f"this program and the controller have version {VERSION}")
    message = f"this program is {VERSION}, and the controller {printable(version)}"
    return Finding(
        "version", WARN, message, "Install the controller's version here, or upgrade the controller."
    )


def _clock(skew_s: float) -> Finding:
    if skew_s <= SKEW_S:
        return Finding("clock", OK, "this machine and the controller have the same time")
    remedy = "Start a time service, such as chrony, on both machines."
    return Finding("clock", WARN, f"this machine and the controller differ by {duration(skew_s)}", remedy)


def _token(client: Client, token: str, caller: str) -> Finding:
    """Return the finding about the token of this client. The tokens in the state directory do not end."""
    try:
        known = client.tokens().tokens
    except Refused:
        known = ()  # A token without the right to list tokens cannot show its own end.
    ends_at = next((each.expires_at for each in known if each.id == token), None)
    if ends_at is None:
        return Finding("token", OK, f"{caller}, token {printable(token)}")
    left_s = ends_at - time.time()
    close = left_s < TOKEN_DAYS * DAY_S
    remedy = "Make another one: corral token create" if close else ""
    words = f"{caller}, token {printable(token)} ends in {duration(max(0.0, left_s))}"
    return Finding("token", WARN if close else OK, words, remedy)


def _token_file(url: str) -> list[Finding]:
    """Return a warning if other users can read the token file of the context with this URL."""
    file = contexts.load().of_url(url).token_file
    if not file or os.environ.get("CORRAL_TOKEN"):
        return []
    path = Path(file).expanduser()
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o077:
        return []
    message = f"other users can read your token: {path} has mode {mode:04o}"
    return [Finding("token file", WARN, message, f"chmod 600 {path}")]
