"""Signs requests to AWS with Signature Version 4."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key of AWS. `session` is the session token of temporary credentials."""

    key_id: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)


def signed_headers(
    url: str, body: bytes, content_type: str, region: str, service: str, credentials: Credentials, now: float
) -> dict[str, str]:
    """Return the headers of a signed POST request without a query string.

    1. Hash the canonical request: method, path, query, headers, names of the headers, hash of the body.
    2. Derive the signing key from the secret, the day, the region and the service.
    3. Sign the time, the scope and the hash of step 1.
    """
    parts = urlsplit(url)
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{at[:8]}/{region}/{service}/aws4_request"
    headers = {"content-type": content_type, "host": parts.netloc, "x-amz-date": at}
    if credentials.session:
        headers["x-amz-security-token"] = credentials.session
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join(("POST", parts.path or "/", "", lines, names, hashlib.sha256(body).hexdigest()))
    key = f"AWS4{credentials.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join((_ALGORITHM, at, scope, hashlib.sha256(request.encode()).hexdigest()))
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers
