"""Reads the certificate authority of a controller that the client does not trust yet."""

from __future__ import annotations

import ssl

from wire.http import pins
from wire.http.connection import Connection, InvalidAnswer
from wire.http.transport import Refused, Transport, Unreachable

MOST_BYTES = 64 * 1024


def read_authority(url: str, timeout_s: float = 10.0) -> str:
    """Return the PEM text of the certificate authority of the controller at an https URL. No token is sent.

    1. Connect without a check of the certificate, and request the authority.
    2. Connect again, and trust only this authority. This fails if the server has no certificate of this
       authority for the name in the URL.

    The steps do not prove that this is the authority of the site: the user must compare its fingerprint.
    Raise Unreachable if a step fails.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, _, port = pins.key_of(url).rpartition(":")
    connection = Connection((host, int(port)), timeout_s, context)
    try:
        connection.connect()
        answer = connection.request("GET", "/v1/ca", None, {"Accept": "application/x-pem-file"})
        content = b""
        while (piece := answer.read_some()) and len(content) <= MOST_BYTES:
            content += piece
    except (OSError, InvalidAnswer) as error:
        raise Unreachable(url, f"its certificate authority cannot be read: {error}") from None
    finally:
        connection.close()
    pem = content.decode("ascii", "replace")
    if answer.status != 200 or not pem.startswith("-----BEGIN CERTIFICATE-----"):
        why = "it has no certificate authority of its own"
        raise Unreachable(url, why, "Trust the site's authority: corral config add NAME URL --ca FILE")
    checked = Transport(url, timeout_s, "", pin=pem)
    try:
        checked.ask("GET", "/v1/ca", None, (), question=True)
    except Refused:
        pass  # The TLS connection has already proved that the certificate is of this authority.
    finally:
        checked.close()
    return pem
