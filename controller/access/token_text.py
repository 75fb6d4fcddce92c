"""Makes and reads the texts of API tokens: `corral_KIND_ID_SECRET_CRC`.

1. KIND is user, robot or session. ID names the token in lists and in the audit log, and is no secret.
2. SECRET is 32 random characters (160 bits). Only the SHA-256 hash of the whole text is stored. A slow hash
   is not necessary, because 2^160 secrets cannot be tried.
3. CRC is the CRC-32 of the text before it. With the CRC, the controller distinguishes a mistyped token from
   an unknown token, and scanners of source code find tokens without false alarms.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from dataclasses import dataclass

from controller.core.model.tokens import KINDS

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_TEXT = re.compile(rf"corral_({'|'.join(KINDS)})_([a-z2-7]{{10}})_([a-z2-7]{{32}})_([0-9a-f]{{8}})")


class Mistyped(Exception):
    """Raised for a text that begins with `corral_` but is no token: its form or its check sum is wrong."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token: its id, its text, and the hash that is stored in place of the text."""

    id: str
    text: str
    digest: str


def new_token(kind: str) -> NewToken:
    """Return a new random token. `kind` is user, robot or session."""
    id, secret = ("".join(secrets.choice(_LETTERS) for _ in range(count)) for count in (10, 32))
    body = f"corral_{kind}_{id}_{secret}"
    text = f"{body}_{zlib.crc32(body.encode()):08x}"
    return NewToken(id, text, digest_of(text))


def id_in(text: str) -> str | None:
    """Return the id in the text of a token; None if the text does not begin with `corral_`. Raise Mistyped if
    it begins with `corral_`, but its form or its check sum is wrong.
    """
    if not text.startswith("corral_"):
        return None
    match = _TEXT.fullmatch(text)
    if match is None or f"{zlib.crc32(text.rpartition('_')[0].encode()):08x}" != match[4]:
        raise Mistyped
    return match[2]


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_text_of(text: str, digest: str) -> bool:
    """Return whether the hash of the text is `digest`. The time of the comparison does not depend on the
    text.
    """
    return hmac.compare_digest(digest_of(text), digest)
