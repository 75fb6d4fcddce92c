"""The certificate authorities of controllers that this user trusts, one for each address (as SSH's
known_hosts). `corral config trust` pins them.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.parse
from pathlib import Path
from typing import Mapping

from wire.http import addresses


class PinsUnreadable(Exception):
    """Raised if the file of pins cannot be read. Without the pins, no https address can be trusted."""


def path() -> Path:
    """Return the path of the file of pins. The file may not exist."""
    return addresses.config_dir() / "known_controllers.json"


def load() -> Mapping[str, str]:
    """Return the PEM text of the pinned authority of each address `host:port`. Raise PinsUnreadable if the
    file cannot be read.
    """
    try:
        known = json.loads(path().read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise PinsUnreadable(f"{path()} cannot be read: {str(error)[:200]}") from None
    if not isinstance(known, dict) or not all(isinstance(pem, str) for pem in known.values()):
        raise PinsUnreadable(f"{path()} is not a list of addresses and certificates")
    return known


def pinned(url: str) -> str:
    """Return the PEM text of the authority that is pinned for the address of an https URL; empty if none
    is."""
    return load().get(key_of(url), "") if url.startswith("https:") else ""


def pin(url: str, pem: str) -> None:
    """Trust this authority, and no other, for the address of the URL."""
    import tempfile

    known = {**load(), key_of(url): pem}
    place = path()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=str(place.parent), prefix=".known.")
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(known, file, indent=2)
        file.write("\n")
    os.replace(name, str(place))


def key_of(url: str) -> str:
    """Return the address `host:port` in an https URL, with port 443 if the URL has none."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.hostname}:{parts.port or 443}"


def fingerprint(pem: str) -> str:
    """Return the SHA-256 hash of a certificate: `SHA256:` and 64 digits."""
    import ssl

    return f"SHA256:{hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()}"
