"""Signatures of AWS, compared with the examples in the documentation of Amazon S3."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controller.engines.aws.answers import parsed_xml
from controller.engines.aws.signing import LONGEST_PRESIGNED_S, Credentials, Signer

KEY = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
AT = datetime(2013, 5, 24, tzinfo=UTC).timestamp()
HOST = "https://examplebucket.s3.amazonaws.com"
S3 = Signer(KEY, "us-east-1", "s3")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "signature"),
    [
        (
            "GET",
            "/test.txt",
            b"",
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test%24file.text",
            b"Welcome to Amazon S3.",
            {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        ("GET", "/?lifecycle", b"", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            "GET",
            "/?max-keys=2&prefix=J",
            b"",
            {},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_signed_headers(method: str, path: str, body: bytes, headers: dict[str, str], signature: str) -> None:
    made = S3.headers(method, HOST + path, body, AT, headers)
    assert made["authorization"].endswith(f"Signature={signature}")


def test_signature_of_a_form() -> None:
    """The case post-x-www-form-urlencoded of the suite aws4_testsuite."""
    signer = Signer(
        Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"), "us-east-1", "service"
    )
    kind = {"content-type": "application/x-www-form-urlencoded"}
    made = signer.headers("POST", "https://example.amazonaws.com/", b"Param1=value1", 1_440_938_160.0, kind)
    assert made["authorization"].endswith(
        "Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
    )


def test_a_presigned_address() -> None:
    made = S3.presigned("GET", f"{HOST}/test.txt", 86_400, AT)
    assert made.endswith("X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")


def test_a_presigned_address_names_the_headers_that_clients_must_send() -> None:
    made = S3.presigned("PUT", f"{HOST}/claim", 60, AT, {"If-None-Match": "*"})
    assert "X-Amz-SignedHeaders=host%3Bif-none-match&" in made
    assert made != S3.presigned("PUT", f"{HOST}/claim", 60, AT)


def test_the_session_token_is_signed() -> None:
    made = Signer(Credentials("id", "secret", "token/+"), "us-east-1", "s3")
    assert made.headers("GET", HOST, b"", AT)["x-amz-security-token"] == "token/+"
    assert "X-Amz-Security-Token=token%2F%2B&" in made.presigned("GET", HOST, 60, AT)


def test_an_address_is_valid_for_at_most_a_week() -> None:
    with pytest.raises(ValueError, match="604800"):
        S3.presigned("GET", HOST, LONGEST_PRESIGNED_S + 1, AT)


def test_secrets_are_not_shown() -> None:
    assert KEY.secret not in repr(S3)


def test_xml_with_entities_is_refused() -> None:
    assert parsed_xml(b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>') is None
    root = parsed_xml(b'<a xmlns="urn:x"><b>1</b></a>')
    assert root is not None
    assert root.findtext("b") == "1"
