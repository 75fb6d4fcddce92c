"""An SMTP server that tests start, and that can refuse mails as ordered. It needs aiosmtpd."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Mails:
    """A running SMTP server: the mails that it has accepted, and the orders for its next answers."""

    port: int = 0
    accepted: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    secured: list[bool] = field(default_factory=list)
    """For each accepted mail whether its connection was encrypted with TLS and the client was logged in."""
    orders: deque[str] = field(default_factory=deque)
    """The answers to the next recipients, such as "450 try later". Empty: the mail is accepted."""

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if self.orders:
            return self.orders.popleft()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        parsed = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        self.recipients.append(list(envelope.rcpt_tos))
        self.secured.append(session.ssl is not None and session.authenticated)
        self.accepted.append(parsed)
        return "250 OK"


@contextmanager
def mail_server(port: int = 0, *, login: tuple[str, str] | None = None, tls: Any = None) -> Iterator[Mails]:
    """Run an SMTP server on loopback until the end of the block. With `tls` (an SSL context) it demands
    STARTTLS, and with `login` (user, password) the login."""
    found = Mails()

    def check(server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword) -> AuthResult:
        # handled=False: the server itself answers a wrong password with 535. Otherwise it would not answer.
        return AuthResult(success=(data.login.decode(), data.password.decode()) == login, handled=False)

    more = {"authenticator": check, "auth_required": True} if login else {}
    server = Controller(
        found, "127.0.0.1", port or free_port(), tls_context=tls, require_starttls=tls is not None, **more
    )
    server.start()
    found.port = server.port
    try:
        yield found
    finally:
        server.stop()


def free_port() -> int:
    """A TCP port of loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
        return port


def certificate(place: Path) -> tuple[ssl.SSLContext, Path]:
    """Make a certificate for 127.0.0.1 in this directory: (context of the server, file for its clients)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    public, private = place / "server.pem", place / "server.key"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return context, public
