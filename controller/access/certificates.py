"""The certificate authority that a controller makes ([api] tls = "auto"), and its own certificate."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wire import trusted_paths

AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY = "ca.pem", "ca.key", "certificate.pem", "certificate.key"
AUTHORITY_DAYS, CERTIFICATE_DAYS, RENEW_DAYS = 7_300, 395, 60
_DAY = datetime.timedelta(days=1)


class OwnAuthority:
    """The certificate authority of one controller, in a directory with mode 0700.

    1. At the first start, make a key and a self-signed certificate of the authority. Clients pin the
       authority, so it must not change; it is valid for 20 years.
    2. At each start, make a new key and certificate for the controller, with all names by which clients may
       reach it. `renew` makes another certificate before this one expires. Clients do not notice the change.

    The authority can sign no other authorities. Its key never leaves this directory.
    """

    def __init__(self, directory: Path, names: Iterable[str]) -> None:
        self._directory = directory
        self._names = list(dict.fromkeys(name for name in names if name))
        os.close(trusted_paths.open_directory(str(directory), make=True))
        if not (directory / AUTHORITY).exists():
            self._make_authority()
        self.pem = _read(directory / AUTHORITY)
        self._authority = x509.load_pem_x509_certificate(self.pem)
        self.fingerprint = fingerprint(self.pem)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._expires = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self.renew()

    def renew(self) -> None:
        """Make a new certificate if the present one expires within RENEW_DAYS."""
        now = datetime.datetime.now(datetime.UTC)
        if now + RENEW_DAYS * _DAY < self._expires:
            return
        key = ec.generate_private_key(ec.SECP256R1())
        self._expires = now + CERTIFICATE_DAYS * _DAY
        made = (
            x509.CertificateBuilder()
            .subject_name(_name("Corral controller"))
            .issuer_name(self._authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(self._expires)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(list(map(_alternative, self._names))), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(_load_key(_read(self._directory / AUTHORITY_KEY)), hashes.SHA256())
        )
        _write(self._directory / KEY, _key_pem(key))
        _write(self._directory / CERTIFICATE, made.public_bytes(serialization.Encoding.PEM))
        self.context.load_cert_chain(self._directory / CERTIFICATE, self._directory / KEY)

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        name = _name(f"Corral on {socket.gethostname()}"[:64])
        usage = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"), False
        ) | dict.fromkeys(("key_agreement", "encipher_only", "decipher_only"), False)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + AUTHORITY_DAYS * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
            .sign(key, hashes.SHA256())
        )
        # Write the key first. If a crash follows, both files are made again at the next start.
        _write(self._directory / AUTHORITY_KEY, _key_pem(key))
        _write(self._directory / AUTHORITY, made.public_bytes(serialization.Encoding.PEM))


def site_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return TLS settings with a certificate of the site. Raise OSError if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key or None)
    except ssl.SSLError as error:
        raise OSError(f"[api] certificate: {certificate} cannot be used: {error.reason or error}") from None
    return context


def fingerprint(pem: bytes) -> str:
    """Return the SHA-256 hash of a certificate, in the form that clients print: `SHA256:` and 64 hexadecimal
    digits.
    """
    return f"SHA256:{hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode())).hexdigest()}"


def host_names(listen: str, url: str) -> list[str]:
    """Return the names and addresses by which clients may reach a controller on this host."""
    host = listen.rpartition(":")[0].strip("[]")
    named = url.partition("://")[2].partition("/")[0]
    named = named[1:].partition("]")[0] if named.startswith("[") else named.partition(":")[0]
    names = [named, socket.gethostname(), socket.getfqdn(), "localhost", "127.0.0.1", "::1"]
    every = not host or (_is_address(host) and ipaddress.ip_address(host).is_unspecified)
    return names if every else [host, *names]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _alternative(name: str) -> x509.GeneralName:
    if _is_address(name):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name if name.isascii() else name.encode("idna").decode())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # The controller made this EC key.
    return key


def _read(path: Path) -> bytes:
    with open(trusted_paths.open_file(str(path)), "rb") as file:
        return file.read()


def _write(path: Path, content: bytes) -> None:
    """Replace a file that only the controller's user can read. After a crash, the file is the old one or the
    new one.
    """
    draft = path.with_name(f"{path.name}.new")
    with open(trusted_paths.open_file(str(draft), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
