"""Verifies ID tokens of OpenID Connect: the signature and the claims."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

LEEWAY_S = 60.0
"""The largest difference between the clocks of the controller and of the identity provider."""
OLDEST_S = 600.0
"""A token that was issued before this time is refused, also if it has not expired."""
MOST_BYTES = 64 * 1024
MIN_RSA_BITS = 2_048


class InvalidIdToken(Exception):
    """Raised for a token that is not accepted. The message is the reason."""


@dataclass(frozen=True, slots=True)
class SignedToken:
    """The parts of a token before its verification."""

    algorithm: str
    key_id: str
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


def read_token(text: str) -> SignedToken:
    """Return the parts of a token. The signature and the claims are not checked yet."""
    if len(text) > MOST_BYTES or not text.isascii() or text.count(".") != 2:
        raise InvalidIdToken("it is not a signed JSON Web Token")
    head, body, signature = text.split(".")
    header, claims = _object(head), _object(body)
    if "crit" in header:
        raise InvalidIdToken("it has critical extensions")
    return SignedToken(
        str(header.get("alg", "")),
        str(header.get("kid", "")),
        claims,
        f"{head}.{body}".encode(),
        _decode(signature),
    )


def check_signature(token: SignedToken, keys: list[Mapping[str, Any]]) -> None:
    """Raise InvalidIdToken if none of the provider's keys has signed the token.

    The type of the key decides the algorithm, and the header must name the same one. So a token cannot choose
    the algorithm "none", or a public key as a shared secret.
    """
    for key in keys:
        if token.key_id and key.get("kid") not in (None, token.key_id):
            continue
        if key.get("use", "sig") != "sig" or key.get("alg", token.algorithm) != token.algorithm:
            continue
        try:
            if _is_signed_by(token, key):
                return
        except (KeyError, ValueError, TypeError):
            continue  # The provider also has keys that cannot be used here.
    raise InvalidIdToken("no key of the identity provider has signed it with RS256 or ES256")


def check_claims(claims: Mapping[str, Any], issuer: str, client_id: str, nonce: str, now: float) -> None:
    """Raise InvalidIdToken if the token is not from this issuer, not for this client, too old, or not for
    this login (`nonce`).
    """
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if claims.get("iss") != issuer:
        raise InvalidIdToken("its issuer is another one")
    if client_id not in audiences or (len(audiences) > 1 and claims.get("azp") != client_id):
        raise InvalidIdToken("it is for another client")
    if claims.get("azp", client_id) != client_id:
        raise InvalidIdToken("it was given to another client")
    if now > expires + LEEWAY_S or now > issued + OLDEST_S + LEEWAY_S:
        raise InvalidIdToken("it has expired; log in again")
    if max(issued, _time(claims, "nbf") if "nbf" in claims else 0.0) > now + LEEWAY_S:
        raise InvalidIdToken("it is from the future; compare the clocks")
    if "nonce" in claims and (not nonce or claims["nonce"] != nonce):
        raise InvalidIdToken("it is from another login")


def _is_signed_by(token: SignedToken, key: Mapping[str, Any]) -> bool:
    try:
        if key["kty"] == "RSA" and token.algorithm == "RS256":
            public = rsa.RSAPublicNumbers(_number(key["e"]), _number(key["n"])).public_key()
            if public.key_size < MIN_RSA_BITS:
                return False
            public.verify(token.signature, token.signed, padding.PKCS1v15(), SHA256())
            return True
        if key["kty"] == "EC" and key["crv"] == "P-256" and token.algorithm == "ES256":
            if len(token.signature) != 64:
                return False
            point = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1())
            halves = (int.from_bytes(part, "big") for part in (token.signature[:32], token.signature[32:]))
            point.public_key().verify(encode_dss_signature(*halves), token.signed, ec.ECDSA(SHA256()))
            return True
    except InvalidSignature:
        return False
    return False


def _object(part: str) -> Mapping[str, Any]:
    try:
        found = json.loads(_decode(part))
    except (ValueError, RecursionError):
        raise InvalidIdToken("it cannot be read") from None
    if not isinstance(found, dict):
        raise InvalidIdToken("it cannot be read")
    return found


def _decode(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidIdToken("it cannot be read") from None


def _number(text: str) -> int:
    return int.from_bytes(_decode(text), "big")


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e11:
        raise InvalidIdToken(f"its claim {name} is no time")
    return value
