"""ID tokens: which signatures and claims are accepted."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from controller.access.id_token import InvalidIdToken, check_claims, check_signature, read_token

NOW = 1_800_000_000.0
CLAIMS = {"iss": "https://id", "aud": "corral", "iat": NOW - 5, "exp": NOW + 300, "nonce": "n1", "sub": "7"}
RSA, OTHER_RSA, SMALL = (rsa.generate_private_key(65_537, bits) for bits in (2_048, 2_048, 1_024))
EC = ec.generate_private_key(ec.SECP256R1())


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int, size: int = 0) -> str:
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def rsa_key(key: rsa.RSAPrivateKey, **more: Any) -> dict[str, Any]:
    public = key.public_key().public_numbers()
    return {"kty": "RSA", "n": number(public.n), "e": number(public.e), **more}


def ec_key(**more: Any) -> dict[str, Any]:
    public = EC.public_key().public_numbers()
    return {"kty": "EC", "crv": "P-256", "x": number(public.x, 32), "y": number(public.y, 32), **more}


def rs256(signed: bytes, key: rsa.RSAPrivateKey = RSA) -> bytes:
    return key.sign(signed, padding.PKCS1v15(), hashes.SHA256())


def es256(signed: bytes) -> bytes:
    halves = decode_dss_signature(EC.sign(signed, ec.ECDSA(hashes.SHA256())))
    return b"".join(each.to_bytes(32, "big") for each in halves)


def text(sign: Callable[[bytes], bytes], alg: str, claims: Mapping[str, Any] = CLAIMS, **header: Any) -> str:
    head = b64(json.dumps({"alg": alg, **header}).encode())
    signed = f"{head}.{b64(json.dumps(claims).encode())}"
    return f"{signed}.{b64(sign(signed.encode()))}"


KEYS: list[Mapping[str, Any]] = [{"kty": "oct", "k": "AA"}, {}, rsa_key(RSA, kid="r"), ec_key(kid="e")]


@pytest.mark.parametrize("header", [{}, {"kid": "r"}, {"kid": "e"}])
def test_rsa_and_ec_signatures_are_accepted(header: dict[str, str]) -> None:
    if header != {"kid": "e"}:
        check_signature(read_token(text(rs256, "RS256", **header)), KEYS)
    if header != {"kid": "r"}:
        check_signature(read_token(text(es256, "ES256", **header)), KEYS)


def shared_secret(signed: bytes) -> bytes:
    pem = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hmac.digest(pem, signed, hashlib.sha256)


@pytest.mark.parametrize(
    "forged",
    [
        text(lambda _: b"", "none"),
        text(lambda _: b"", "RS256"),
        text(shared_secret, "HS256"),
        text(rs256, "ES256"),
        text(es256, "RS256"),
        text(rs256, "RS512"),
        text(rs256, "RS256", kid="unknown"),
        text(lambda signed: rs256(signed, OTHER_RSA), "RS256"),
        text(lambda _: bytes(64), "ES256"),
        text(lambda signed: es256(signed)[:-1], "ES256"),
        text(lambda signed: rs256(signed + b"x"), "RS256"),
    ],
)
def test_forged_signatures_are_refused(forged: str) -> None:
    with pytest.raises(InvalidIdToken, match="has signed it"):
        check_signature(read_token(forged), KEYS)


def test_weak_and_foreign_keys_are_not_used() -> None:
    weak = text(lambda signed: rs256(signed, SMALL), "RS256")
    good = read_token(text(rs256, "RS256"))
    for token, key in (
        (read_token(weak), rsa_key(SMALL)),
        (good, rsa_key(RSA, use="enc")),
        (good, rsa_key(RSA, alg="RS512")),
        (good, {**rsa_key(RSA), "n": "!!"}),
        (good, {**rsa_key(RSA), "n": 7}),
    ):
        with pytest.raises(InvalidIdToken):
            check_signature(token, [key])


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "a.b",
        "a.b.c",
        "....",
        "é.b.c",
        "e30.W10.AA",
        "e30.bnVsbA.AA",
        "A" * 70_000,
        f"{b64(b'[]')}.e30.AA",
    ],
)
def test_text_that_is_no_token_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidIdToken):
        check_claims(read_token(wrong).claims, "https://id", "corral", "", NOW)


def test_critical_extensions_are_refused() -> None:
    with pytest.raises(InvalidIdToken, match="critical"):
        read_token(text(rs256, "RS256", crit=["b64"], b64=False))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aud": ["corral"]},
        {"aud": ["corral", "web"], "azp": "corral"},
        {"nbf": NOW},
        {"exp": NOW - 30},
        {"iat": NOW + 30},
    ],
)
def test_claims_that_are_accepted(changes: dict[str, Any]) -> None:
    check_claims({**CLAIMS, **changes}, "https://id", "corral", "n1", NOW)
    without = {name: value for name, value in CLAIMS.items() if name != "nonce"}
    check_claims({**without, **changes}, "https://id", "corral", "n1", NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://id/"},
        {"iss": None},
        {"aud": "web"},
        {"aud": []},
        {"aud": None},
        {"aud": ["corral", "web"]},
        {"aud": ["corral", "web"], "azp": "web"},
        {"azp": "web"},
        {"exp": NOW - 90},
        {"exp": None},
        {"exp": True},
        {"exp": "2000000000"},
        {"exp": float("inf")},
        {"exp": float("nan")},
        {"iat": NOW - 700},
        {"iat": NOW + 90},
        {"iat": None},
        {"nbf": NOW + 90},
        {"nbf": "x"},
        {"nonce": "n2"},
        {"nonce": None},
    ],
)
def test_claims_that_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidIdToken):
        check_claims({**CLAIMS, **changes}, "https://id", "corral", "n1", NOW)


def test_token_with_a_nonce_needs_it() -> None:
    with pytest.raises(InvalidIdToken, match="another login"):
        check_claims(CLAIMS, "https://id", "corral", "", NOW)
