"""Delivers messages by mail through an SMTP server."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
import threading
from email.message import EmailMessage
from email.utils import formatdate

from controller.config.tables.notify import SinkSection
from controller.notify.messages import Message, text_of
from controller.notify.sinks.delivery_error import DeliveryFailed, secret_of
from wire.text import printable

PORTS = {"starttls": 587, "tls": 465, "none": 25}
"""The default port for each value of the sink's key `security`."""
MOST_TIMES = 4
"""A whole delivery may take at most this many times `timeout_s`. A single answer of the server may take
`timeout_s`.
"""


async def send(sink: SinkSection, message: Message, cluster: str, link: str) -> None:
    """Send a message by mail to its recipient. Raise DeliveryFailed if the server does not accept the
    message.

    A daemon thread sends the mail, so that a mail server without an answer delays neither the controller nor
    its shutdown.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[DeliveryFailed | None] = loop.create_future()

    def settle(failure: DeliveryFailed | None) -> None:
        if not done.done():
            done.set_result(failure)

    def work() -> None:
        failure: DeliveryFailed | None = None
        try:
            _send(sink, mail_of(sink, message, cluster, link), message.to)
        except DeliveryFailed as failed:
            failure = failed
        except Exception as error:
            failure = _failure(sink, error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, failure)

    threading.Thread(target=work, name="notify-smtp", daemon=True).start()
    try:
        failure = await asyncio.wait_for(done, MOST_TIMES * sink.timeout_s)
    except TimeoutError:
        failure = DeliveryFailed(f"{sink.host} took longer than {MOST_TIMES * sink.timeout_s:g} s")
    if failure is not None:
        raise failure


def mail_of(sink: SinkSection, message: Message, cluster: str, link: str) -> EmailMessage:
    """Return the mail for a message. The mail's Message-ID contains the id of the message, so that mail
    programs can drop repeated mails."""
    mail = EmailMessage()
    mail["From"] = f"Corral <{sink.sender}>"
    mail["To"] = message.to
    mail["Subject"] = printable(f"[{cluster}] {message.subject}", 180)
    mail["Date"] = formatdate(message.made_at)
    mail["Message-ID"] = f"<{message.id}@{(sink.sender or '').rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Corral-Id"] = message.id
    mail["X-Corral-Notices"] = " ".join(message.words)
    mail.set_content(
        f"{text_of(message, link)}\n-- \nCorral on {printable(cluster)}. Message {message.id}.\n"
    )
    return mail


def _send(sink: SinkSection, mail: EmailMessage, to: str) -> None:
    secret = secret_of(sink.secret_file, sink.secret_env)
    host, port = sink.host or "", sink.port or PORTS[sink.security]
    context = ssl.create_default_context(cafile=sink.ca_file)
    if sink.security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=sink.timeout_s, context=context)
    else:
        server = smtplib.SMTP(host, port, timeout=sink.timeout_s)
    with server:
        if sink.security == "starttls":
            server.starttls(context=context)
        if sink.login is not None:
            server.login(sink.login, secret)
        server.send_message(mail, from_addr=sink.sender, to_addrs=[to])


def _failure(sink: SinkSection, error: Exception) -> DeliveryFailed:
    """Return the DeliveryFailed error for an exception of smtplib or of a socket."""
    host = f"{sink.host}:{sink.port or PORTS[sink.security]}"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, said = next(iter(error.recipients.values()))
        return _answered(host, code, said)
    if isinstance(error, smtplib.SMTPAuthenticationError):
        # Try again later, because an operator can correct the password before the next try.
        return DeliveryFailed(f"{host} refused the login ({error.smtp_code})")
    if isinstance(error, smtplib.SMTPResponseException):
        return _answered(host, error.smtp_code, error.smtp_error)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return DeliveryFailed(f"{host} does not offer STARTTLS or the login; see the key `security`")
    if isinstance(error, TimeoutError):
        return DeliveryFailed(f"{host} did not answer within {sink.timeout_s:g} s")
    if isinstance(error, ssl.SSLError):
        return DeliveryFailed(f"the TLS connection to {host} failed: {error.reason or error}")
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return DeliveryFailed(f"{host} closed the connection")
    if isinstance(error, OSError):
        return DeliveryFailed(f"cannot connect to {host}: {error.strerror or type(error).__name__}")
    return DeliveryFailed(f"the mail could not be sent to {host}: {type(error).__name__}")


def _answered(host: str, code: int, said: bytes | str) -> DeliveryFailed:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return DeliveryFailed(f"{host} answered {code}: {printable(text)}", final=500 <= code < 600)
