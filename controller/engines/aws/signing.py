"""Signs requests to AWS with Signature Version 4, in headers or in the query of a URL."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

LONGEST_PRESIGNED_S = 604_800
"""The most seconds for which AWS accepts a presigned URL."""
_ALGORITHM = "AWS4-HMAC-SHA256"
_UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key of AWS. `session` is the session token of temporary credentials."""

    key_id: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs requests to one service in one region.

    1. Hash the canonical form of the request: method, path, query, headers, names of the headers, hash of the
       body.
    2. Derive the signing key from the secret, the day, the region and the service.
    3. Sign the time, the scope and the hash of step 1.

    The path of a URL must be percent-encoded once. `now` is the time in seconds since 1970.
    """

    credentials: Credentials
    region: str
    service: str

    def headers(
        self, method: str, url: str, body: bytes, now: float, headers: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the headers of a signed request: `headers`, and the headers of the signature."""
        at = _timestamp(now)
        digest = hashlib.sha256(body).hexdigest()
        signed = {name.lower(): value for name, value in (headers or {}).items()}
        signed |= {"host": urlsplit(url).netloc, "x-amz-date": at}
        if self.service == "s3":
            signed["x-amz-content-sha256"] = digest
        if self.credentials.session:
            signed["x-amz-security-token"] = self.credentials.session
        signature = self._signature(method, url, signed, digest, at)
        return {
            **signed,
            "authorization": f"{_ALGORITHM} Credential={self.credentials.key_id}/{self._scope(at)}, "
            f"SignedHeaders={';'.join(sorted(signed))}, Signature={signature}",
        }

    def presigned(
        self, method: str, url: str, valid_s: int, now: float, headers: Mapping[str, str] | None = None
    ) -> str:
        """Return a URL with a signature. For `valid_s` seconds, any client can send a request with this
        method to the URL without an access key. The client must send `headers`.
        """
        if not 1 <= valid_s <= LONGEST_PRESIGNED_S:
            raise ValueError(f"a presigned address is valid for 1 to {LONGEST_PRESIGNED_S} s, not {valid_s}")
        at = _timestamp(now)
        signed = {name.lower(): value for name, value in (headers or {}).items()}
        signed["host"] = urlsplit(url).netloc
        query = {
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{self.credentials.key_id}/{self._scope(at)}",
            "X-Amz-Date": at,
            "X-Amz-Expires": str(valid_s),
            "X-Amz-SignedHeaders": ";".join(sorted(signed)),
        }
        if self.credentials.session:
            query["X-Amz-Security-Token"] = self.credentials.session
        full = f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query, quote_via=quote, safe='-_.~')}"
        return f"{full}&X-Amz-Signature={self._signature(method, full, signed, _UNSIGNED, at)}"

    def _scope(self, at: str) -> str:
        return f"{at[:8]}/{self.region}/{self.service}/aws4_request"

    def _signature(self, method: str, url: str, headers: Mapping[str, str], digest: str, at: str) -> str:
        parts = urlsplit(url)
        # Encode the percent signs of the path once more, because all services except S3 hash the path in this
        # form.
        path = parts.path or "/"
        path = path if self.service == "s3" else quote(path, safe="/-_.~")
        pairs = sorted(parse_qsl(parts.query, keep_blank_values=True))
        query = urlencode(pairs, quote_via=quote, safe="-_.~")
        names = sorted(headers)
        lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
        request = "\n".join((method, path, query, lines, ";".join(names), digest))
        scope = self._scope(at)
        key = f"AWS4{self.credentials.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = "\n".join((_ALGORITHM, at, scope, hashlib.sha256(request.encode()).hexdigest()))
        return hmac.digest(key, text.encode(), "sha256").hex()


def _timestamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
